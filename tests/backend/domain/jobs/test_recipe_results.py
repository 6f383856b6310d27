"""What a runner may bring back of a recipes job: every wrong shape, length and range is a BadResult."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.canonical import canonical_json
from backend.domain.jobs.recipe_results import pack_recipes_result
from backend.domain.jobs.runner_results import BadResult
from tests.backend.domain.jobs.test_runner_results import json_values

PLAIN: dict[str, Any] = {
    "sources": [],
    "n_prompts": 2,
    "n_tokens": 40,
    "n_steps": 40,
    "drafted": 0,
    "accepted": 0,
    "wall_us": 900,
    "p50_us": 500,
    "by_source": [],
    "latencies_us": [400, 500],
}
PACKED = PLAIN | {
    "sources": ["pack", "schema"],
    "n_steps": 10,
    "drafted": 32,
    "accepted": 30,
    "by_source": [{"kind": "pack", "drafted": 32, "accepted": 30}],
}
RESULT: dict[str, Any] = {
    "pack_sha256": "a" * 64,
    "measured": [PLAIN, PACKED],
    "chosen": 1,
    "reason": "On 2 prompts it is faster.",
    "stats": {"n_recipes": 12},
    "n_identical": 2,
    "device": "cpu",
    "engine": {"name": "kolm-torch"},
    "runner_ms": 900,
}
ALLOWED = ("pack", "schema", "prompt")


def test_what_a_runner_really_brings_passes() -> None:
    assert pack_recipes_result(RESULT, n_prompts=2, sources=ALLOWED).measured[1]["accepted"] == 30


@pytest.mark.parametrize(
    "changes",
    [
        {"pack_sha256": "a" * 63},
        {"measured": []},
        {"measured": [PACKED, PLAIN]},
        {"measured": [PLAIN, PACKED | {"sources": ["model"]}]},
        {"measured": [PLAIN, PACKED | {"sources": ["pack", "pack"]}]},
        {"measured": [PLAIN, PACKED | {"sources": [["pack"]]}]},
        {"measured": [PLAIN, PACKED | {"n_prompts": 1, "latencies_us": [9]}]},
        {"measured": [PLAIN, PACKED | {"latencies_us": [9]}]},
        {"measured": [PLAIN, PACKED | {"accepted": 33}]},
        {"measured": [PLAIN, PACKED | {"n_steps": 1.5}]},
        {"measured": [PLAIN, PACKED | {"more": 1}]},
        {"measured": [PLAIN, PACKED | {"by_source": [{"kind": "prompt", "drafted": 1, "accepted": 1}]}]},
        {"measured": [PLAIN, PACKED | {"by_source": [{"kind": ["pack"], "drafted": 1, "accepted": 1}]}]},
        {"measured": [PLAIN] * 17},
        {"measured": [PLAIN, None]},
        {"chosen": 2},
        {"chosen": True},
        {"reason": "x" * 501},
        {"stats": {"share": 0.5}},
        {"stats": {"a\x00": 1}},
        {"n_identical": 3},
        {"device": None},
        {"engine": {"x": float("nan")}},
        {"runner_ms": -1},
        {"extra": 1},
    ],
)
def test_a_result_that_cannot_be_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(BadResult):
        pack_recipes_result(RESULT | changes, n_prompts=2, sources=ALLOWED)


def test_more_prompts_than_were_sent_are_refused() -> None:
    with pytest.raises(BadResult, match="more prompts"):
        pack_recipes_result(RESULT, n_prompts=1, sources=ALLOWED)


@given(name=st.sampled_from(sorted(RESULT)), value=json_values)
def test_any_result_is_taken_or_refused_and_what_is_taken_can_be_signed(name: str, value: Any) -> None:
    try:
        result = pack_recipes_result(RESULT | {name: value}, n_prompts=2, sources=ALLOWED)
    except BadResult:
        return
    canonical_json([result.measured, result.stats, result.reason])
