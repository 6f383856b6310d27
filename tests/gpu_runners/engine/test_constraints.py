"""Answers held to a form, by a model that would never keep to it by itself."""

import contextlib
import json
import math
import time
from collections.abc import Callable
from typing import Any

import jsonschema
import llguidance
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backend.domain.answers.json_schemas import check_schema
from gpu_runners.engine.sync import generate_all
from gpu_runners.engine.torch_engine import TorchEngine
from gpu_runners.models.answers import constraint_of, schema_constraint
from gpu_runners.models.causal_base import CausalBase
from gpu_runners.models.constraints import Constraints, Masks
from gpu_runners.models.protocol import (
    Constraint,
    ConstraintKind,
    EngineFailed,
    FinishReason,
    GenerationRequest,
    Rejected,
)
from tests.backend.domain.patterns.test_matching import AUDITED
from tests.cpu_time import own_objects_alone
from tests.pattern_strategies import hostile

Ask = Callable[..., GenerationRequest]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "size": {"enum": ["small", "large"]},
        "n": {"type": "integer", "minimum": 0, "maximum": 99},
        "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "maxItems": 3},
        "inner": {
            "type": "object",
            "properties": {"ok": {"type": "boolean"}, "note": {"type": ["null", "string"], "maxLength": 6}},
            "required": ["ok", "note"],
        },
    },
    "required": ["size", "n", "tags", "inner"],
}


def test_sampled_answers_fit_the_schema_and_are_spelt_as_json_dumps_does(engine: TorchEngine, ask: Ask) -> None:
    assert check_schema(SCHEMA) == []
    constraint = schema_constraint(SCHEMA)
    asked = [ask(temperature=1.5, seed=i, max_new_tokens=120, constraint=constraint) for i in range(24)]
    answers = generate_all(engine, asked)
    for answer in answers:
        assert answer.finish_reason is FinishReason.STOP
        value = json.loads(answer.text)
        jsonschema.validate(value, SCHEMA)
        assert list(value) == ["size", "n", "tags", "inner"]
    plain = [one.text for one in answers if "\\" not in one.text]
    assert plain == [json.dumps(json.loads(text), ensure_ascii=False) for text in plain]
    assert len({answer.text for answer in answers}) > 12


def test_constrained_and_free_rows_share_a_batch(engine: TorchEngine, ask: Ask) -> None:
    free = generate_all(engine, [ask()])[0].text
    constraint = Constraint(kind=ConstraintKind.CHOICES, value='["yes", "no", "yes and no"]')
    mixed = [ask(constraint=constraint if i % 2 else None) for i in range(8)]
    texts = [answer.text for answer in generate_all(engine, mixed)]
    assert texts[::2] == [free] * 4
    assert set(texts[1::2]) <= {"yes", "no", "yes and no"}


def test_the_probability_of_a_choice_is_that_under_the_constraint(engine: TorchEngine, ask: Ask) -> None:
    """Each answer is one byte, so it has one spelling in tokens, and the answers' probabilities add up to 1."""
    constraint = Constraint(kind=ConstraintKind.CHOICES, value='["1", "3"]')
    asked = [ask(constraint=constraint, temperature=2.0, seed=i) for i in range(60)]
    shares = {answer.text: math.exp(answer.logprob) for answer in generate_all(engine, asked)}
    assert set(shares) == {"1", "3"}
    assert sum(shares.values()) == pytest.approx(1.0, abs=1e-3)


def test_any_object_is_an_object(engine: TorchEngine, ask: Ask) -> None:
    constraint = Constraint(kind=ConstraintKind.JSON_OBJECT)
    asked = [ask(temperature=1.0, seed=i, max_new_tokens=200, constraint=constraint) for i in range(6)]
    ended = [one for one in generate_all(engine, asked) if one.finish_reason is FinishReason.STOP]
    assert ended
    assert all(isinstance(json.loads(one.text), dict) for one in ended)


def test_a_label_form_gives_one_of_the_labels(engine: TorchEngine, ask: Ask) -> None:
    constraint = constraint_of({"type": "label", "labels": ["on hold", 'say "no"', "on"]})
    answers = generate_all(engine, [ask(temperature=2.0, seed=i, constraint=constraint) for i in range(30)])
    assert {answer.text for answer in answers} == {"on hold", 'say "no"', "on"}


@pytest.mark.parametrize(
    "constraint",
    [
        Constraint(kind=ConstraintKind.JSON_SCHEMA, value="not json"),
        Constraint(kind=ConstraintKind.JSON_SCHEMA, value="[]"),
        Constraint(kind=ConstraintKind.JSON_SCHEMA, value='{"type": "strange"}'),
        Constraint(kind=ConstraintKind.JSON_SCHEMA, value="{" + " " * 70_000 + "}"),
        Constraint(kind=ConstraintKind.JSON_SCHEMA, value="[" * 50_000),
        Constraint(kind=ConstraintKind.CHOICES, value="[]"),
        Constraint(kind=ConstraintKind.CHOICES, value='["", 3]'),
    ],
)
def test_what_is_no_constraint_is_refused(engine: TorchEngine, ask: Ask, constraint: Constraint) -> None:
    with pytest.raises(Rejected) as caught:
        generate_all(engine, [ask(constraint=constraint)])
    assert caught.value.code == "bad_constraint"


