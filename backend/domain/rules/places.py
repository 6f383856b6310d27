"""The place in a text at which a rule's copy stands, and the text there."""

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

from backend.domain.rules.rule_list import Copy
from backend.domain.rules.text_patterns import spans_of
from backend.domain.rules.wording import Span, placed_words

MAX_BETWEEN = 12  # words between two phrases
MAX_DIGITS = 15
_UNFIT = re.compile("[\0\ud800-\udfff]")  # no answer may hold them

Place = tuple[int, int]  # words, the second one past the end
Read = tuple[str, Place, Span]  # a value as JSON spells it, the words that say it, and the code points


class TextPlaces:
    """A text with its words and where they stand; pattern matches are found once."""

    __slots__ = ("_ends", "_spans", "_starts", "spans", "text", "words")

    def __init__(self, text: str) -> None:
        self.text = text
        self.words, self.spans = placed_words(text)
        self._starts = [start for start, _ in self.spans]
        self._ends = [end for _, end in self.spans]
        self._spans: dict[str, list[Span]] = {}

    def spans_of(self, pattern: str) -> list[Span]:
        if pattern not in self._spans:
            self._spans[pattern] = spans_of(pattern, self.text)
        return self._spans[pattern]

    def words_in(self, span: Span) -> Place:
        """The words that the span touches."""
        first = bisect_right(self._ends, span[0])
        return first, max(first, bisect_left(self._starts, span[1]))

    def span_of(self, place: Place) -> Span:
        return self.spans[place[0]][0], self.spans[place[1] - 1][1]

    def says(self, at: int, phrase: Sequence[bytes]) -> bool:
        return at >= 0 and self.words[at : at + len(phrase)] == phrase

    def ends_of(self, phrase: Sequence[bytes]) -> list[int]:
        """Point behind each occurrence of a phrase."""
        last = len(self.words) - len(phrase) + 1
        return [at + len(phrase) for at in range(last) if self.says(at, phrase)]


Reader = Callable[[TextPlaces, list[Place]], Read | None]


def reader_of(copy: Copy, vocabularies: Sequence[Sequence[str]]) -> Reader:
    """Return what gives the copied value where there is just one place for it that no earlier field took."""
    if copy.between is not None:
        return _between(*copy.between)
    matches = _of_pattern(copy.pattern) if copy.pattern else _of_vocabulary(vocabularies[copy.vocabulary])
    after = copy.after.encode().split()

    def read(text: TextPlaces, taken: list[Place]) -> Read | None:
        free = [
            (span, place)
            for span, place in matches(text)
            if text.says(place[0] - len(after), after) and not _overlaps(place, taken)
        ]
        if len(free) != 1:
            return None
        (start, end), place = free[0]
        value = (_number if copy.as_number else quote)(text.text[start:end])
        return None if value is None else (value, place, (start, end))

    return read


def _overlaps(place: Place, taken: list[Place]) -> bool:
    return any(place[0] < end and first < place[1] for first, end in taken)


def quote(text: str) -> str | None:
    """The text as JSON spells it; None for what no answer may hold."""
    return None if _UNFIT.search(text) else json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _number(digits: str) -> str | None:
    whole, _, rest = digits.partition(".")
    whole, rest = whole.lstrip("0") or "0", rest.rstrip("0")
    if len(whole) + len(rest) > MAX_DIGITS:
        return None
    return f"{whole}.{rest}" if rest else whole


Matches = Callable[[TextPlaces], list[tuple[Span, Place]]]


def _of_pattern(name: str) -> Matches:
    return lambda text: [(span, text.words_in(span)) for span in text.spans_of(name)]


def _of_vocabulary(phrases: Sequence[str]) -> Matches:
    """The longest phrases from left to right, none inside another."""
    known = {tuple(phrase.encode().split()) for phrase in phrases}
    lengths: dict[bytes, list[int]] = {}
    for length, first in sorted({(len(words), words[0]) for words in known}, reverse=True):
        lengths.setdefault(first, []).append(length)

    def matches(text: TextPlaces) -> list[tuple[Span, Place]]:
        places, at, words = [], 0, text.words
        while at < len(words):
            tried = lengths.get(words[at], ())
            longest = next((n for n in tried if at + n <= len(words) and tuple(words[at : at + n]) in known), 0)
            if longest:
                places.append((at, at + longest))
            at += longest or 1
        return [(text.span_of(place), place) for place in places]

    return matches


def _between(before: str, behind: str) -> Reader:
    opening, closing = before.encode().split(), behind.encode().split()

    def end_of(text: TextPlaces, first: int) -> int:
        """0 where there is none."""
        length = len(text.words)
        if behind == "$":
            return length if length - first <= MAX_BETWEEN else 0
        last = min(length, first + MAX_BETWEEN + 1)
        return next((at for at in range(first + 1, last) if text.says(at, closing)), 0)

    def read(text: TextPlaces, taken: list[Place]) -> Read | None:
        starts = [0] if before == "^" else text.ends_of(opening)
        if len(starts) != 1:
            return None
        place = starts[0], end_of(text, starts[0])
        if place[1] <= place[0] or _overlaps(place, taken):
            return None
        start, stop = text.span_of(place)
        value = quote(text.text[start:stop])
        return None if value is None else (value, place, (start, stop))

    return read
