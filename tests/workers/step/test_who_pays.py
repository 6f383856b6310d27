"""Whose key pays a call in the journal is the same for a spec and for what is stored of it."""

from typing import Any

import pytest

from backend.compiles.states import DELEGATE_CALLS, REWARD_CALLS
from backend.domain.spec.parsing import canonical_spec, parse_spec
from tests.compile_factories import small_spec
from workers.step.spending import pays_call_itself, pays_stored_call_itself

KEY = "tk_01ktfz2x8e4s1c9w0m5q7r3vbd"
PRICE = {"input_usd_per_mtok": 1, "output_usd_per_mtok": 2}
THERE = {"base_url": "https://llm.example.com/v1", "model": "judge", "price": PRICE}
TEACHER = {"provider": "openai_compatible", **THERE}


@pytest.mark.parametrize("teacher", [TEACHER, TEACHER | {"api_key": KEY}], ids=["ours", "own"])
@pytest.mark.parametrize(
    "reward", [None, {}, {"model": "other", "price": PRICE}, THERE, THERE | {"api_key": KEY}], ids=str
)
def test_a_stored_spec_says_the_same(teacher: dict[str, Any], reward: dict[str, Any] | None) -> None:
    verifiers = [] if reward is None else [{"kind": "reward", "rubric": "Said by a customer.", **reward}]
    spec = parse_spec(small_spec(teacher=teacher, verifiers=verifiers))
    for key in ["synthesis:0:0:0", *([] if reward is None else [f"{REWARD_CALLS}0"])]:
        assert pays_stored_call_itself(canonical_spec(spec), key) is pays_call_itself(spec, key)


@pytest.mark.parametrize("teacher", [TEACHER, TEACHER | {"api_key": KEY}], ids=["ours", "own"])
@pytest.mark.parametrize(
    ("judge", "is_own"),
    [
        pytest.param({"model": "other", "price": PRICE}, None, id="the teacher's key"),
        pytest.param(THERE, False, id="no key"),
        pytest.param(THERE | {"api_key": KEY}, True, id="its own"),
    ],
)
def test_a_judge_of_drafts_is_paid_by_its_own_key(teacher: dict[str, Any], judge: dict[str, Any], is_own: bool) -> None:
    spec = parse_spec(small_spec(teacher=teacher, draft_cache={"judge": judge}))
    pays = pays_call_itself(spec, f"{DELEGATE_CALLS}all:0")
    assert pays is ("api_key" in teacher if is_own is None else is_own)
    assert pays_stored_call_itself(canonical_spec(spec), f"{DELEGATE_CALLS}all:0") is pays
