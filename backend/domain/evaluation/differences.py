"""The fields in which a json answer differs from gold, with the values that differ, and the fields whose values are a
closed set.

Fields are those of `json_values`: the elements of a list share one path, so what differs in a list is what is left over
on either side once equal values are matched.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from backend.domain.answers.json_schemas import normal_schema
from backend.domain.answers.json_values import Leaf, field_token, fields_of

WHOLE = "/"  # the field of an answer that is one value, and of what differs in no field
Value = str | float | bool  # whole numbers too; None is a value that is absent
Pair = tuple[Value | None, Value | None]  # gold's value, and the one that was answered in its place


class DifferenceKind(StrEnum):
    """`order`: the fields are equal and the answers are not, as with a list in another order."""

    MISSING = "missing"
    EXTRA = "extra"
    OTHER_VALUE = "other_value"
    ORDER = "order"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The values of one field that gold has and the answer has not, and those that the answer has and gold has not."""

    field: str
    kind: DifferenceKind
    gold: tuple[Value, ...] = ()
    predicted: tuple[Value, ...] = ()

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The value of gold beside the one in its place, where one is left over on each side; else each value beside
        its absence, since which of several stands for which would have to be guessed."""
        if len(self.gold) == len(self.predicted) == 1:
            return ((self.gold[0], self.predicted[0]),)
        return (*((value, None) for value in self.gold), *((None, value) for value in self.predicted))


def differences_between(predicted: Any, gold: Any) -> tuple[Difference, ...]:
    """The fields that differ, by name. None stands for no answer: every field is missing.

    >>> [(one.field, one.kind.value, one.pairs) for one in differences_between({"a": 1}, {"a": 2, "b": "x"})]
    [('/a', 'other_value', ((2, 1),)), ('/b', 'missing', (('x', None),))]
    """
    theirs, ours = fields_of(predicted), fields_of(gold)
    differing = []
    for path in sorted(theirs.keys() | ours.keys()):
        here, there = ours.get(path), theirs.get(path)
        if here == there:
            continue
        left = _values(here - there if here and there else here)
        over = _values(there - here if here and there else there)
        kind = DifferenceKind.OTHER_VALUE if left and over else DifferenceKind.MISSING if left else DifferenceKind.EXTRA
        differing.append(Difference(field=path or WHOLE, kind=kind, gold=left, predicted=over))
    return tuple(differing)


def _values(leaves: Counter[Leaf] | None) -> tuple[Any, ...]:
    """The values of some leaves of one field, in an order that does not depend on the answer's."""
    values = [leaf[2] for leaf in (leaves or Counter()).elements()]
    return tuple(sorted(values, key=value_text) if len(values) > 1 else values)


def value_text(value: Value | None) -> str:
    """The JSON text of a value; `null` of an absent one. Numbers that are equal have one text.

    >>> value_text(2.0), value_text("2"), value_text(True), value_text(None)
    ('2', '"2"', 'true', 'null')
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, ensure_ascii=False)


def read_value(text: str) -> Value | None:
    """The value that a person typed: JSON, and a text where it is no JSON of one value.

    >>> read_value("true"), read_value('"true"'), read_value("refund"), read_value("null")
    (True, 'true', 'refund', None)
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, dict | list) else value


def closed_fields(schema: Mapping[str, Any]) -> frozenset[str]:
    """The fields that the schema lets have a few values only: those with an enum, a const, or a yes or no."""
    return frozenset(path or WHOLE for path in _closed_paths("", normal_schema(schema)))


def _closed_paths(path: str, part: Any) -> Iterator[str]:
    if not isinstance(part, Mapping):
        return
    if "enum" in part or "const" in part or part.get("type") == "boolean":
        yield path
    for name, inside in part.get("properties", {}).items():
        yield from _closed_paths(f"{path}/{field_token(name)}", inside)
    for inside in [part.get("items"), *part.get("prefixItems", ())]:
        yield from _closed_paths(f"{path}/*", inside)
    for inside in [*part.get("anyOf", ()), *part.get("oneOf", ())]:
        yield from _closed_paths(path, inside)