def test_a_schema_that_explodes_costs_little_and_others_go_on(engine: TorchEngine, ask: Ask) -> None:
    """Unvetted, as the gateway would never pass it on: refused or answered, within seconds."""
    deep: dict[str, Any] = {"type": "string", "pattern": "^((a|ab|abc){1,300}){1,300}$"}
    wide = {"type": "object", "properties": {f"p{i}": {"type": "string", "maxLength": 9999} for i in range(400)}}
    began = time.monotonic()
    for schema in (deep, wide, {"$ref": "#"}, {"allOf": [{"anyOf": [deep] * 20}] * 20}):
        constraint = Constraint(kind=ConstraintKind.JSON_SCHEMA, value=json.dumps(schema))
        with contextlib.suppress(Rejected, EngineFailed):
            generate_all(engine, [ask(constraint=constraint, max_new_tokens=5), ask(max_new_tokens=2)])
        assert generate_all(engine, [ask(max_new_tokens=2)])[0].counts.completion_tokens == 2
    assert time.monotonic() - began < 20


@settings(suppress_health_check=list(HealthCheck))
@given(st.one_of(st.sampled_from(AUDITED), hostile))
def test_a_strangers_pattern_is_decoded_to_within_bounds(base: CausalBase, pattern: str) -> None:
    """A pattern of a vetted schema reaches llguidance too: to compile it, and each mask, is under 100 ms of CPU."""
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}, "required": ["a"]}
    if check_schema(schema):
        return
    constraints = Constraints(base.tokenizer, vocab_size=base.vocab_size, eos_ids=base.eos_ids)
    with own_objects_alone():
        started = time.thread_time()
        matcher = None
        with contextlib.suppress(Rejected):
            matcher = constraints.matcher(schema_constraint(schema))
        assert time.thread_time() - started < 0.1
        for token in base.tokenizer('{"a": "abababa', add_special_tokens=False)["input_ids"]:
            started = time.thread_time()
            Masks(base.vocab_size).forbidden([matcher], [[]], base.vocab_size, torch.device("cpu"))
            assert time.thread_time() - started < 0.1
            if matcher is None or not matcher.consume_token(int(token)):
                return


def fuelled(base: CausalBase, fuel: int) -> Any:
    """A matcher of a pattern with 4,096 states that has `fuel` for each mask."""
    text = json.loads(base.tokenizer.backend_tokenizer.to_str())
    text["truncation"] = text["padding"] = None
    tokenizer = llguidance.LLTokenizer(json.dumps(text), n_vocab=base.vocab_size, eos_token=list(base.eos_ids))
    limits = llguidance.LLParserLimits(step_lexer_fuel=fuel, max_lexer_states=50_000, verbose_errors=False)
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a|b)*c(a|b){12}$"}}}
    grammar = llguidance.LLMatcher.grammar_from_json_schema(
        json.dumps(schema | {"required": ["a"]}), overrides={"whitespace_flexible": False}
    )
    return llguidance.LLMatcher(tokenizer, grammar, log_level=0, limits=limits)


def test_masks_behind_a_draft_are_those_that_would_come_without_it(base: CausalBase) -> None:
    """Up to a drafted token that the constraint refuses; the matcher stays where it is."""
    draft = [int(i) for i in base.tokenizer('{"a":"abacabbaab', add_special_tokens=False)["input_ids"]]
    matcher, one_by_one = fuelled(base, 200_000), fuelled(base, 200_000)
    masks, where = Masks(base.vocab_size), torch.device("cpu")
    refused = int(base.tokenizer("{", add_special_tokens=False)["input_ids"][0])
    found = masks.forbidden([None, matcher], [[1], [*draft, refused, refused]], base.vocab_size, where)
    assert not found[:2].any()
    for n, token in enumerate(draft):
        assert torch.equal(found[2 + n], masks.forbidden([one_by_one], [[]], base.vocab_size, where)[0])
        assert one_by_one.consume_token(token)
    again = masks.forbidden([matcher], [[]], base.vocab_size, where)[0]
    assert torch.equal(again, found[2])


def test_an_end_that_only_a_broken_mask_lets_pass_is_a_failure(base: CausalBase, ask: Ask) -> None:
    engine = TorchEngine(base, max_running=1)
    try:
        engine._matcher = lambda constraint: fuelled(base, 200)  # type: ignore[method-assign]
        with pytest.raises(EngineFailed) as caught:
            generate_all(engine, [ask(constraint=Constraint(kind=ConstraintKind.JSON_OBJECT))])
        assert caught.value.code == "bad_constraint"
    finally:
        engine.stop()
