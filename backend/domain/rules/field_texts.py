"""A json task's pairs as rules are induced from them: each text's words, each field's value as JSON spells it, and
where in the text it stands.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from backend.domain.answers.json_schemas import normal_schema
from backend.domain.answers.json_values import BadAnswer, parse_answer
from backend.domain.rules.extraction import serialise
from backend.domain.rules.places import Place, TextPlaces
from backend.domain.rules.reading import MAX_ANSWER_CHARS, MAX_DEPTH, MAX_FIELDS

ABSENT = ""  # no value of JSON is spelt so
OTHER = "?"  # a list, an object or a number with a fraction: no rule gives it
MIN_OUTSIDE = 4  # texts in which a known word stands outside of what is copied
Path = tuple[str, ...]


def leaf_paths(schema: Mapping[str, Any]) -> dict[Path, bool]:
    """The fields of an answer in the order of its spelling, and whether each is one of a closed list (an enum is
    decided, not copied); none where the rules' format has no place for them."""
    paths: dict[Path, bool] = {}

    def walk(part: Any, path: Path) -> None:
        fields = part.get("properties") if isinstance(part, dict) else None
        if fields:
            for name, field in fields.items():
                walk(field, (*path, name))
        else:
            paths[path] = isinstance(part, dict) and bool({"enum", "const"} & part.keys())

    walk(normal_schema(schema), ())
    fits = all(0 < len(path) <= MAX_DEPTH and all(len(step) <= MAX_ANSWER_CHARS for step in path) for path in paths)
    return paths if fits and len(paths) <= MAX_FIELDS else {}


def leaf(value: Any, path: Path) -> str:
    for step in path:
        if not isinstance(value, dict) or step not in value:
            return ABSENT
        value = value[step]
    if isinstance(value, str) and len(value) > MAX_ANSWER_CHARS:
        return OTHER
    return serialise(value) if value is None or isinstance(value, str | int | bool) else OTHER


class FieldTexts:
    """`leaves[field][text]`: spelt, ABSENT or OTHER. `spots[field][text]`: the words that say a copied value, where
    they stand in the text once."""

    def __init__(self, pairs: Sequence[tuple[str, str]], paths: Mapping[Path, bool]) -> None:
        read = [(text, value) for text, answer in pairs if (value := _value(answer)) is not None]
        self.texts = [text for text, _ in read]
        self.values = [value for _, value in read]
        self.places = [TextPlaces(text) for text in self.texts]
        self.leaves = [[leaf(value, path) for value in self.values] for path in paths]
        self.spots = [
            [None if is_closed else _spot(places, literal) for places, literal in zip(self.places, column, strict=True)]
            for column, is_closed in zip(self.leaves, paths.values(), strict=True)
        ]
        self.known = self._find_known()

    @property
    def n(self) -> int:
        return len(self.texts)

    def _find_known(self) -> frozenset[bytes]:
        """The words that mostly stand outside of what is copied."""
        inside: Counter[bytes] = Counter()
        outside: Counter[bytes] = Counter()
        for at, places in enumerate(self.places):
            copied = self._copied_words(at)
            for number, word in enumerate(places.words):
                (inside if number in copied else outside)[word] += 1
        return frozenset(
            w for w, count in outside.items() if count >= MIN_OUTSIDE and count > inside[w] and len(w) < 100
        )

    def _copied_words(self, at: int, but: int = -1) -> set[int]:
        spots = [spots[at] for field, spots in enumerate(self.spots) if field != but]
        return {number for spot in spots if spot is not None for number in range(*spot)}

    def is_known(self, at: int, field: int) -> bool:
        """Return whether every word that no field but this one copies is known."""
        copied = self._copied_words(at, but=field)
        return all(word in self.known or number in copied for number, word in enumerate(self.places[at].words))


def _value(answer: str) -> Any:
    try:
        return parse_answer(answer)
    except BadAnswer:
        return None


def _spot(places: TextPlaces, literal: str) -> Place | None:
    if literal in (ABSENT, OTHER, "null", "true", "false"):
        return None
    words = TextPlaces(literal[1:-1] if literal[0] == '"' else literal).words
    ends = places.ends_of(words) if words else []
    return (ends[0] - len(words), ends[0]) if len(ends) == 1 else None
