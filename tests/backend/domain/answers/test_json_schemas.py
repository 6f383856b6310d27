"""A stranger's schema is refused, or it can be decoded to, validated with and written out, in bounded time."""

import json
import time
from typing import Any

import jsonschema
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer

from backend.domain.answers.json_schema_rules import FORMATS
from backend.domain.answers.json_schemas import check_schema, decoding_schema, normal_schema, validator
from backend.domain.answers.json_validation import BudgetExceeded, ValidationBudget
from backend.domain.answers.json_values import answer_text, parse_answer
from tests.backend.domain.answers.json_worlds import ORDER, objects, orders, shuffled, values

SPELLING = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


def of(field: Any, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": field}, **more}


def laughs(levels: int) -> dict[str, Any]:
    """Ten references to the level below, and so on: 10 to the `levels` parts when written out."""
    parts = {f"l{i}": {"type": "array", "prefixItems": [{"$ref": f"#/$defs/l{i + 1}"}] * 10} for i in range(levels)}
    parts[f"l{levels}"] = {"type": "array"}
    return {"type": "object", "properties": {"a": {"$ref": "#/$defs/l0"}}, "$defs": parts}


def nested(depth: int) -> dict[str, Any]:
    part: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        part = {"type": "array", "items": part}
    return part


def chain(length: int) -> dict[str, Any]:
    parts = {f"l{i}": {"type": "array", "items": {"$ref": f"#/$defs/l{i + 1}"}} for i in range(length)}
    parts[f"l{length}"] = {"type": "string"}
    return {"type": "object", "properties": {"a": {"$ref": "#/$defs/l0"}}, "$defs": parts}


def with_patterns(n: int) -> dict[str, Any]:
    return {"type": "object", "properties": {f"f{i}": {"type": "string", "pattern": f"^{i}"} for i in range(n)}}


LOOP = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}


