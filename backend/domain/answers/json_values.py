"""Answers that are JSON values: read from a text that a stranger wrote, spelt in the one way that models are taught,
and compared field by field.

A field is a path with a leaf. The elements of a list share one path (`/items/*/sku`), so a list is a multiset: its
order does not count, and which leaves stood in one element does not either (an alignment of elements would have to be
guessed where two are alike; `is_exact` looks at both). Null, an absent field, `[]` and `{}` are the same: no field.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeVar

from backend.domain.answers.json_schemas import normal_schema, validator
from backend.domain.unicode_forms import unicode_form

PPM = 1_000_000
MAX_CHARS = 20_000
MAX_VALUES = 2_000
MAX_DEPTH = 16
MAX_INTEGER = 2**53 - 1  # what every reader of JSON keeps exactly
_FENCE = re.compile(r"\s*```[A-Za-z]{0,10}[ \t]*\r?\n(.{0,20000}?)\r?\n?```\s*", re.DOTALL)

Leaf = tuple[str, str, object]  # path, kind, value


class BadAnswer(ValueError):
    """The text is no answer; the message says why without repeating it."""


def parse_answer(text: str) -> Any:
    """The JSON value in `text`. Raises BadAnswer for what is not JSON, or is longer, deeper or fuller than an answer
    may be, names a key twice, or holds what cannot be stored or compared: NaN, Infinity, whole numbers beyond 2**53,
    NUL, half a surrogate pair.

    >>> parse_answer('{"total": 12.5, "items": ["pen"]}')
    {'total': 12.5, 'items': ['pen']}
    """
    if len(text) > MAX_CHARS:
        raise BadAnswer(f"it has more than {MAX_CHARS:,} characters")
    try:
        value = json.loads(
            text, object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_constant
        )
    except BadAnswer:
        raise
    except (ValueError, RecursionError) as error:
        raise BadAnswer("it is not JSON") from error
    _check_bounds(value)
    return value


def strip_fence(text: str) -> str:
    """The text without the ``` fence that chat models like to put around JSON."""
    fenced = _FENCE.fullmatch(text[: MAX_CHARS + 40])
    return fenced[1] if fenced else text


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise BadAnswer("it names a key twice")
    return made


def _integer(digits: str) -> int:
    if len(digits) > 17 or abs(int(digits)) > MAX_INTEGER:
        raise BadAnswer("it holds a whole number beyond 2**53; such numbers are written as text")
    return int(digits)


def _float(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise BadAnswer("it holds a number that is too large")
    return number


def _constant(_name: str) -> float:
    raise BadAnswer("it holds NaN or Infinity")


def _check_bounds(value: Any) -> None:
    stack: list[tuple[Any, int]] = [(value, 0)]
    n_values = 0
    while stack:
        here, depth = stack.pop()
        n_values += 1
        if n_values > MAX_VALUES or depth > MAX_DEPTH:
            raise BadAnswer(f"it holds more than {MAX_VALUES:,} values or is nested more than {MAX_DEPTH} deep")
        texts = [here] if isinstance(here, str) else list(here) if isinstance(here, dict) else []
        if any("\0" in text or any("\ud800" <= char <= "\udfff" for char in text) for text in texts):
            raise BadAnswer("it holds NUL or half of a surrogate pair")
        if isinstance(here, dict | list):
            inside = here.values() if isinstance(here, dict) else here
            stack.extend((item, depth + 1) for item in inside)


def answer_text(value: Any, schema: Mapping[str, Any]) -> str:
    """The one spelling of an answer: `", "` and `": "`, no escapes beyond JSON's own, no exponents, fields in the order
    of `json_schemas.normal_schema`, whole numbers without a point where the schema says integer. It is what models are
    trained on and what a constrained decoder can write.

    >>> answer_text({"b": 2.0, "a": "x"}, {"type": "object", "required": ["a", "b"],
    ...             "properties": {"b": {"type": "integer"}, "a": {"type": "string"}}})
    '{"a": "x", "b": 2}'
    """
    return normal_answer_text(value, normal_schema(schema))


def normal_answer_text(value: Any, normal: Mapping[str, Any]) -> str:
    """The same for a schema that is in its normal form already, which takes longer to make than a text to write."""
    return _write(_in_schema_order(value, normal))


def _write(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_write(name)}: {_write(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_write, value)) + "]"
    if isinstance(value, float) and math.isfinite(value):
        digits = format(Decimal(repr(value)), "f")  # a decoder that is held to bounds writes no exponents
        return digits if "." in digits else f"{digits}.0"
    # a raw DEL is JSON, but no decoder at hand would write it
    return json.dumps(value, ensure_ascii=False, allow_nan=False).replace("\x7f", "\\u007f")


def _in_schema_order(value: Any, schema: object) -> Any:
    if not isinstance(schema, dict):
        return value
    branches = schema.get("anyOf") or schema.get("oneOf")
    if branches:
        return _in_schema_order(value, next((branch for branch in branches if not validator(branch)(value)), None))
    if isinstance(value, dict):
        fields, rest = schema.get("properties", {}), schema.get("additionalProperties")
        names = [name for name in fields if name in value] + sorted(set(value) - set(fields))
        return {name: _in_schema_order(value[name], fields.get(name, rest)) for name in names}
    if isinstance(value, list):
        first = schema.get("prefixItems", [])
        parts = [*first, *[schema.get("items")] * (len(value) - len(first))]
        return [_in_schema_order(item, part) for item, part in zip(value, parts[: len(value)], strict=True)]
    is_whole = schema.get("type") == "integer" and isinstance(value, float) and value.is_integer()
    is_whole = is_whole and abs(value) <= MAX_INTEGER
    return int(value) if is_whole else value


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldCounts:
    """Fields that are right (`tp`), that gold does not have (`fp`), and that are missing (`fn`)."""

    tp: int
    fp: int
    fn: int

    def __add__(self, other: "FieldCounts") -> "FieldCounts":
        return FieldCounts(tp=self.tp + other.tp, fp=self.fp + other.fp, fn=self.fn + other.fn)

    @property
    def f1_ppm(self) -> int:
        """2 tp / (2 tp + fp + fn), rounded down; 1,000,000 where neither side has a field."""
        whole = 2 * self.tp + self.fp + self.fn
        return 2 * self.tp * PPM // whole if whole else PPM


def leaves(value: Any) -> Counter[Leaf]:
    """The fields of a value with how often each stands in it."""
    counts: Counter[Leaf] = Counter()
    stack: list[tuple[str, Any]] = [("", value)]
    while stack:
        path, here = stack.pop()
        if isinstance(here, dict):
            stack.extend((f"{path}/{field_token(name)}", item) for name, item in here.items())
        elif isinstance(here, list):
            stack.extend((f"{path}/*", item) for item in here)
        elif here is not None:
            counts[(path, *_leaf(here))] += 1
    return counts


def field_token(name: str) -> str:
    """The name of a member as it stands in a field's path.

    >>> field_token("a/b")
    'a~1b'
    """
    escaped = name.replace("~", "~0").replace("/", "~1")
    return "~2" if escaped == "*" else escaped  # a field that is called * is not an element


def _leaf(value: Any) -> tuple[str, object]:
    if isinstance(value, bool):
        return "boolean", value
    if isinstance(value, str):
        return "text", unicode_form("NFC", value).strip()
    return "number", value  # 1 and 1.0 are equal and hash alike


def leaf_at(path: str, value: Any) -> Leaf:
    """A field as `leaves` counts it."""
    return (path, *_leaf(value))


def compared_texts(value: Any) -> Any:
    """The value with its texts as they are compared: NFC, without white space at the ends.

    >>> compared_texts({"sku": "AB-12 ", "n": 2})
    {'sku': 'AB-12', 'n': 2}
    """
    if isinstance(value, dict):
        return {name: compared_texts(item) for name, item in value.items()}
    if isinstance(value, list):
        return [compared_texts(item) for item in value]
    return _leaf(value)[1] if isinstance(value, str) else value


def field_scores(predicted: Any, gold: Any) -> FieldCounts:
    """The fields of both sides, matched: equal path and equal leaf, each as often as both have it. Numbers are compared
    by value, texts exactly after NFC and without white space at the ends. None stands for no answer.

    >>> field_scores({"a": 1, "b": ["x", "y"]}, {"a": 1.0, "b": ["y"], "c": "z"})
    FieldCounts(tp=2, fp=1, fn=1)
    """
    return count_matches(leaves(predicted), leaves(gold))


def count_matches(theirs: Counter[Leaf], ours: Counter[Leaf]) -> FieldCounts:
    tp = (theirs & ours).total()
    return FieldCounts(tp=tp, fp=theirs.total() - tp, fn=ours.total() - tp)


def fields_of(value: Any) -> dict[str, Counter[Leaf]]:
    """The leaves by their path."""
    by_path: dict[str, Counter[Leaf]] = {}
    for leaf, count in leaves(value).items():
        by_path.setdefault(leaf[0], Counter())[leaf] = count
    return by_path


def is_exact(predicted: Any, gold: Any) -> bool:
    """Equal as a whole: lists in order, a null field equal to an absent one, leaves as `field_scores` compares them.
    What is exact has a field F1 of 1."""
    if isinstance(gold, dict):
        if not isinstance(predicted, dict):
            return False
        names = {name for side in (predicted, gold) for name, item in side.items() if item is not None}
        return all(is_exact(predicted.get(name), gold.get(name)) for name in names)
    if isinstance(gold, list):
        if not isinstance(predicted, list) or len(predicted) != len(gold):
            return False
        return all(is_exact(p, g) for p, g in zip(predicted, gold, strict=True))
    if gold is None or predicted is None or isinstance(predicted, dict | list):
        return gold is None and predicted is None
    return _leaf(predicted) == _leaf(gold)


@dataclass(frozen=True, slots=True, kw_only=True)
class Consensus:
    """`index`: which sample speaks for all (None: none is valid). `agreement_ppm` is the sum of its likeness to every
    sample, its own with itself among them and an invalid one's 0, over all `asked`: where answers are either equal or
    have nothing in common, the share of the votes for it."""

    index: int | None
    agreement_ppm: int
    n_valid: int
    asked: int

    def reaches(self, min_agreement: float) -> bool:
        return self.index is not None and self.agreement_ppm >= int(min_agreement * PPM)

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


T = TypeVar("T")


def consensus(samples: Sequence[Any], asked: int) -> Consensus:
    """The medoid of the samples by field F1; None among them is an answer that was not valid. Equal standing goes to
    the earlier sample.

    >>> consensus([{"a": 1}, {"a": 1}, {"a": 2}, None], 4)
    Consensus(index=0, agreement_ppm=500000, n_valid=3, asked=4)
    """
    leaves_of = [None if sample is None else leaves(sample) for sample in samples]
    return medoid(leaves_of, asked, lambda a, b: count_matches(a, b).f1_ppm)


def medoid(samples: Sequence[T | None], asked: int, likeness_ppm: Callable[[T, T], int]) -> Consensus:
    """The sample that is most like all the others by a symmetric likeness in ppm. Raises ValueError for more samples
    than were asked for."""
    if len(samples) > asked:
        raise ValueError(f"{len(samples)} samples where {asked} were asked for")
    valid = [(i, sample) for i, sample in enumerate(samples) if sample is not None]
    totals = [PPM] * len(valid)
    for a in range(len(valid)):
        for b in range(a):
            alike = likeness_ppm(valid[a][1], valid[b][1])
            totals[a] += alike
            totals[b] += alike
    if not valid:
        return Consensus(index=None, agreement_ppm=0, n_valid=len(valid), asked=asked)
    best = max(range(len(valid)), key=lambda i: (totals[i], -i))
    return Consensus(index=valid[best][0], agreement_ppm=totals[best] // asked, n_valid=len(valid), asked=asked)
