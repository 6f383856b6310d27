"""Specs of json and text tasks: what they may say, and what is wrong with them."""

import copy
import json
import time
from typing import Any

import jsonschema
import pytest

from backend.domain.errors import InvalidSpec, Problem
from backend.domain.spec.defaults import train_kind
from backend.domain.spec.outputs import check_name
from backend.domain.spec.parsing import (
    Example,
    JsonOutput,
    PythonCheck,
    answer_max_tokens,
    canonical_spec,
    check_gold,
    effective_slices,
    parse_spec,
    spec_json_schema,
)

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "order": {"type": "string"},
        "total": {"type": "number"},
        "lines": {"type": "array", "items": {"type": "object", "properties": {"sku": {"type": "string"}}}},
        "tags": {"type": "object", "additionalProperties": {"type": "string"}},
        "note": {"anyOf": [{"type": "object", "properties": {"text": {"type": "string"}}}, {"type": "null"}]},
    },
    "required": ["order"],
}
JSON_GOLD = [{"input": f"order AB-{i}, {i} euros", "output": {"order": f"AB-{i}", "total": i}} for i in range(80)]
TEXT_GOLD = [{"input": f"letter {i}", "output": f"Dear customer {i}, thank you."} for i in range(80)]


def json_document(**changed: Any) -> dict[str, Any]:
    return {
        "name": "order-extractor",
        "task": "Extract the order.",
        "output": {"type": "json", "schema": copy.deepcopy(SCHEMA)},
        "examples": {"inline": copy.deepcopy(JSON_GOLD)},
        "teacher": {"provider": "grammar", "model": "kolm-grammar-1"},
        **changed,
    }


def text_document(**changed: Any) -> dict[str, Any]:
    return json_document(
        **({"name": "replies", "output": {"type": "text"}, "examples": {"inline": TEXT_GOLD}} | changed)
    )


def json_output(**changed: Any) -> dict[str, Any]:
    return {"output": {"type": "json", "schema": SCHEMA, **changed}}


def checks(*given: dict[str, Any], kind: str = "json") -> dict[str, Any]:
    return json_output(checks=list(given)) if kind == "json" else {"output": {"type": "text", "checks": list(given)}}


def python(source: str) -> dict[str, Any]:
    return checks({"kind": "python", "source": source})


def gold(output: Any) -> dict[str, Any]:
    return {"examples": {"inline": [{"input": "x", "output": output}, *JSON_GOLD]}}


def problems(document: dict[str, Any]) -> tuple[Problem, ...]:
    with pytest.raises(InvalidSpec) as caught:
        parse_spec(document)
    return caught.value.problems


def test_a_json_spec_says_everything_and_is_read_back() -> None:
    spec = parse_spec(json_document())
    plain = canonical_spec(spec)
    assert parse_spec(json.loads(json.dumps(plain))) == spec
    assert (plain["output"]["accuracy"], plain["output"]["max_tokens"]) == ("field_f1", 256)
    assert plain["examples"]["inline"][3]["output"] == '{"order": "AB-3", "total": 3}'
    assert [(part.name, part.share, part.label) for part in effective_slices(spec)] == [("general", 1.0, None)]
    assert (train_kind(spec), answer_max_tokens(spec)) == ("spans", 256)
    assert train_kind(parse_spec(json_document(train={"causal": {"rank": 4}}))) == "causal"


def test_a_text_spec_says_everything_and_is_read_back() -> None:
    spec = parse_spec(text_document())
    assert parse_spec(canonical_spec(spec)) == spec
    assert (train_kind(spec), answer_max_tokens(spec)) == ("causal", 512)


def test_the_published_schema_takes_both() -> None:
    published = jsonschema.Draft202012Validator(spec_json_schema())
    full = json_document(
        **checks({"kind": "copied", "field": "/order"}, {"kind": "python", "source": "def check(i, o): 1"})
    )
    for document in (full, text_document(), canonical_spec(parse_spec(full))):
        assert list(published.iter_errors(document)) == []
    assert list(published.iter_errors(json_document(output={"type": "json"})))


def test_checks_are_called_by_their_kind_and_field_or_their_name() -> None:
    given = [
        {"kind": "copied", "field": "/order"},
        {"kind": "copied", "field": "/lines/*/sku"},
        {"kind": "length", "max_chars": 300},
        {"kind": "regex", "pattern": "^AB", "field": "/order", "name": "our orders"},
        {"kind": "excludes", "any_of": ["x"], "field": "/tags/any"},
        {"kind": "excludes", "any_of": ["x"], "field": "/tags/*"},
        {"kind": "contains", "any_of": ["x"], "field": "/note/text"},
        {"kind": "python", "source": "import json\nlimit = 3\ndef check(input, output, strict=True):\n    return True"},
    ]
    spec = parse_spec(json_document(**checks(*given)))
    assert isinstance(spec.output, JsonOutput)
    assert [check_name(check) for check in spec.output.checks] == [
        "copied /order",
        "copied /lines/*/sku",
        "length",
        "our orders",
        "excludes /tags/any",
        "excludes /tags/*",
        "contains /note/text",
        "python",
    ]
    assert isinstance(spec.output.checks[-1], PythonCheck)