@pytest.mark.parametrize(
    ("schema", "pointer", "code"),
    [
        (None, "", "not_a_schema"),
        ([], "", "not_a_schema"),
        (True, "", "not_a_schema"),
        ({}, "", "not_a_schema"),
        ({"type": "string"}, "", "not_a_schema"),
        ({"enum": [1, 2]}, "", "not_a_schema"),
        ({"type": "objekt"}, "/type", "not_a_schema"),
        (of({"type": ["string", "string"]}), "/properties/a/type", "not_a_schema"),
        (of(7), "/properties/a", "not_a_schema"),
        (of(True), "/properties/a", "not_a_schema"),
        ({"type": "object", "properties": []}, "/properties", "not_a_schema"),
        ({"type": "object", "properties": {"a" * 101: {}}}, "/properties/" + "a" * 101, "not_a_schema"),
        (of({}, required=["b"]), "/required/0", "unknown_field"),
        (of({}, required="a"), "/required", "not_a_schema"),
        (of({}, required=["a", "a"]), "/required", "not_a_schema"),
        (of({"minLenght": 2}), "/properties/a/minLenght", "unsupported_keyword"),
        (of({"not": {}}), "/properties/a/not", "unsupported_keyword"),
        (of({"allOf": [{}]}), "/properties/a/allOf", "unsupported_keyword"),
        (of({}, patternProperties={"^x": {}}), "/patternProperties", "unsupported_keyword"),
        (of({"$id": "http://x"}), "/properties/a/$id", "unsupported_keyword"),
        (of({"$defs": {}}), "/properties/a/$defs", "unsupported_keyword"),
        (of({"$ref": "http://evil.example/s.json"}), "/properties/a/$ref", "unsupported_keyword"),
        (of({"$ref": "file:///etc/passwd"}), "/properties/a/$ref", "unsupported_keyword"),
        (of({"$ref": "#"}), "/properties/a/$ref", "unsupported_keyword"),
        (of({"$ref": "#/properties/a"}), "/properties/a/$ref", "unsupported_keyword"),
        (of({"$ref": 7}), "/properties/a/$ref", "unsupported_keyword"),
        (of({"$ref": "#/$defs/none"}), "", "unsupported_keyword"),
        (
            of({"$ref": "#/$defs/x", "minLength": 2}, **{"$defs": {"x": {}}}),
            "/properties/a/$ref",
            "unsupported_keyword",
        ),
        (of({"anyOf": [{}], "type": "string"}), "/properties/a/anyOf", "unsupported_keyword"),
        (of({"anyOf": []}), "/properties/a/anyOf", "not_a_schema"),
        (of({"enum": []}), "/properties/a/enum", "not_a_schema"),
        (of({"format": "regex"}), "/properties/a/format", "unsupported_keyword"),
        (of({"pattern": r"(a+)\1"}), "/properties/a/pattern", "bad_pattern"),
        (of({"pattern": "("}), "/properties/a/pattern", "bad_pattern"),
        (of({"pattern": r"a\b"}), "/properties/a/pattern", "bad_pattern"),
        *(
            (of({"pattern": bad}), "/properties/a/pattern", "bad_pattern")
            for bad in ("(?m)^a$", "a^", "$a", "$^", "(^)*a")
        ),
        *(
            (of({"pattern": bad}), "/properties/a/pattern", "bad_pattern")
            for bad in ("[\ud83d]", r"a|\ud83d", r"a(\B)")
        ),
        (of({"pattern": "(?=a)"}), "/properties/a/pattern", "bad_pattern"),
        (of({"pattern": "a" * 501}), "/properties/a/pattern", "bad_pattern"),
        (of({"pattern": "(?:a{99}){99}"}), "/properties/a/pattern", "bad_pattern"),
        (with_patterns(65), "", "schema_too_large"),
        (of({"pattern": 7}), "/properties/a/pattern", "not_a_schema"),
        (of({"minLength": 9, "maxLength": 2}), "/properties/a/minLength", "out_of_range"),
        (of({"minItems": 10**9}), "/properties/a/minItems", "out_of_range"),
        (of({"maxLength": -1}), "/properties/a/maxLength", "out_of_range"),
        (of({"maxLength": True}), "/properties/a/maxLength", "out_of_range"),
        (of({"minimum": float("nan")}), "/properties/a/minimum", "out_of_range"),
        (of({"minimum": "1"}), "/properties/a/minimum", "out_of_range"),
        (of({"multipleOf": 0}), "/properties/a/multipleOf", "out_of_range"),
        (of({"uniqueItems": 1}), "/properties/a/uniqueItems", "not_a_schema"),
        (of({}, **{"$schema": "http://evil.example"}), "/$schema", "unsupported_keyword"),
        ({**LOOP, "$defs": {"node": LOOP}}, "", "recursive_schema"),
        (of({}, **{"$defs": {"x": {"$ref": "#/$defs/x"}}}), "", "recursive_schema"),
        (
            of({}, **{"$defs": {"x": {"$ref": "#/$defs/y"}, "y": {"items": {"$ref": "#/$defs/x"}}}}),
            "",
            "recursive_schema",
        ),
        (laughs(60), "", "schema_too_large"),
        (nested(30), "", "schema_too_large"),
        (chain(60), "", "schema_too_large"),
        (chain(199), "", "schema_too_large"),
        (nested(5_000), "", "schema_too_large"),
        (of({"enum": list(range(5_001))}), "", "schema_too_large"),
        (of({"description": "x" * 70_000}), "", "schema_too_large"),
        ({"type": "object", "properties": {f"f{i}": {} for i in range(201)}}, "/properties", "not_a_schema"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_where_it_is_wrong_and_at_once(
    schema: Any, pointer: str, code: str
) -> None:
    started = time.process_time()
    found = check_schema(schema, at="/output/schema")
    assert time.process_time() - started < 1
    assert ("/output/schema" + pointer, code) in [(p.pointer, p.code) for p in found], found
    assert all(len(p.message) < 300 for p in found)


def test_a_chain_of_references_that_is_taken_can_be_worked_with_deep_in_a_stack() -> None:
    def deep(n: int) -> list[str]:
        if n:
            return deep(n - 1)
        assert check_schema(chain(16)) == []
        decoding_schema(chain(16))
        value: Any = "x"
        for _ in range(16):
            value = [value]
        return validator(chain(16))({"a": value})

    assert deep(300) == []


GOOD: list[dict[str, Any]] = [
    ORDER,
    {"type": "array", "items": ORDER["$defs"]["item"], "minItems": 1},
    of({"$ref": "#/definitions/x"}, definitions={"x": {"type": "string", "format": "date"}}),
    of({"type": "array", "items": {"type": "string"}, "uniqueItems": True, "maxItems": 3}),
    of({"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1}),
    of({"oneOf": [{"type": "string"}, {"type": "string", "maxLength": 3}]}),
    of({"type": ["string", "null"], "title": "t", "default": None, "examples": [1], "deprecated": True}),
    of({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False}),
    of({"const": {"x": [1, None]}}),
    of({}, additionalProperties=True, required=["b"]),
    {"anyOf": [of({"const": 1}), {"$ref": "#/$defs/x"}], "$defs": {"x": of({"type": "boolean"})}},
    of({"type": "number", "multipleOf": 0.01, "exclusiveMinimum": 0, "maximum": 10}),
]


FORMATTED = [of({"type": "string", "format": name}) for name in FORMATS]


@pytest.mark.parametrize("schema", GOOD + FORMATTED, ids=range(len(GOOD + FORMATTED)))
def test_every_schema_that_is_taken_is_one_and_a_decoder_can_be_held_to_it(schema: dict[str, Any]) -> None:
    assert check_schema(schema) == []
    jsonschema.Draft202012Validator.check_schema(normal_schema(schema))
    grammar = LLMatcher.grammar_from_json_schema(json.dumps(decoding_schema(schema)), overrides=SPELLING)
    assert LLMatcher.validate_grammar(grammar) == ""


@pytest.fixture(scope="module")
def tokens() -> LLTokenizer:
    return LLTokenizer("byte")


@given(value=orders(), seed=st.integers(0, 99))
@example(value={"order": "AA-0", "kind": "refund", "note": "\x7f\x01\x1f\n\u2028\U0001f600\\/"}, seed=0)
def test_what_models_are_taught_is_what_a_decoder_may_write(
    tokens: LLTokenizer, value: dict[str, Any], seed: int
) -> None:
    schema = decoding_schema(shuffled(ORDER, seed))
    matcher = LLMatcher(tokens, LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=SPELLING))
    written = tokens.tokenize_str(answer_text(value, ORDER))
    assert matcher.try_consume_tokens(written) == len(written), answer_text(value, ORDER)
    assert matcher.is_accepting()


@pytest.mark.parametrize("number", [1e-7, 5e-324, 0.1, -2.5, 1e16, 1e22, 1.7e308, 3, 0.0])
def test_numbers_are_spelt_as_a_decoder_with_bounds_would(tokens: LLTokenizer, number: float) -> None:
    schema = of({"type": "number", "minimum": -3})
    grammar = LLMatcher.grammar_from_json_schema(json.dumps(decoding_schema(schema)), overrides=SPELLING)
    matcher, text = LLMatcher(tokens, grammar), answer_text({"a": number}, schema)
    written = tokens.tokenize_str(text)
    assert matcher.try_consume_tokens(written) == len(written), text
    assert parse_answer(text) == {"a": number}


@given(st.integers(0, 99), st.sampled_from(GOOD))
def test_the_forms_of_a_schema_do_not_know_the_order_of_its_keys(seed: int, schema: dict[str, Any]) -> None:
    assert json.dumps(normal_schema(shuffled(schema, seed))) == json.dumps(normal_schema(schema))
    for form in (normal_schema, decoding_schema):
        once = form(schema)
        assert json.dumps(form(shuffled(once, seed))) == json.dumps(once)


@given(orders() | objects | values)
def test_a_value_fits_when_the_standards_own_validator_says_so(value: Any) -> None:
    closed = {**ORDER, "additionalProperties": False}
    closed["$defs"] = {"item": {**ORDER["$defs"]["item"], "additionalProperties": False}}
    theirs = jsonschema.Draft202012Validator(closed).is_valid(value)
    assert (validator(ORDER)(value) == []) == theirs


@pytest.mark.parametrize(
    ("schema", "value", "fits"),
    [
        (of({}), {"a": 1}, True),
        (of({}), {"b": 1}, False),
        (of({}, additionalProperties=True), {"b": 1}, True),
        (of({"uniqueItems": True}), {"a": [1, 1.0]}, False),
        (of({"uniqueItems": True}), {"a": [1, True, "1"]}, True),
        (of({"uniqueItems": True}), {"a": list(range(1_900))}, True),
        (of({"oneOf": [{"type": "string"}, {"maxLength": 3}]}), {"a": "abc"}, False),
        (of({"pattern": "^a"}), {"a": "a" * 1_001}, False),
        (of({"format": "date"}), {"a": "2026-02-29"}, False),
        (of({"format": "date"}), {"a": "2028-02-29"}, True),
        (of({"format": "date"}), {"a": "20280229"}, False),
        (of({"format": "date-time"}), {"a": "2026-08-06T10:00:00Z"}, True),
        (of({"format": "date-time"}), {"a": "2026-08-06T10:00:00.123456789+02:00"}, True),
        (of({"format": "date-time"}), {"a": "2026-08-06T10:00:00"}, False),
        (of({"format": "date-time"}), {"a": ""}, False),
        (of({"format": "time"}), {"a": "25:00:00Z"}, False),
        (of({"format": "email"}), {"a": "x@example.org"}, True),
        (of({"format": "email"}), {"a": "x@"}, False),
        (of({"format": "uuid"}), {"a": "6f2e9a0e-1b1c-4c4e-9b6a-0123456789ab"}, True),
        (of({"format": "uuid"}), {"a": "6f2e9a0e1b1c4c4e9b6a0123456789ab"}, False),
        (of({"format": "ipv4"}), {"a": "10.0.0.256"}, False),
        (of({"format": "ipv6"}), {"a": "::1"}, True),
        (of({"format": "ipv6"}), {"a": "fe80::1%eth0"}, False),
        (of({"format": "email"}), {"a": "x" * 20_000}, False),
    ],
)
def test_what_fits(schema: dict[str, Any], value: Any, fits: bool) -> None:
    assert check_schema(schema) == []
    started = time.process_time()
    errors = validator(schema)(value)
    assert (errors == []) is fits
    assert time.process_time() - started < 1
    assert len(errors) <= 5
    assert all(len(error) < 320 for error in errors)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "properties", "items", "anyOf", "$ref", "enum", "required", "$defs", "pattern", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)


@given(anything)
def test_any_value_is_refused_or_can_be_used(schema: Any) -> None:
    if check_schema(schema) == []:
        validator(schema)({"a": 1})
        LLMatcher.grammar_from_json_schema(json.dumps(decoding_schema(schema)), overrides=SPELLING)


def branching(depth: int) -> dict[str, Any]:
    """Each level tries two branches that differ in the last thing that is looked at."""
    part: dict[str, Any] = {"const": 1}
    for _ in range(depth):
        part = {"anyOf": [{"type": "array", "items": part, "maxItems": 1}] * 2}
    return part


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (of({"type": "array", "items": {"pattern": "^.*x.*x.*y"}}), {"a": ["x" * 1_000] * 18}),
        ({"type": "array", "items": {"anyOf": [{"anyOf": [{"const": i}] * 50} for i in range(40)]}}, [-1] * 1_900),
        (of(branching(6)), {"a": [[[[[[2]]]]]]}),
    ],
)
def test_a_schema_and_an_answer_that_are_slow_together_do_not_fit_and_take_seconds(schema: Any, value: Any) -> None:
    assert check_schema(schema) == []
    started = time.process_time()
    assert validator(schema)(value)
    assert time.process_time() - started < 4
    with pytest.raises(BudgetExceeded):
        validator(schema, budget=ValidationBudget(100))(value)
