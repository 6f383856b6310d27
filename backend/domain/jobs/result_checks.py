"""The checks of a value that a runner brought back: those that every kind of result is put together from."""

import math
from collections.abc import Sequence
from typing import Any, Protocol, Self, TypeVar

from backend.domain.errors import OurError

MAX_TEXT = 4_000
MAX_DEPTH = 8
MAX_NUMBER = 2**53 // 1_000_000
MAX_MS = 1_000_000_000  # eleven days
PPM = 1_000_000
MOST_FIELDS = 2_000  # of one answer
MAX_PATH = 1_000
MAX_OFFSET = 10**9
_HEX = frozenset("0123456789abcdef")


class BadResult(OurError):
    """The runner reported success with something that cannot be one."""

    code = "runner_bad_result"

    def __init__(self, what: str) -> None:
        super().__init__(f"What the runner brought back cannot be used: {what}.")


class Read(Protocol):
    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self: ...


R = TypeVar("R", bound=Read)


def is_whole(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def read(kind: type[R], value: dict[str, Any]) -> R:
    try:
        return kind.from_json(value)
    except (ValueError, TypeError) as wrong:
        raise BadResult(str(wrong)) from wrong


def check(is_right: bool, what: str) -> None:
    if not is_right:
        raise BadResult(what)


def check_latencies(values: Sequence[object]) -> None:
    is_list = isinstance(values, list) and len(values) > 0
    check(is_list and all(is_count(value) for value in values), "a latency is no count of microseconds")


def is_digest(value: object) -> bool:
    return isinstance(value, str) and len(value) == 64 and _HEX.issuperset(value)


def is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_MS


def is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= MAX_NUMBER and math.isfinite(value)


def is_share(value: object) -> bool:
    return is_number(value) and 0 <= value <= 1  # type: ignore[operator]


def is_string(value: object, longest: int) -> bool:
    return isinstance(value, str) and len(value) <= longest and "\x00" not in value and _is_unicode(value)


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)


def is_plain(value: object, *, floats: bool = True, most: int = MAX_NUMBER, depth: int = 0) -> bool:
    """JSON of bounded depth, texts and numbers."""
    if depth > MAX_DEPTH:
        return False
    if isinstance(value, dict):
        parts = [part for name, part in value.items() if is_string(name, 200)]
        return len(parts) == len(value) and is_plain(parts, floats=floats, most=most, depth=depth)
    if isinstance(value, list):
        return all(is_plain(item, floats=floats, most=most, depth=depth + 1) for item in value)
    if isinstance(value, str):
        return is_string(value, MAX_TEXT)
    if value is None or isinstance(value, bool):
        return True
    return is_whole(value, -most, most) if isinstance(value, int) else floats and is_number(value)


def check_fields(rows: list[Any]) -> None:
    """The fields of some answers, each with where it came from."""
    for row in rows:
        check(isinstance(row, list) and len(row) <= MOST_FIELDS, "the fields of an answer are no list")
        for one in row:
            is_field = isinstance(one, dict) and set(one) == {"path", "start", "end", "confidence_ppm"}
            check(is_field and is_string(one["path"], MAX_PATH), "a field has no path")
            check(is_whole(one["confidence_ppm"], 0, PPM), "a field's confidence is no share")
            start, end = one["start"], one["end"]
            is_copied = is_whole(start, 0, MAX_OFFSET) and is_whole(end, 0, MAX_OFFSET) and start <= end
            check(is_copied or (start is None and end is None), "a field has no place in its input")
