"""Texts of a fixed form: the sentences that a text task's answers are, with places for what is copied from the input.

"Wants to return the lamp of order 40213." is the form "Wants to return the {} of order {}." with two values. A span
student reads which kind of sentence it is and the values, as those of a json task; the sentence is then the form of
that kind that has a place for each value. Learned from pairs by `sentence_learning`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from backend.domain.extraction.numbers import number_spans, read_number
from backend.domain.extraction.word_boundaries import is_boundary

KIND = "kind"
_PART = "part_"
_MOST_DIGITS = 3  # of a count: a longer number is a name of something, as that of an order


class Source:
    """An input, and what of a text stands in it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._folded = fold_spaces(text)

    def has(self, value: str) -> bool:
        """Say whether the value stands there as it is, or of a count, as a word or figure."""
        return self.has_words(value) or (is_count(value) and int(value) in self._numbers)

    def has_words(self, value: str) -> bool:
        """Say whether the value stands there as it is, and not within longer words."""
        wanted = fold_spaces(value)
        at = self._folded.find(wanted)
        while wanted and at >= 0:
            if is_boundary(self._folded, at) and is_boundary(self._folded, at + len(wanted)):
                return True
            at = self._folded.find(wanted, at + 1)
        return False

    @cached_property
    def _numbers(self) -> set[int]:
        read = (read_number(self._text[start:end], is_comma=False) for start, end in number_spans(self._text))
        return {int(one) for one in read if one is not None and one == int(one)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """`literals` are the texts around the places, one more than there are `places` (numbers of parts, none twice);
    `kind` is the number of its kind, and `n` of the pairs' texts have it."""

    kind: int
    literals: tuple[str, ...]
    places: tuple[int, ...]
    n: int

    @property
    def text(self) -> str:
        """The form as it is shown: "Asks where order {part_1} is."."""
        named = [f"{{{part_name(place)}}}" for place in self.places]
        return self.literals[0] + "".join(a + b for a, b in zip(named, self.literals[1:], strict=True))

    def values_in(self, text: str) -> list[str] | None:
        """The values at the places of a text of this form, each as short as it can be; None of another text."""
        first, *rest = self.literals
        if not text.startswith(first):
            return None
        if not rest:
            return [] if text == first else None
        values: list[str] = []
        at = len(first)
        for literal in rest[:-1]:
            end = text.find(literal, at + 1)
            if end < 0:
                return None
            values.append(text[at:end])
            at = end + len(literal)
        end = len(text) - len(rest[-1])
        if end <= at or not text.endswith(rest[-1]):
            return None
        return [*values, text[at:end]]

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "literals": list(self.literals), "places": list(self.places), "n": self.n}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        kept = {name: tuple(value[name]) for name in ("literals", "places")}
        form = cls(**dict(value) | kept)
        if len(form.literals) != len(form.places) + 1:
            raise ValueError("no sentences: a form has a text around each of its places")
        return form


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentences:
    """The forms, in the order in which a text is read by them. `counts` are the parts that are whole numbers, in the
    input written as words or figures."""

    forms: tuple[Form, ...]
    counts: frozenset[int] = frozenset()

    @property
    def kinds(self) -> tuple[str, ...]:
        """The names of the kinds: each its commonest form."""
        first: dict[int, str] = {}
        for form in sorted(self.forms, key=lambda one: -one.n):
            first.setdefault(form.kind, form.text)
        return tuple(first[kind] for kind in sorted(first))

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of what is read of an input: the kind of its sentence, and the parts."""
        parts = sorted({place for form in self.forms for place in form.places})
        properties: dict[str, Any] = {KIND: {"enum": list(self.kinds)}}
        properties |= {part_name(part): {"type": "integer" if part in self.counts else "string"} for part in parts}
        return {"type": "object", "properties": properties, "required": [KIND], "additionalProperties": False}

    def read(self, text: str, source: str) -> dict[str, Any] | None:
        """The kind and the parts of a text, whose values stand in its input `source`; None of a text without form."""
        known = Source(source)
        for form in self.forms:
            values = form.values_in(text)
            if values is None or not all(map(known.has, values)):
                continue
            if all(is_count(value) for place, value in zip(form.places, values, strict=True) if place in self.counts):
                return {KIND: self.kinds[form.kind], **dict(self._parts(form, values))}
        return None

    def _parts(self, form: Form, values: Sequence[str]) -> Iterator[tuple[str, str | int]]:
        for place, value in zip(form.places, values, strict=True):
            yield part_name(place), int(value) if place in self.counts else value

    def write(self, answer: Mapping[str, Any]) -> str | None:
        """The sentence of an answer: of the forms of its kind that have values for all places, the one with most, then
        the commonest; of another kind where its own has none, and None where no form is without places."""
        able = [form for form in self.forms if all(part_name(place) in answer for place in form.places)]
        if not able:
            return None
        names = self.kinds
        form = max(able, key=lambda one: (names[one.kind] == answer.get(KIND), len(one.places), one.n))
        values = [str(answer[part_name(place)]) for place in form.places]
        return form.literals[0] + "".join(a + b for a, b in zip(values, form.literals[1:], strict=True))

    def to_json(self) -> dict[str, Any]:
        return {"forms": [form.to_json() for form in self.forms], "counts": sorted(self.counts)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Raises ValueError, TypeError or KeyError for what are no sentences."""
        return cls(forms=tuple(map(Form.from_json, value["forms"])), counts=frozenset(value["counts"]))


def part_name(place: int) -> str:
    return f"{_PART}{place + 1}"


def fold_spaces(text: str) -> str:
    """The text without regard to capitals and runs of white space."""
    return " ".join(text.casefold().split())


def is_count(value: str) -> bool:
    """Say whether it is a whole number that counts things."""
    return value.isascii() and value.isdecimal() and len(value) <= _MOST_DIGITS and str(int(value)) == value
