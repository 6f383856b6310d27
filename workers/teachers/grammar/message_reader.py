"""Read a text with a grammar: which slice it is of and what its fields' rules wrote, with exact probabilities. Slices
are equally likely beforehand.

A text may name two things ("order 12 and the two mugs from 34"): a field that was written below the filter `second` is
captured as `order_2`, one below `both` under both names.

A text that the grammar did not write is read by what its words look like: the fields by their patterns and by the texts
that their rules can write, the slice by a word model. That part errs, and is given as a distribution that says so.
"""

import functools
import itertools
import math
import random
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from workers.teachers.grammar.labels import SAMPLE_SEED, WordModel, apply_temperature, count_words, stems_of
from workers.teachers.grammar.pcfg import Grammar, Part, Ref

SAMPLES_PER_SLICE = 1_000
MAX_READ_CHARS = 4_000
MAX_KNOWN_TEXTS = 30_000  # of one rule; a rule that can write more is known by its patterns alone
COUNTED_WITHIN = 3  # characters from a count to what it counts: "2 x mugs"
SECOND = "_2"
Captures = tuple[tuple[str, str], ...]  # (field, text), by field; of a field written twice the first counts
Ends = dict[int, dict[Captures, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """`sure` where the grammar itself could have written the text."""

    slice_name: str
    captures: Captures
    sure: bool = field(default=True, compare=False)


def entry_of(key: str) -> tuple[str, int]:
    """The field that a capture's key names, and of which thing it is: 0 or 1."""
    return (key.removesuffix(SECOND), 1) if key.endswith(SECOND) else (key, 0)


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
        """Guess what the text says: of each slice only what its own messages can have."""
        captures = self._captures_in(text)
        stems = stems_of(text)[:400]
        known = {stem for model in self._models.values() for stem in model.unigrams}
        scores = {name: model.logprob(stems, len(known)) for name, model in self._models.items()}
        return {
            Reading(
                slice_name=name,
                captures=tuple((key, value) for key, value in captures if entry_of(key)[0] in self._written_in[name]),
                sure=False,
            ): math.exp(p)
            for name, p in apply_temperature(scores, 1.0).items()
            if p > -20
        }

    def _captures_in(self, text: str) -> Captures:
        """The fields by their places in the text, in two things at most; a count belongs to what follows it."""
        captures: dict[str, str] = {}
        places: dict[str, list[re.Match[str]]] = {name: self._places(name, text) for name in self._grammar.fields}
        counts = {name for name, f in self._grammar.fields.items() if f.is_count}
        for name in self._grammar.fields.keys() - counts:
            keys = (name, name + SECOND) if self._has_second(name) else (name,)
            captures |= {key: _value(match) for key, match in zip(keys, places[name], strict=False)}
        for name in counts:
            for match in places[name]:
                thing = self._thing_of(match, places, counts)
                if thing is not None:
                    captures.setdefault(name + SECOND if thing else name, _value(match))
        return tuple(sorted(captures.items()))

    def _thing_of(
        self, count: re.Match[str], places: Mapping[str, list[re.Match[str]]], counts: Collection[str]
    ) -> int | None:
        """The thing that a count stands right before: 0 or 1, None for neither."""
        for name in places.keys() - counts:
            for at, match in enumerate(places[name][:2]):
                if 0 < match.start() - count.end() <= COUNTED_WITHIN:
                    return at
        return None

    def _places(self, name: str, text: str) -> list[re.Match[str]]:
        """Find the texts that a rule of the field can write, else what looks like one: in their order in the text, each
        the longest at its place, none twice."""
        lower = text.casefold()
        words = [word for word in self._known_texts[name] if word.casefold() in lower]
        sources = [rf"(?<!\w){re.escape(word)}(?!\w)" for word in words] or self._grammar.fields[name].find
        matches = [match for source in sources for match in re.finditer(source, text, re.IGNORECASE)]
        apart: list[re.Match[str]] = []
        for match in sorted(matches, key=lambda m: (m.start() - m.end(), m.start())):
            if all(match.end() <= other.start() or other.end() <= match.start() for other in apart):
                apart.append(match)
        unlike = {_value(match).casefold(): match for match in sorted(apart, key=lambda m: -m.start())}
        return sorted(unlike.values(), key=lambda m: m.start())

    def _has_second(self, name: str) -> bool:
        return any(name + SECOND in keys for keys in self._keys_of.values())

    @functools.cached_property
    def _written_in(self) -> Mapping[str, frozenset[str]]:
        """{slice: the fields that its messages can have}."""
        return {name: frozenset(entry_of(key)[0] for key in keys) for name, keys in self._keys_of.items()}

    @functools.cached_property
    def _keys_of(self) -> Mapping[str, frozenset[str]]:
        return {name: self._keys_below(slice_.start) for name, slice_ in self._slices.items()}

    def _keys_below(self, start: str) -> frozenset[str]:
        """The keys of all that can be captured in the texts of a rule."""
        keys: set[str] = set()
        seen, todo = {start}, [start]
        while todo:
            name = todo.pop()
            keys.update(_keys(name, self._field_of))
            below = {p.name for row in self._grammar.rules[name] for p in row.parts if isinstance(p, Ref)} - seen
            seen |= below
            todo += below
        return frozenset(keys)

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
        self._grammar = grammar
        self._weights = grammar.log_weights(1.0)
        self._text = text
        self._field_of = field_of
        self._memo: dict[tuple[str, int], Ends] = {}

    def at(self, name: str, start: int) -> Ends:
        known = self._memo.get((name, start))
        if known is not None:
            return known
        ends: Ends = {}
        rows, weights = self._grammar.rules[name], self._weights[name]
        for i in self._grammar.openers(name, self._text[start : start + 1]):
            alive: Ends = {start: {(): math.exp(weights[i])}}
            for part in rows[i].parts:
                alive = self._step(part, alive)
                if not alive:
                    break
            _add_all(ends, alive)
        keys = _keys(name, self._field_of)
        if keys:
            ends = {
                end: {tuple((key, self._text[start:end]) for key in keys): math.fsum(masses.values())}
                for end, masses in ends.items()
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


def _keys(rule: str, field_of: Mapping[str, str]) -> tuple[str, ...]:
    """The names under which the text of a rule is captured; none where it is no field's."""
    base, *filters = rule.split("|")
    name = field_of.get(base)
    if name is None:
        return ()
    if "both" in filters:
        return name, name + SECOND
    return (name + SECOND if "second" in filters else name,)


def _value(match: re.Match[str]) -> str:
    """The first group of a pattern that has one, else all that it matched."""
    return match[1] if match.re.groups else match[0]


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
