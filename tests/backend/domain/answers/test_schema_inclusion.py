"""Whether every answer by one schema fits another."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.answers.json_schemas import check_schema, validator
from backend.domain.answers.schema_inclusion import inclusion_fault
from tests.backend.domain.answers.json_worlds import ORDER, values
from tests.backend.domain.answers.test_json_validation import around, leaves
from tests.profiles import times

TEXT, WHOLE, NULL = {"type": "string"}, {"type": "integer"}, {"type": "null"}


def of(*, required: tuple[str, ...] = ("a",), **fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": list(required)}


@pytest.mark.parametrize(
    ("inner", "outer"),
    [
        (ORDER, ORDER),
        (of(a={"enum": ["x", "y"]}), of(a=TEXT)),
        (of(a={"enum": ["x", "y"]}), of(a={"enum": ["y", "z", "x"]})),
        (of(a=WHOLE), of(a={"type": "number"})),
        (of(a=WHOLE), of(a=WHOLE, b=TEXT)),
        (of(a=WHOLE, b=TEXT, required=("a", "b")), of(a=WHOLE, b=TEXT)),
        (of(a={"type": ["string", "null"]}), of(a={"anyOf": [TEXT, NULL], "default": None})),
        (of(a={"anyOf": [TEXT, NULL]}), of(a={"type": ["null", "string", "integer"]})),
        (of(a={"type": "boolean"}), of(a={"enum": [True, False, None]})),
        (of(a={"const": 3}), of(a={"type": "integer", "maximum": 3})),
        (of(a={"type": "string", "minLength": 2}), of(a={"type": "string", "minLength": 1})),
        (of(a={"type": "number", "exclusiveMinimum": 0}), of(a={"type": "number", "minimum": 0})),
        (of(a=WHOLE), {"type": "object"}),
        (of(a=WHOLE), of(required=(), additionalProperties=True) | {"additionalProperties": True}),
        ({"type": "array", "items": of(a=WHOLE)}, {"type": "array", "items": {"type": "object"}}),
        (of(a={"$ref": "#/$defs/w"}) | {"$defs": {"w": WHOLE}}, of(a={"title": "A", "type": "integer"})),
    ],
)
def test_a_schema_that_takes_more_includes_it(inner: dict[str, Any], outer: dict[str, Any]) -> None:
    assert inclusion_fault(inner, outer) is None


@pytest.mark.parametrize(
    ("inner", "outer", "fault"),
    [
        (of(a=TEXT), of(a={"enum": ["x"]}), "/a: the answers may have values that the enum does not list"),
        (of(a={"enum": ["x", "y"]}), of(a={"enum": ["x"]}), "/a: a value of the enum does not fit"),
        (of(a={"type": ["string", "null"]}), of(a=TEXT), "/a: the answers may have null here"),
        (of(a={"type": "number"}), of(a=WHOLE), "/a: the answers may have a number here"),
        (of(a=TEXT, required=()), of(a=TEXT), "/a: the field is required and the answers may lack it"),
        (of(a=TEXT, b=TEXT), of(a=TEXT), "/b: the answers have this field, which was not asked for"),
        ({"type": "object"}, of(a=TEXT, required=()), "the answer: the answers may have fields of any name"),
        (of(a=TEXT), of(a={"type": "string", "maxLength": 9}), "/a: maxLength 9 does not hold for all answers"),
        (of(a=TEXT), of(a={"type": "string", "format": "date"}), "/a: format 'date' does not hold for all answers"),
        (of(a={"type": "array", "items": TEXT}), of(a={"type": "array", "items": WHOLE}), "/a/*: the answers may"),
        (of(a=TEXT), of(a={"anyOf": [NULL, WHOLE]}), "/a: a string of the answers fits no branch of anyOf"),
        (of(a=TEXT), of(a={"oneOf": [TEXT, {"const": "x"}]}), "/a: it cannot be shown that just one branch"),
    ],
)
def test_what_is_not_included_is_named_with_its_place(inner: dict[str, Any], outer: dict[str, Any], fault: str) -> None:
    assert (inclusion_fault(inner, outer) or "").startswith(fault)


schemas = st.recursive(leaves, around, max_leaves=4)


@given(schemas, schemas, st.sampled_from(["other", "same", "one of both"]), values)
@times(2)
def test_no_value_fits_the_inner_schema_and_not_the_outer_one(
    inner: dict[str, Any], other: dict[str, Any], kind: str, value: Any
) -> None:
    outer = {"other": other, "same": inner, "one of both": {"anyOf": [other, inner]}}[kind]
    fault = inclusion_fault(inner, outer)
    assert kind != "same" or fault is None
    if fault is None and not validator(inner)(value):
        assert validator(outer)(value) == []


def test_schemas_that_are_slow_to_compare_are_given_up_in_time() -> None:
    part: dict[str, Any] = TEXT
    for _ in range(6):
        part = {"anyOf": [{"type": "array", "items": part}, {"type": "array", "items": part, "maxItems": 3}]}
    inner = of(a=part, **{f"x{i}": {"enum": list(range(60))} for i in range(60)})
    assert check_schema(inner) == []
    started = time.process_time()
    inclusion_fault(inner, inner | {"title": "t"})
    inclusion_fault(inner, {"anyOf": [inner] * 20})
    few = {"anyOf": [{"anyOf": [{"const": 60 * i + j} for j in range(45)]} for i in range(45)]}
    for kind in ("anyOf", "oneOf"):
        many = {kind: [{"anyOf": [{"const": -60 * i - j - 1} for j in range(45)]} for i in range(45)]}
        inclusion_fault(of(a=few), of(a=many))
        inclusion_fault(of(a={"type": ["string", "null", "integer", "boolean"]}), of(a=many))
    assert time.process_time() - started < 4
