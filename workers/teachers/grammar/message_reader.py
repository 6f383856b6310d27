"""Read a text with a grammar: which slice it is of and what its fields' rules wrote, with exact probabilities. Slices
are equally likely beforehand.

A text that the grammar did not write is read by what its words look like: the fields by their patterns and by the texts
that their rules can write, the slice by a word model. That part errs, and is given as a distribution that says so.
"""

import functools
import itertools
import math
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from workers.teachers.grammar.labels import SAMPLE_SEED, WordModel, apply_temperature, count_words, stems_of
from workers.teachers.grammar.pcfg import Grammar, Part, Ref

SAMPLES_PER_SLICE = 300
MAX_READ_CHARS = 4_000
MAX_KNOWN_TEXTS = 3_000  # of one rule; a rule that can write more is known by its patterns alone
Captures = tuple[tuple[str, str], ...]  # (field, text), by field; of a field written twice the first counts
Ends = dict[int, dict[Captures, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """`sure` where the grammar itself could have written the text."""

    slice_name: str
    captures: Captures
    sure: bool = field(default=True, compare=False)


class Reader:
    """Immutable but for caches; safe to share between threads."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self._slices = {name: s for name, s in grammar.slices.items() if s.values}
        self._field_of = {rule: name for name, f in grammar.fields.items() for rule in f.rules}

    @property
    def can_read(self) -> bool:
        return bool(self._slices)

    def readings(self, text: str) -> dict[Reading, float]:
        """{reading: probability}, summing to one; exact inside the language."""
        exact = self._exact(text[:MAX_READ_CHARS])
        return exact or self._guess(text[:MAX_READ_CHARS])

    def _exact(self, text: str) -> dict[Reading, float]:
        if "\n" in text:
            return {}
        masses: dict[Reading, float] = {}
        chart = _Chart(self._grammar, text, self._field_of)
        for name, slice_ in self._slices.items():
            for captures, mass in chart.at(slice_.start, 0).get(len(text), {}).items():
                masses[Reading(slice_name=name, captures=captures)] = mass
        total = math.fsum(masses.values())
        return {reading: mass / total for reading, mass in masses.items()} if total > 0 else {}

    def _guess(self, text: str) -> dict[Reading, float]:
        captures = tuple(
            (name, value) for name in sorted(self._grammar.fields) if (value := self._find(name, text)) is not None
        )
        stems = stems_of(text)[:400]
        known = {stem for model in self._models.values() for stem in model.unigrams}
        scores = {name: model.logprob(stems, len(known)) for name, model in self._models.items()}
        return {
            Reading(slice_name=name, captures=captures, sure=False): math.exp(p)
            for name, p in apply_temperature(scores, 1.0).items()
            if p > -20
        }

    def _find(self, name: str, text: str) -> str | None:
        """The longest text that a rule of the field can write, else the first that looks like one."""
        lower = text.casefold()
        words = [word for word in self._known_texts[name] if word.casefold() in lower]
        spans = [m[0] for word in words if (m := re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE))]
        if spans:
            return max(spans, key=len)
        patterns = self._grammar.fields[name].find
        return next((m[0] for pattern in patterns if (m := re.search(pattern, text, re.IGNORECASE))), None)

    @functools.cached_property
    def _known_texts(self) -> Mapping[str, frozenset[str]]:
        return {
            name: frozenset(text for rule in f.rules for text in _language(self._grammar, rule))
            for name, f in self._grammar.fields.items()
        }

    @functools.cached_property
    def _models(self) -> Mapping[str, WordModel]:
        """The word model of each slice, estimated from samples of its messages."""
        models = {}
        for name, slice_ in self._slices.items():
            rng = random.Random(f"{SAMPLE_SEED}|{name}")
            texts = [self._grammar.sample(slice_.start, temperature=1.0, rng=rng) for _ in range(SAMPLES_PER_SLICE)]
            models[name] = count_words(texts, name.replace("_", " "))
        return models


class _Chart:
    """The ends of each symbol from each position: {end: {what was captured on the way: probability}}."""

    def __init__(self, grammar: Grammar, text: str, field_of: Mapping[str, str]) -> None:
        self._rules = grammar.rules
        self._weights = grammar.log_weights(1.0)
        self._text = text
        self._field_of = field_of
        self._memo: dict[tuple[str, int], Ends] = {}

    def at(self, name: str, start: int) -> Ends:
        known = self._memo.get((name, start))
        if known is not None:
            return known
        ends: Ends = {}
        for alternative, weight in zip(self._rules[name], self._weights[name], strict=True):
            alive: Ends = {start: {(): math.exp(weight)}}
            for part in alternative.parts:
                alive = self._step(part, alive)
                if not alive:
                    break
            _add_all(ends, alive)
        captured = self._field_of.get(name.partition("|")[0])
        if captured is not None:
            ends = {
                end: {((captured, self._text[start:end]),): math.fsum(masses.values())} for end, masses in ends.items()
            }
        self._memo[(name, start)] = ends
        return ends

    def _step(self, part: Part, alive: Ends) -> Ends:
        after: Ends = {}
        for at, before in alive.items():
            if isinstance(part, Ref):
                for end, inside in self.at(part.name, at).items():
                    for (mine, p), (more, q) in itertools.product(before.items(), inside.items()):
                        _add(after.setdefault(end, {}), _merge_captures(mine, more), p * q)
            elif self._text.startswith(part, at):
                _add_all(after, {at + len(part): before})
        return after


def _merge_captures(mine: Captures, more: Captures) -> Captures:
    return tuple(sorted({**dict(more), **dict(mine)}.items())) if more else mine


def _add(into: dict[Captures, float], key: Captures, mass: float) -> None:
    into[key] = into.get(key, 0.0) + mass


def _add_all(into: Ends, more: Ends) -> None:
    for end, masses in more.items():
        for captures, mass in masses.items():
            _add(into.setdefault(end, {}), captures, mass)


def _language(grammar: Grammar, rule: str) -> list[str]:
    texts = [text for text, _ in itertools.islice(grammar.language(rule), MAX_KNOWN_TEXTS + 1)]
    return texts if len(texts) <= MAX_KNOWN_TEXTS else []