@pytest.mark.parametrize(
    ("changed", "at", "code", "words"),
    [
        (json_output(schema={}), "/output/schema", "not_a_schema", '"type": "object"'),
        (json_output(schema=[]), "/output/schema", "wrong_type", "an object"),
        (json_output(schema={"type": "object", "allOf": []}), "/output/schema/allOf", "unsupported_keyword", "write"),
        (
            json_output(schema={"type": "object", "propertis": {}}),
            "/output/schema/propertis",
            "unsupported_keyword",
            'did you mean "properties"?',
        ),
        (
            json_output(
                schema={"$ref": "#/$defs/a", "$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}}}
            ),
            "/output/schema",
            "recursive_schema",
            "refers to itself",
        ),
        (json_output(accuracy="judge"), "/output/accuracy", "unknown_value", "field_f1"),
        (json_output(max_tokens=1024), "/output/max_tokens", "out_of_range", "train.causal.max_tokens"),
        (checks({"kind": "regx"}), "/output/checks/0/kind", "unknown_value", 'did you mean "regex"?'),
        (checks({"kind": "copied"}), "/output/checks/0/field", "missing", "name the field"),
        (checks({"kind": "copied", "field": "order"}), "/output/checks/0/field", "bad_format", "JSON pointer"),
        (checks({"kind": "copied", "field": "/ordr"}), "/output/checks/0/field", "unknown_field", '"order"?'),
        (checks({"kind": "copied", "field": "/lines/0"}), "/output/checks/0/field", "unknown_field", "known are *"),
        (
            checks({"kind": "copied", "field": "/order/x"}),
            "/output/checks/0/field",
            "unknown_field",
            "nothing is below",
        ),
        (checks({"kind": "length"}, {"kind": "length"}), "/output/checks/1/name", "duplicate_check", "give one a name"),
        (
            checks({"kind": "length", "min_chars": 5, "max_chars": 2}),
            "/output/checks/0/min_chars",
            "out_of_range",
            "no answer can pass",
        ),
        (
            checks({"kind": "regex", "pattern": r"(a)\1"}),
            "/output/checks/0/pattern",
            "bad_pattern",
            "write the alternatives out",
        ),
        (python("def check(input, output)"), "/output/checks/0/source", "bad_source", "line 1"),
        (python("x = 1"), "/output/checks/0/source", "bad_source", "def check(input, output)"),
        (python("def check(a): pass"), "/output/checks/0/source", "bad_source", "two arguments"),
        (python("def check(a, b, c): pass"), "/output/checks/0/source", "bad_source", "two arguments"),
        (python("def check(a, b, *, c): pass"), "/output/checks/0/source", "bad_source", "two arguments"),
        (python("class X:\n  def check(a, b): pass"), "/output/checks/0/source", "bad_source", "top level"),
        (python("async def check(a, b): pass"), "/output/checks/0/source", "bad_source", "top level"),
        (python("x=" + "-" * 19_000 + "1"), "/output/checks/0/source", "bad_source", "nested too deep"),
        (python("x=" + "[" * 19_000), "/output/checks/0/source", "bad_source", "is not Python"),
        (python("x=1" + "+1" * 9_000), "/output/checks/0/source", "bad_source", "nested too deep"),
        (python("x=" + "9" * 19_000), "/output/checks/0/source", "bad_source", "is not Python"),
        (python("#" * 20_001), "/output/checks/0/source", "too_large", "20,000"),
        (gold("no json"), "/examples/inline/0/output", "bad_answer", "not JSON"),
        (gold({"ordre": "AB-1"}), "/examples/inline/0/output", "schema_mismatch", "output.schema"),
        (gold({"order": "AB-1", "extra": 1}), "/examples/inline/0/output", "schema_mismatch", "extra"),
        (gold([1, 2]), "/examples/inline/0/output", "schema_mismatch", "not of type"),
        (gold(None), "/examples/inline/0/output", "schema_mismatch", "not of type"),
        (gold('{"order": "a", "order": "b"}'), "/examples/inline/0/output", "bad_answer", "twice"),
        (gold('{"order": "a", "total": NaN}'), "/examples/inline/0/output", "bad_answer", "NaN"),
        (gold({"order": "a", "total": float("nan")}), "/examples/inline/0/output", "invalid", "JSON"),
        (gold({"order": "x" * 20_001}), "/examples/inline/0/output", "too_large", "20,000"),
        ({"examples": {"inline": JSON_GOLD[:1]}}, "/examples", "too_few_examples", "at least two, so"),
        ({"examples": {"inline": JSON_GOLD[:40]}}, "/examples", "too_few_heldout", "gives 12"),
        ({"slices": [{"name": "a", "share": 1, "label": "x"}]}, "/slices/0/label", "not_used", "no labels"),
        ({"train": {"kind": "encoder"}}, "/train/kind", "not_used", "a json task is not learned so"),
        ({"train": {"causal": {"patch_size": 4}}}, "/train/causal/patch_size", "not_used", "both"),
        ({"train": {"causal": {"patch_share": 0.5}}}, "/train/causal/patch_size", "not_used", "both"),
        (
            {"train": {"causal": {"variant": "qlora", "precision": "fp32"}}},
            "/train/causal/precision",
            "not_used",
            "bf16",
        ),
        ({"train": {"causal": {"rnak": 4}}}, "/train/causal/rnak", "unknown_key", 'did you mean "rank"?'),
        ({"train": {"causal": {"base": "../../etc"}}}, "/train/causal/base", "bad_format", "base"),
    ],
)
def test_what_is_wrong_with_a_json_spec_is_named_where_it_stands(
    changed: dict[str, Any], at: str, code: str, words: str
) -> None:
    started = time.process_time()
    found = problems(json_document(**changed))
    assert time.process_time() - started < 2
    match = [problem for problem in found if problem.pointer == at and problem.code == code]
    assert match, found
    assert words in match[0].message


@pytest.mark.parametrize(
    ("changed", "at", "code", "words"),
    [
        ({"output": {"type": "text", "accuracy": "checks"}}, "/output/accuracy", "no_checks", "take judge"),
        (
            checks({"kind": "length", "field": "/a"}, kind="text"),
            "/output/checks/0/field",
            "not_used",
            "a text has no fields",
        ),
        ({"output": {"type": "text", "max_chars": 10}}, "/examples/inline/0/output", "bad_answer", "output.max_chars"),
        ({"output": {"type": "text", "schema": {}}}, "/output/schema", "unknown_key", "known are"),
        ({"train": {"kind": "encoder"}}, "/train/kind", "not_used", "a text task is not learned so"),
        ({"train": {"kind": "auto"}}, "/train/kind", "not_used", "a text task is not learned so"),
    ],
)
def test_what_is_wrong_with_a_text_spec_is_named_where_it_stands(
    changed: dict[str, Any], at: str, code: str, words: str
) -> None:
    match = [p for p in problems(text_document(**changed)) if p.pointer == at and p.code == code]
    assert match
    assert words in match[0].message


def test_gold_is_never_judged_by_a_schema_that_was_refused() -> None:
    spec = json_document(**json_output(schema={"type": "object", "properties": {"a": {"pattern": "(a+)+(?=b)"}}}))
    spec["examples"]["inline"][0]["output"] = {"a": "a" * 40 + "b"}
    assert [p.pointer for p in problems(spec)] == ["/output/schema/properties/a/pattern"]


def test_uploaded_gold_is_judged_when_it_is_there() -> None:
    spec = parse_spec(json_document(examples={"upload": "upl_01ktfz2x8e4s1c9w0m5q7r3vbd"}))
    check_gold(spec, [Example.model_validate(row) for row in JSON_GOLD])
    with pytest.raises(InvalidSpec, match=r"row 1 of the upload: does not fit output\.schema"):
        check_gold(spec, [Example(input="a", output='{"order": 1}')] * 80)


def test_a_row_of_an_upload_is_counted_behind_the_examples_of_the_spec() -> None:
    spec = parse_spec(json_document(examples={"inline": JSON_GOLD[:2], "upload": "upl_01ktfz2x8e4s1c9w0m5q7r3vbd"}))
    bad = Example(input="a", output="no json")
    with pytest.raises(InvalidSpec) as refused:
        check_gold(spec, [*spec.examples.inline, *(Example.model_validate(row) for row in JSON_GOLD), bad])
    (problem,) = refused.value.problems
    assert problem.pointer == "/examples/upload"
    assert problem.message.startswith(f"row {len(JSON_GOLD) + 1} of the upload: is no answer")


def test_many_wrong_examples_are_told_of_fifty_times() -> None:
    bad = [{"input": f"x {i}", "output": "nothing"} for i in range(5_000)]
    assert len(problems(json_document(examples={"inline": bad}))) == 50


def test_gold_and_a_schema_that_are_slow_together_are_refused_in_seconds() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^.*x.*y"}}}
    slow = [{"input": f"i {i}", "output": {"a": "x" * 1_000}} for i in range(2_000)]
    started = time.process_time()
    found = problems(json_document(**json_output(schema=schema), examples={"inline": slow}))
    assert time.process_time() - started < 10
    assert found[-1].code == "too_slow" or len(found) == 50


@pytest.mark.parametrize("pattern", ["[A-Z]+-[0-9]+", "^.{0,1000}$", r"(?i)^\w{1,200}-\d{1,9}$"])
def test_ten_thousand_ordinary_examples_are_judged_within_the_purse(pattern: str) -> None:
    schema = copy.deepcopy(SCHEMA)
    schema["properties"]["order"]["pattern"] = pattern
    many = [{"input": f"x {i}", "output": {"order": f"AB-{i}", "total": i, "note": None}} for i in range(10_000)]
    started = time.process_time()
    parse_spec(json_document(**json_output(schema=schema), examples={"inline": many}))
    assert time.process_time() - started < 10
