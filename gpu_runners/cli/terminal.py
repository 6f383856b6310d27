"""The words to a person at the terminal beside a command's answer: why it failed, and a question before it acts."""

import sys
from collections.abc import Sequence

from gpu_runners.cli.exit_codes import FAILED


def fail(message: str, *, code: int = FAILED) -> int:
    """Print what went wrong on standard error; the exit code."""
    print(f"kolm: {message}", file=sys.stderr)
    return code


def agrees(question: str) -> bool:
    """Say whether somebody at a terminal answers yes."""
    return sys.stdin.isatty() and input(question).strip().lower() in ("y", "yes")


def no_such(what: str, name: str, known: Sequence[str]) -> str:
    """Say that there is none of this name, and which one is like it or which there are."""
    from backend.domain.pointers import suggestion

    return f"There is no {what} {name!r}; {suggestion(name, known) if known else 'there is none at all yet'}"
