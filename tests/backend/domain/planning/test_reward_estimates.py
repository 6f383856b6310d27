"""What rewards cost before they are asked for: in the estimate, the worst batch and the bound on what is ours."""

import json
from typing import Any

import pytest

from backend.domain.answers.rewards import MOST_RATING
from backend.domain.dialects.tools import likely_tool_tokens
from backend.domain.errors import InvalidSpec
from backend.domain.lifecycle import StepName
from backend.domain.money.pricing import price_book
from backend.domain.money.teacher_prices import kept_prices
from backend.domain.planning.estimates import Estimate, estimate
from backend.domain.spec.defaults import rewarder_of
from backend.domain.spec.parsing import Spec, parse_spec
from tests.compile_factories import small_spec

KEY = "tk_01ktfz2x8e4s1c9w0m5q7r3vbd"
PRICE = {"input_usd_per_mtok": 1, "output_usd_per_mtok": 4}
JUDGE = {"kind": "reward", "base_url": "https://judge.example.com/v1", "model": "judge", "price": PRICE}
MODEL = JUDGE | {"api": "vllm-classify", "price": {"input_usd_per_mtok": 1, "output_usd_per_mtok": 0}}
TEACHER = {"provider": "openai_compatible", "base_url": "https://llm.example.com/v1", "model": "big", "price": PRICE}


def spec_of(*verifiers: dict[str, Any], **changes: Any) -> Spec:
    return parse_spec(small_spec(verifiers=list(verifiers), **changes))


def made(*verifiers: dict[str, Any], **changes: Any) -> Estimate:
    return estimate(spec_of(*verifiers, **changes), prompt_tokens_candidate=100, mean_output_tokens=20)


def test_without_a_reward_verification_costs_nothing_and_no_price_is_kept() -> None:
    plain = made()
    assert plain.steps[StepName.VERIFICATION].high == 0
    assert plain.to_json()["reward_price"] is None


def test_a_judge_is_billed_by_the_call_and_by_the_candidate() -> None:
    eight, one = made(JUDGE).steps[StepName.VERIFICATION], made(JUDGE | {"per_call": 1}).steps[StepName.VERIFICATION]
    # two slices of 12: four calls of up to 8 candidates; 100 + 130 tokens of question, 40 + 6 of the control
    assert eight.expected == 24 * (20 + 6) + 4 * (230 + 46) + 4 * (24 * 6 + 4 * 6)
    assert one.expected == 24 * (20 + 6) + 24 * (230 + 46) + 4 * (24 * 6 + 24 * 6)
    assert eight.low < eight.expected < eight.high


def test_the_tool_of_a_judge_is_a_part_of_each_call() -> None:
    by_tool = made(JUDGE | {"dialect": "anthropic"}).steps[StepName.VERIFICATION]
    plain = made(JUDGE | {"dialect": "groq"}).steps[StepName.VERIFICATION]
    schema = {"type": "object", "properties": {}}
    rating = {"type": "integer", "minimum": 0, "maximum": MOST_RATING}
    schema["properties"] = {f"k{i}": rating for i in range(9)}  # eight and the control
    tool = likely_tool_tokens(json.dumps(schema | {"required": list(schema["properties"])}))
    assert (by_tool.expected - plain.expected) / 4 == pytest.approx(tool, rel=0.05)


def test_a_reward_model_reads_the_question_with_every_candidate_and_writes_nothing() -> None:
    assert made(MODEL).steps[StepName.VERIFICATION].expected == 24 * (100 + 20)


def test_rounds_that_selection_may_ask_for_are_rewarded_too() -> None:
    plain, judged = made(), made(JUDGE)
    assert judged.steps[StepName.SELECTION].expected == plain.steps[StepName.SELECTION].expected
    assert judged.steps[StepName.SELECTION].high > plain.steps[StepName.SELECTION].high


def test_a_batch_of_rewards_may_be_the_worst() -> None:
    dear = JUDGE | {"price": {"input_usd_per_mtok": 1000, "output_usd_per_mtok": 4000}}
    assert made(dear).worst_batch > made(JUDGE).worst_batch >= made().worst_batch


def test_a_reward_without_a_key_of_the_customers_is_ours_to_bill() -> None:
    own_key = TEACHER | {"api_key": KEY}
    plain, ours = made(teacher=own_key).platform_high, made(JUDGE, teacher=own_key).platform_high
    theirs = made(JUDGE | {"api_key": KEY}, teacher=own_key).platform_high
    assert plain is not None
    assert ours is not None
    assert theirs == plain < ours


def test_a_model_without_a_price_is_asked_for_one_at_its_own_place() -> None:
    with pytest.raises(InvalidSpec) as refused:
        made({"kind": "length"}, {name: value for name, value in JUDGE.items() if name != "price"})
    assert [problem.pointer for problem in refused.value.problems] == ["/verifiers/1/price"]


def test_a_compile_is_billed_by_the_price_that_its_estimate_kept() -> None:
    spec, kept = spec_of(JUDGE), made(JUDGE).to_json()
    prices = kept_prices(kept, spec.teacher, book=price_book(), rewarder=rewarder_of(spec))
    assert prices == made(JUDGE).teacher
    assert prices.reward is not None
    assert prices.reward.model == "judge"
    assert kept_prices(kept, spec.teacher, book=price_book()).reward is None
