"""One line of a preflight: what was looked at, how it stands, and what to do about it.

The API, `kolm doctor`, the console and the compile itself all show this value. A line that failed refuses the compile;
a warning does not; skipped is what this spec does not need, or what could not be looked at because something before it
failed. What is not known is a warning, never a guess.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from backend.domain.errors import CustomerError, InvalidSpec


class Check(StrEnum):
    """The checks in the order in which a list has them."""

    GOLD = "gold"
    STUDENT = "student"
    GATE = "gate"
    TEACHER_SETTINGS = "teacher_settings"
    PRICE = "price"
    BUDGET = "budget"
    RUNNER = "runner"
    BASE = "base"
    MEMORY = "memory"
    TRANSFER = "transfer"
    DISK = "disk"
    EMBEDDER = "embedder"
    TEACHER = "teacher"
    STRUCTURED_OUTPUT = "structured_output"
    LOGPROBS = "logprobs"
    FALLBACK = "fallback"
    REWARD = "reward"
    JUDGE = "judge"


class LineStatus(StrEnum):
    PASSED = "passed"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightLine:
    """`sentence` says what was found, `what_to_do` what mends it ("" where there is nothing to do). `code` is stable:
    that of the error which the compile would have met later, "" of a line that passed."""

    check: Check
    status: LineStatus
    sentence: str
    what_to_do: str = ""
    code: str = ""

    def to_json(self) -> dict[str, str]:
        return {name: str(getattr(self, name)) for name in self.__slots__}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            check=Check(value["check"]),
            status=LineStatus(value["status"]),
            sentence=value["sentence"],
            what_to_do=value["what_to_do"],
            code=value["code"],
        )


def passed_line(check: Check, sentence: str) -> PreflightLine:
    return PreflightLine(check=check, status=LineStatus.PASSED, sentence=sentence)


def skipped_line(check: Check, sentence: str) -> PreflightLine:
    return PreflightLine(check=check, status=LineStatus.SKIPPED, sentence=sentence)


def warning_line(check: Check, sentence: str, *, code: str, what_to_do: str = "") -> PreflightLine:
    return PreflightLine(check=check, status=LineStatus.WARNING, sentence=sentence, what_to_do=what_to_do, code=code)


def failed_line(check: Check, sentence: str, *, code: str, what_to_do: str) -> PreflightLine:
    return PreflightLine(check=check, status=LineStatus.FAILED, sentence=sentence, what_to_do=what_to_do, code=code)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    lines: tuple[PreflightLine, ...] = ()

    @property
    def failures(self) -> tuple[PreflightLine, ...]:
        return tuple(line for line in self.lines if line.status is LineStatus.FAILED)

    @property
    def passed(self) -> bool:
        """Tell whether a compile may start. Warnings do not refuse it."""
        return not self.failures

    def to_json(self) -> dict[str, Any]:
        return {"passed": self.passed, "lines": [line.to_json() for line in self.lines]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(lines=tuple(PreflightLine.from_json(line) for line in value["lines"]))


def in_order(lines: Iterable[PreflightLine]) -> Preflight:
    """The lines in the order of their checks; those of one check as they came."""
    order = list(Check)
    return Preflight(lines=tuple(sorted(lines, key=lambda line: order.index(line.check))))


class PreflightFailed(CustomerError):
    """A compile that could not have ended; nothing was paid but a tiny call to each model."""

    code = "preflight_failed"

    def __init__(self, preflight: Preflight) -> None:
        super().__init__(refusal_of(preflight.failures))
        self.preflight = preflight


def refusal_of(failures: Sequence[PreflightLine]) -> str:
    """The message of a refused compile: the first failed line in full, and how many more there are."""
    first = failures[0]
    more = f" ({len(failures) - 1} more in the compile's preflight.)" if len(failures) > 1 else ""
    return f"Refused before a candidate was paid for. {first.sentence} {first.what_to_do}{more}"


def lines_of(check: Check, refused: InvalidSpec) -> list[PreflightLine]:
    """A refusal of the spec as failed lines, one a problem: its sentence says what to do."""
    return [
        failed_line(check, _sentence(one.message), code=one.code, what_to_do=f"Change {one.pointer or 'the spec'}.")
        for one in refused.problems
    ]


def _sentence(text: str) -> str:
    """
    >>> _sentence("a budget of $1 is too small")
    'A budget of $1 is too small.'
    """
    return text[:1].upper() + text[1:].rstrip(".") + "."
