"""The features that rules can be made of: the conditions that hold for a text, and the texts for which each holds."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from backend.domain.rules.text_patterns import COMPILED
from backend.domain.rules.wording import words_of

Ints = NDArray[np.int64]
MAX_WORDS = 400  # of a text; what stands later makes no rule
MAX_PHRASE = 3
MAX_PAIRED = 24  # of a text's words, those in fewest texts are paired with one another
MAX_CHARS = 100  # of a phrase
_HALF = re.compile("[\ud800-\udfff]")  # half of a surrogate pair: no document can hold it
SEPARATOR = " & "  # of two conditions; no word holds it


def conditions_of(text: str) -> set[str]:
    """Phrases of one to three words, with `^`, `$` and `#`, and the patterns found."""
    words = words_of(text)[:MAX_WORDS]
    phrases = _phrases(["^", *words, "$"])
    if any(word.isdigit() and word.isascii() for word in words):
        phrases |= _phrases(["^", *("#" if w.isdigit() and w.isascii() else w for w in words), "$"])
    return phrases | {f"<{name}>" for name, pattern in COMPILED.items() if pattern.search(text)}


def _phrases(words: Sequence[str]) -> set[str]:
    phrases = {
        " ".join(words[at : at + length])
        for length in range(1, MAX_PHRASE + 1)
        for at in range(len(words) - length + 1)
        if length > 1 or words[at] not in "^$"
    }
    phrases.discard("^ $")
    return {phrase for phrase in phrases if len(phrase) <= MAX_CHARS and not _HALF.search(phrase)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Conditions (one, or two that must both hold) and the texts (ascending) for which they hold."""

    conditions: tuple[str, ...]
    rows: Ints


def held_conditions(texts: Sequence[str], *, min_support: int) -> list[Held]:
    """The conditions that hold for at least `min_support` texts, in a fixed order. Of conditions that hold for the very
    same texts the shortest stays."""
    held = [conditions_of(text) for text in texts]
    singles = _rows(held, min_support)
    rows = singles | _rows(_pairs(held, singles), min_support)
    unique: dict[bytes, str] = {}
    for name in sorted(rows, key=lambda name: (name.count(SEPARATOR), name.count(" "), len(name), name)):
        unique.setdefault(rows[name].tobytes(), name)
    return [Held(conditions=tuple(name.split(SEPARATOR)), rows=rows[name]) for name in unique.values()]


def _rows(held: Sequence[Iterable[str]], min_support: int) -> dict[str, Ints]:
    by_name: dict[str, list[int]] = {}
    for at, names in enumerate(held):
        for name in names:
            by_name.setdefault(name, []).append(at)
    return {name: np.array(rows) for name, rows in by_name.items() if len(rows) >= min_support}


def _pairs(held: Sequence[set[str]], singles: dict[str, Ints]) -> list[list[str]]:
    """The pairs of words (or of a word and a pattern) of each text."""
    paired = []
    for names in held:
        words = [name for name in names if name in singles and " " not in name]
        words.sort(key=lambda name: (len(singles[name]), name))
        paired.append([SEPARATOR.join(sorted(pair)) for pair in combinations(words[:MAX_PAIRED], 2)])
    return paired
