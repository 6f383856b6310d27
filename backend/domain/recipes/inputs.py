"""An input as copy recipes see it: its units, what stands around them, and where a span may begin or end.

All that a pack says of an input (`cues`) is text that is made here from the input and compared as a whole, so that a
cue of a pack needs no grammar and a hostile one matches nothing.

Classes of units: N a number, M letters and digits, U begins with a capital, L other words, P a sign.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise

from backend.domain.recipes.copy_rules import Frame

_UNIT = re.compile(rb"[A-Za-z0-9_\x80-\xff]+|[^A-Za-z0-9_\x80-\xff\s]")
MAX_UNITS = 512
MAX_BYTES = 16_384
MAX_WORDS_BEFORE = 3
FRAME = 8  # tokens before and behind the input by which it is found in a prompt


class InputText:
    """`data` beyond MAX_BYTES and MAX_UNITS is not seen."""

    def __init__(self, data: bytes) -> None:
        self.data = data[:MAX_BYTES]
        matches = _UNIT.finditer(self.data)
        self.units = [match.span() for _, match in zip(range(MAX_UNITS), matches, strict=False)]
        self._begins = {begin for begin, _ in self.units}
        self._ends = {end for _, end in self.units}

    def is_boundary(self, at: int) -> bool:
        """Return whether a span may end before byte `at`."""
        return at in self._ends or at >= len(self.data)

    def is_inside(self, at: int) -> bool:
        """Return whether a word goes on at byte `at`."""
        return 0 < at < len(self.data) and _is_word(self.data[at - 1]) and _is_word(self.data[at])

    def places_of(self, text: bytes) -> list[int]:
        """Return where `text` stands from the beginning of a unit on."""
        begins, at = list[int](), self.data.find(text)
        while at >= 0 and len(begins) < MAX_UNITS:
            if at in self._begins:
                begins.append(at)
            at = self.data.find(text, at + 1)
        return begins

    @cached_property
    def anchors(self) -> dict[str, int]:
        """Map each cue of a beginning to the byte that it points at: `first U after: by `, `last N`."""
        begins: dict[str, int] = {}
        for i, (begin, _) in enumerate(self.units):
            for cue in self._anchors_of(i):
                begins.setdefault(f"first {cue}", begin)
                begins[f"last {cue}"] = begin
        return begins

    @cached_property
    def words(self) -> frozenset[str]:
        """Return what the input has: `has: song`, `has: of 6`, `begins: Play`, `has a number`."""
        texts = [self._text(begin, end) for begin, end in self.units]
        features = {f"has: {text}" for text in texts}
        features |= {f"has: {one} {two}" for one, two in pairwise(texts)}
        features |= {f"begins: {' '.join(texts[:n])}" for n in (1, 2) if len(texts) >= n}
        if any(self._class(i) == "N" for i in range(len(self.units))):
            features.add("has a number")
        return frozenset(features)

    def ahead(self, at: int, n_units: int) -> list[str]:
        """Return what a span of `n_units` units that may end at byte `at` is followed by, the most telling cue
        first."""
        coming = list(_UNIT.finditer(self.data, at, at + 80))[:2]
        if not coming:
            return ["before the end"]
        begin, end = coming[0].span()
        blank = "a space and " if begin > at else ""
        kind = _class_of(self.data[begin:end])
        two = (
            f"before: {self._text(at, coming[1].end())}"
            if len(coming) > 1
            else f"before the end: {self._text(at, end)}"
        )
        return [
            two,
            f"before: {self._text(at, end)}",
            f"after {min(n_units, 4)}, before {blank}{kind}",
            f"before {blank}{kind}",
        ]

    def n_units(self, begin: int, end: int) -> int:
        return sum(begin <= a < end for a, _ in self.units)

    def _anchors_of(self, i: int) -> Iterator[str]:
        begin, end = self.units[i]
        kind = self._class(i)
        yield kind
        yield f"word: {self._text(begin, end)}"
        for n in range(1, MAX_WORDS_BEFORE + 1):
            if i < n - 1:
                return
            before = f"after the beginning: {self._text(0, begin)}" if i == n - 1 else ""
            text = before or f"after: {self._text(self.units[i - n][0], begin)}"
            yield f"unit {text}"
            yield f"{kind} {text}"

    def _class(self, i: int) -> str:
        begin, end = self.units[i]
        return _class_of(self.data[begin:end])

    def _text(self, begin: int, end: int) -> str:
        return self.data[begin:end].decode(errors="replace")


def frame_of(prompts: Sequence[Sequence[int]]) -> Frame:
    """Return what stands in all prompts right before the input and right behind it, at most FRAME tokens each.

    >>> frame_of([(1, 2, 5, 9), (1, 2, 6, 7, 9)])
    ((1, 2), (9,))
    """
    different = sorted({tuple(prompt) for prompt in prompts})
    if len(different) < 2:
        return (), ()
    shortest = min(map(len, different))
    head = _n_common(different[0], different[-1])  # of sorted rows the first and the last differ first
    reversed_rows = sorted(row[::-1] for row in different)
    tail = min(_n_common(reversed_rows[0], reversed_rows[-1]), shortest - head)
    return different[0][max(0, head - FRAME) : head], different[0][len(different[0]) - tail :][:FRAME]


def input_in(prompt: Sequence[int], frame: Frame) -> Sequence[int] | None:
    """The input's tokens: behind the last place of the frame's beginning, up to its end. None where it is not there."""
    before, after = frame
    row = tuple(prompt)
    begin = len(row) if before else 0
    while before and row[begin - len(before) : begin] != before:
        begin -= 1
        if begin < len(before):
            return None
    end = begin if after else len(row)
    while end < len(row) and row[end : end + len(after)] != after:
        end += 1
    return row[begin:end]


def _n_common(a: Sequence[int], b: Sequence[int]) -> int:
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _class_of(unit: bytes) -> str:
    if unit.isdigit():
        return "N"
    if any(0x30 <= byte <= 0x39 for byte in unit):
        return "M"
    if 0x41 <= unit[0] <= 0x5A:
        return "U"
    return "L" if _is_word(unit[0]) else "P"


def _is_word(byte: int) -> bool:
    return byte >= 0x80 or byte == 0x5F or 0x30 <= byte <= 0x39 or 0x41 <= byte <= 0x5A or 0x61 <= byte <= 0x7A
