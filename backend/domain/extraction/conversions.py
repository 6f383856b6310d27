"""The choice of a leaf's converters: those that reproduce most of its values, the plainest first."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from backend.domain.extraction.alignment import places_of
from backend.domain.extraction.converters import (
    DATES,
    NUMBER_CONVERTERS,
    TEXT_CONVERTERS,
    TIMES,
    Conversion,
    Converter,
)
from backend.domain.extraction.occurrences import Document
from backend.domain.extraction.plan import LeafRule, Way
from backend.domain.extraction.schema_leaves import Leaf

MOST_TRIED = 400  # values on which converters are compared
SEPARATORS = (", ", "; ", "\n", " / ", " and ", " ")
LEAST_GAIN = 2  # values, and a hundredth of all, that a further converter must reproduce

Values = Sequence[tuple[Document, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """`missed` are the values without a place, `n_right` the number of the others."""

    conversions: tuple[Conversion, ...]
    separator: str | None
    missed: tuple[tuple[Document, Any], ...]
    n_right: int


def conversions_for(leaf: Leaf, values: Values) -> Choice:
    """Choose on at most MOST_TRIED of the values, spread evenly; count on all."""
    tried = [values[i * len(values) // MOST_TRIED] for i in range(MOST_TRIED)] if len(values) > MOST_TRIED else values
    best: tuple[Conversion, ...] = (Conversion(converter=Converter.AS_IS),)
    most = -1
    for one in _candidates(leaf, tried):
        n = _n_right((one,), None, tried)
        if n > most:
            best, most = (one,), n
        if n == len(tried):
            break
    if most < len(tried):
        best, most = _with_another(best, most, leaf, tried)
    separator = _separator(best, most, tried)
    missed = tuple(item for item in values if not _has_place(best, separator, *item))
    return Choice(conversions=best, separator=separator, missed=missed, n_right=len(values) - len(missed))


def _candidates(leaf: Leaf, tried: Values) -> list[Conversion]:
    if all(isinstance(value, int | float) and not isinstance(value, bool) for _, value in tried):
        return [Conversion(converter=one) for one in NUMBER_CONVERTERS]
    if leaf.choices is not None:
        choices = tuple(one for one in leaf.choices if isinstance(one, str))
        return [Conversion(converter=Converter.CHOICE, choices=choices)]
    year = _commonest_year(tried)
    plain = [Conversion(converter=one) for one in TEXT_CONVERTERS]
    return plain + ([Conversion(converter=one, year=year) for one in sorted(DATES)] if year else [])


def _with_another(
    best: tuple[Conversion, ...], most: int, leaf: Leaf, tried: Values
) -> tuple[tuple[Conversion, ...], int]:
    """Put a converter that reads few texts before the best, or the best after it, where that reproduces more."""
    partial = DATES | TIMES | {Converter.CHOICE} | set(NUMBER_CONVERTERS)
    chosen = best
    for one in _candidates(leaf, tried):
        for both in ((one, *best), (*best, one)):
            if both[0].converter not in partial or one == best[0]:
                continue
            n = _n_right(both, None, tried)
            if n >= most + max(LEAST_GAIN, len(tried) // 100):
                chosen, most = both, n
    return chosen, most


def _separator(conversions: tuple[Conversion, ...], most: int, tried: Values) -> str | None:
    chosen = None
    for separator in SEPARATORS:
        n = _n_right(conversions, separator, tried)
        if n >= most + max(LEAST_GAIN, len(tried) // 100):
            chosen, most = separator, n
    return chosen


def _commonest_year(tried: Values) -> int:
    """The year that most of what looks like a date has; 0 where nothing does."""
    years = Counter(int(value[:4]) for _, value in tried if _is_date(value))
    return years.most_common(1)[0][0] if years else 0


def _is_date(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 10 and value[4] == value[7] == "-" and value[:4].isdecimal()


def _n_right(conversions: tuple[Conversion, ...], separator: str | None, values: Values) -> int:
    return sum(_has_place(conversions, separator, document, value) for document, value in values)


def _has_place(conversions: tuple[Conversion, ...], separator: str | None, document: Document, value: Any) -> bool:
    rule = LeafRule(path="", way=Way.COPIED, conversions=conversions, separator=separator)
    return bool(places_of(document, rule, value))
