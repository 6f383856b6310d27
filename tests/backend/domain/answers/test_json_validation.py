"""What a look at a value costs is what it is sold for; and a value fits when the standard's own validator says so."""

import random
import time
from contextlib import suppress
from typing import Any

import jsonschema
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backend.domain.answers.json_schemas import Validator, check_schema, normal_schema, validator
from backend.domain.answers.json_validation import BudgetExceeded, ValidationBudget
from tests.backend.domain.answers.json_worlds import names, values
from tests.cpu_time import cpu_s
from tests.profiles import one_in, times

STEPS = 2_000_000
random_ = random.Random(2)


def rows(item: Any, **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": item, **more}


def branches(*last: Any, n: int = 49, **each: Any) -> dict[str, Any]:
    return {"anyOf": [each] * n + list(last)}


def nested(schema: Any, value: Any, depth: int, **more: Any) -> tuple[Any, Any]:
    for _ in range(depth):
        schema, value = rows(schema, **more), [value]
    return schema, value


def fields(n: int) -> dict[str, Any]:
    return {f"f{i}": {} for i in range(n)}


MANY = [1] * 1_900
TEXTS = ["".join(random_.choice("xa") for _ in range(1_000)) for _ in range(18)]
WORST: dict[str, tuple[Any, Any]] = {
    "numbers": (rows({"type": "integer"}), MANY),
    "bounds": (rows({"minimum": 0, "maximum": 5, "exclusiveMinimum": -1, "multipleOf": 1}), MANY),
    "fractions": (rows({"anyOf": [{"multipleOf": 1e-6 + i * 1e-9} for i in range(50)]}), [1.2345678e308] * 900),
    "a thousand constants": (rows({"enum": list(range(1_000))}), [999] * 1_900),
    "fifty constants": (rows({"anyOf": [{"const": i} for i in range(50)]}), [49] * 1_900),
    "fifty kinds": (rows(branches({}, type="string")), MANY),
    "fifty kinds of which one": (rows({"oneOf": [{"type": "string"}] * 49 + [{}]}), MANY),
    "branches inside branches": (rows(branches({}, anyOf=[{"type": "string"}] * 40)), MANY),
    "long texts and constants": (rows(branches({}, enum=["x"])), ["\x01" * 3_000] * 2),
    "long numbers and constants": (rows(branches({}, enum=[1])), [1.5e300] * 900),
    "lists and constants": (rows(branches({}, enum=[[1]])), [[1, 2, 3]] * 450),
    "objects and constants": (rows(branches({}, enum=[{"a": 1}])), [{f"abcdefgh{i}": 1 for i in range(900)}]),
    "the same list again and again": (rows(branches({}, uniqueItems=True, maxItems=2)), [list(range(900))] * 2),
    "unique lists inside unique lists": nested({}, list(range(900)), 12, uniqueItems=True),
    "required names": (rows(branches({}, n=1, properties=fields(190), required=list(fields(190)))), [{}] * 1_900),
    "objects": (rows({"properties": fields(190)}), [{"f1": 1}] * 900),
    "other fields": (rows({"type": "object", "additionalProperties": {}}), [fields(900)] * 2),
    "empty lists": (rows(rows({})), [[]] * 1_900),
    "a pattern that lives": (rows({"pattern": "[xa]*x[xa]{0,990}b|x"}), TEXTS),
    "a pattern and short texts": (rows({"pattern": "^a"}), ["a"] * 1_900),
    "colons": (rows(branches({}, format="ipv6")), [":" * 990] * 18),
    "addresses": (rows(branches({}, format="email")), ["x" * 60 + "@" + ("a" * 60 + ".") * 15] * 18),
}


def spend_all(judge: Validator, value: Any) -> None:
    """Until its budget is spent. What costs nothing for two seconds fails."""
    started = time.thread_time()
    with suppress(BudgetExceeded):
        while time.thread_time() - started < 2:
            judge(value)
        pytest.fail("the budget is not spent yet")


@pytest.mark.parametrize("name", one_in(3, WORST))
def test_a_step_is_no_more_than_a_tenth_of_a_microsecond(name: str) -> None:
    schema, value = WORST[name]
    assert check_schema(schema) == []
    validator(schema)(value[:1])  # reads the schema
    took_s = cpu_s(lambda: spend_all(validator(schema, budget=ValidationBudget(STEPS)), value), rounds=2)
    assert took_s < 6 * STEPS / 10_000_000  # six times, for a machine that is slower and busy


KEYWORDS = {
    "type": st.sampled_from(["object", "array", "string", "number", "integer", "boolean", "null", ["null", "string"]]),
    "enum": st.lists(values, min_size=1, max_size=3),
    "const": values,
    "uniqueItems": st.booleans(),
    "required": st.lists(names, max_size=2, unique=True),
    "multipleOf": st.sampled_from([1, 2, 0.1, 1e-6, 0.5]),
    "minimum": st.integers(-2, 2) | st.floats(-2, 2),
    "exclusiveMaximum": st.integers(-2, 2),
    "maxLength": st.integers(0, 3),
    "minLength": st.integers(0, 3),
    "maxItems": st.integers(0, 2),
    "minItems": st.integers(0, 2),
    "minProperties": st.integers(0, 2),
    "maxProperties": st.integers(0, 2),
}
leaves = st.fixed_dictionaries({}, optional=KEYWORDS)


def around(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    more = {
        "properties": st.dictionaries(names, inner, max_size=3),
        "additionalProperties": st.booleans() | inner,
        "items": st.booleans() | inner,
        "prefixItems": st.lists(inner, min_size=1, max_size=2),
    }
    some = st.lists(inner, min_size=1, max_size=3)
    return (
        st.fixed_dictionaries({}, optional=KEYWORDS | more)
        | st.fixed_dictionaries({"anyOf": some})
        | st.fixed_dictionaries({"oneOf": some})
    )


@given(st.recursive(leaves, around, max_leaves=6), st.recursive(values, lambda one: st.lists(one) | one, max_leaves=3))
@example({"multipleOf": 1e-6}, 1.7e308)
@example({"multipleOf": 0.1}, 0.3)
@example({"enum": [[1, True], {"a": 1.0}]}, [1.0, 1])
@example({"enum": [[1, True], {"a": 1.0}]}, {"a": 1})
@example({"type": "integer"}, 1.0)
@times(2)
def test_a_value_fits_any_schema_when_the_standards_own_validator_says_so(schema: Any, value: Any) -> None:
    theirs = jsonschema.Draft202012Validator(normal_schema(schema)).is_valid(value)
    assert (validator(schema)(value) == []) == theirs


def test_a_fault_names_its_place_in_few_words() -> None:
    schema = {"type": "object", "properties": {"a": rows({"anyOf": [{"type": "string"}, {"const": 1}]})}}
    assert validator(schema)({"a": ["x", {"y": ["z" * 9_000]}], "b" * 9_000: 1}) == [
        f"the answer: Additional properties are not allowed ('{'b' * 80}' was unexpected)",
        "/a/1: an object is not valid under any of the given schemas",
    ]
