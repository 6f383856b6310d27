"""The places in an input that a value may have come from.

A value's place is looked for by what two spellings of it have in common, its folded letters and digits, then each
place is converted and kept where that gives the value. Offsets are code points of the input as it was sent, whatever
normalisation did to the length of its text.
"""

import unicodedata
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

from backend.domain.answers.json_values import compared_texts
from backend.domain.extraction.converters import DATES, NUMBER_CONVERTERS, TIMES, Conversion, Converter, fold
from backend.domain.extraction.dates import date_spans, time_spans
from backend.domain.extraction.numbers import number_spans
from backend.domain.extraction.word_boundaries import is_boundary
from backend.domain.unicode_forms import unicode_form

Span = tuple[int, int]
MOST_PLACES = 64  # of one value in one input
_MARGIN = 4  # characters of punctuation that may belong to a value at each of its ends


class Document:
    """An input, with what is looked up in it more than once."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def folded(self) -> tuple[str, list[int], list[int]]:
        """The folded letters and digits, and of each the start and end of what it comes from."""
        chars: list[str] = []
        starts: list[int] = []
        ends: list[int] = []
        for start, end in self._clusters():
            bare = fold(unicode_form("NFC", self.text[start:end]))
            chars.append(bare)
            starts += [start] * len(bare)
            ends += [end] * len(bare)
        return "".join(chars), starts, ends

    def _clusters(self) -> Iterable[Span]:
        """A letter with the marks that stand on it."""
        start = 0
        for at in range(1, len(self.text) + 1):
            if at == len(self.text) or not unicodedata.combining(self.text[at]):
                yield start, at
                start = at

    @cached_property
    def numbers(self) -> list[Span]:
        return list(dict.fromkeys(number_spans(self.text)))

    @cached_property
    def dates(self) -> list[Span]:
        return list(dict.fromkeys(date_spans(self.text)))

    @cached_property
    def times(self) -> list[Span]:
        return list(dict.fromkeys(time_spans(self.text)))

    def is_boundary(self, at: int) -> bool:
        return is_boundary(self.text, at)


def occurrences(document: Document, conversion: Conversion, value: Any) -> list[Span]:
    """The places whose conversion is `value`, in their order; whole words before parts of words.

    >>> occurrences(Document("Boston to boston, ma"), Conversion(converter=Converter.UPPER), "BOSTON")
    [(0, 6), (10, 16)]
    """
    wanted = compared_texts(value)
    places = _candidates(document, conversion, value)
    right = [(start, end) for start, end in places if is_same(conversion(document.text[start:end]), wanted)]
    right = list(dict.fromkeys(right))[:MOST_PLACES]
    whole = [(start, end) for start, end in right if document.is_boundary(start) and document.is_boundary(end)]
    return _outermost(whole or right)


def is_same(value: Any, wanted: Any) -> bool:
    """Say whether a converted value is one that was wanted (`compared_texts`), a number by its value."""
    if value is None or isinstance(value, bool) != isinstance(wanted, bool):
        return False
    return bool(compared_texts(value) == wanted)


def _candidates(document: Document, conversion: Conversion, value: Any) -> Iterable[Span]:
    if conversion.converter in NUMBER_CONVERTERS:
        return document.numbers
    if conversion.converter in DATES:
        return document.dates
    if conversion.converter in TIMES:
        return document.times
    if not isinstance(value, str):
        return []
    keep: Callable[[str], bool] = str.isdecimal if conversion.converter is Converter.DIGITS else str.isalnum
    return _alike(document, value, keep)


def _alike(document: Document, value: str, keep: Callable[[str], bool]) -> Iterable[Span]:
    """The places whose letters and digits, or digits alone, are those of the value, with the punctuation that it may
    have at its ends."""
    bare = "".join(filter(keep, fold(unicode_form("NFC", value))))
    if not bare:  # of punctuation alone
        at = document.text.find(value) if value else -1
        while at >= 0:
            yield at, at + len(value)
            at = document.text.find(value, at + 1)
        return
    folded, starts, ends = document.folded
    if keep is str.isdecimal:
        kept = [i for i, char in enumerate(folded) if char.isdecimal()]
        folded, starts, ends = "".join(folded[i] for i in kept), [starts[i] for i in kept], [ends[i] for i in kept]
    before, after = _edges(value)
    at, n = folded.find(bare), 0
    while at >= 0 and n < MOST_PLACES:
        start, end = starts[at], ends[at + len(bare) - 1]
        yield start, end
        if before or after:
            for wide in range(_MARGIN):
                yield max(0, start - before), min(len(document.text), end + after + wide)
        at, n = folded.find(bare, at + 1), n + 1


def _edges(value: str) -> tuple[int, int]:
    """Count the characters before the first and after the last letter or digit."""
    places = [i for i, char in enumerate(value) if char.isalnum()]
    return places[0], len(value) - 1 - places[-1]


def _outermost(places: list[Span]) -> list[Span]:
    """The places that lie in no other, in order."""
    kept: list[Span] = []
    for start, end in sorted(places, key=lambda span: (span[0], -span[1])):
        if not kept or end > kept[-1][1]:
            kept.append((start, end))
    return kept
