"""The words to a person at the terminal beside a command's answer: why it failed, and a question before it acts."""

import sys

from gpu_runners.cli.exit_codes import FAILED


def fail(message: str, *, code: int = FAILED) -> int:
    """Print what went wrong on standard error; the exit code."""
    print(f"kolm: {message}", file=sys.stderr)
    return code


def agrees(question: str) -> bool:
    """Say whether somebody at a terminal answers yes."""
    return sys.stdin.isatty() and input(question).strip().lower() in ("y", "yes")
