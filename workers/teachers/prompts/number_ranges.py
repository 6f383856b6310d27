"""Numbers of a list as ranges, `1-14, 16, 18-40` or `none`: how a judge says which of some numbered texts it means, and
how that is read.

An answer is hostile. It is one of two forms, ranges alone or a JSON object that holds them under one name, and nothing
around it but white space and one Markdown code fence: both are habits that change no number. Out of order, twice,
reversed, beyond the end, with words before it: no answer at all. Nor is one that was cut off: of `14` it may have left
the 1.
"""

import json
import re
from collections.abc import Iterable, Sequence

from workers.teachers.protocol import Choice

NONE = "none"
CUT_SHORT = ("length", "content_filter", "error")
MAX_CHARS_PER_NUMBER = 24  # `    "104-105",` on a line of its own
_BLANK = "[ \t\r\n]*"
_RANGE = rf"[1-9][0-9]{{0,3}}(?:{_BLANK}[-\u2013]{_BLANK}[1-9][0-9]{{0,3}})?"
_RANGES = re.compile(rf"{_RANGE}(?:{_BLANK},{_BLANK}{_RANGE})*")
_CODE_FENCE = re.compile(r"```(?:json|text)?\r?\n(.*)\n```", re.DOTALL)


def as_ranges(numbers: Iterable[int]) -> str:
    """The numbers in ascending order, runs of them as ranges.

    >>> as_ranges([3, 1, 2, 7, 9, 10]), as_ranges([])
    ('1-3, 7, 9-10', 'none')
    """
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs) or NONE


def read_choice(choices: Sequence[Choice], n: int, *, name: str) -> frozenset[int] | None:
    """The numbers that the first choice names (`read_numbers`), None where there is none or it was cut off."""
    if not choices or choices[0].finish_reason in CUT_SHORT:
        return None
    return read_numbers(choices[0].text, n, name=name)


def read_numbers(answer: str, n: int, *, name: str) -> frozenset[int] | None:
    """The numbers of 1 ... `n` that an answer names, or None for what is no answer. `name` is the object's one member.

    >>> sorted(read_numbers("1-3, 7", 9, name="accepted"))
    [1, 2, 3, 7]
    >>> read_numbers("7, 1-3", 9, name="accepted"), read_numbers("1-10", 9, name="accepted")
    (None, None)
    """
    if len(answer) > MAX_CHARS_PER_NUMBER * (n + 4):
        return None
    reply = answer.strip(" \t\r\n")
    fenced = _CODE_FENCE.fullmatch(reply)
    if fenced is not None:
        reply = fenced[1].strip(" \t\r\n")
    ranges = _member(reply, name) if reply.startswith("{") else reply
    return None if ranges is None else _read_ranges(ranges.strip(" \t\r\n"), n)


def _member(reply: str, name: str) -> str | None:
    """The ranges in a JSON object: a text, or a list of texts and whole numbers; "" and [] name none."""
    try:
        pairs = json.loads(reply, object_pairs_hook=list)
    except (ValueError, RecursionError):
        return None
    if not isinstance(pairs, list) or len(pairs) != 1 or pairs[0][0] != name:
        return None
    value = pairs[0][1]
    if isinstance(value, str):
        return value.strip(" ") or NONE
    if not isinstance(value, list):
        return None
    parts = [str(part) if type(part) is int else part for part in value]
    if not all(isinstance(part, str) and _RANGES.fullmatch(part.strip(" ")) for part in parts):
        return None
    return ", ".join(parts) or NONE


def _read_ranges(ranges: str, n: int) -> frozenset[int] | None:
    if ranges.lower() == NONE:
        return frozenset()
    if _RANGES.fullmatch(ranges) is None:
        return None
    numbers: list[int] = []
    for part in ranges.split(","):
        bounds = [int(digits) for digits in re.findall("[0-9]+", part)]
        first, last = bounds[0], bounds[-1]
        if first > last or last > n or (numbers and first <= numbers[-1]):
            return None
        numbers.extend(range(first, last + 1))
    return frozenset(numbers)
