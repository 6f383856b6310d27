"""What a runner may bring back: every wrong shape, length and range is a BadResult, and nothing else is ever raised."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.canonical import canonical_json
from backend.domain.jobs.runner_results import BadResult, distill_result, evaluate_result, infer_result

DISTILLED: dict[str, Any] = {
    "adapter_sha256": "a" * 64,
    "adapter_config": {"format": "x", "rank": 8, "target_modules": ["q"], "normalize": True},
    "base_model_sha256": "b" * 64,
    "n_pairs": 12,
    "n_parameters": 1000,
    "temperature": 1.25,
    "training_log": [{"epoch": 1, "train_loss": 0.5}],
    "active": {"device": "cpu", "versions": {"torch": "2"}},
    "runner_ms": 900,
    "resumed_from_epoch": 0,
}
EVALUATED: dict[str, Any] = {
    "predictions": ["refund", "other"],
    "confidences": [0.9, 1.0],
    "baseline_predictions": ["other", "other"],
    "rule_answers": [],
    "latency_us": [900, 950],
    "ruled_latency_us": [],
    "device": "cpu",
    "runner_ms": 30,
}
INFERRED: dict[str, Any] = {
    "outputs": [
        {"label": "refund", "confidence": 0.5, "latency_us": 3},
        {"label": "x", "confidence": 1, "latency_us": 0},
    ],
    "load_ms": 0,
}
STANDING = {"student": "frozen", "n": 8, "correct": 7, "accuracy_ppm": 875_000, "better": 0, "worse": 0}
LABELS = ("refund", "other")
NAN, INF = float("nan"), float("inf")


def test_what_a_runner_really_brings_passes():
    assert distill_result(DISTILLED).temperature == 1.25
    assert evaluate_result(EVALUATED, labels=LABELS, n=2).predictions == ["refund", "other"]
    ruled = EVALUATED | {"rule_answers": [None, "refund"], "ruled_latency_us": [0, 900]}
    assert evaluate_result(ruled, labels=LABELS, n=2).rule_answers == [None, "refund"]
    assert infer_result(INFERRED, n=2).load_ms == 0
    unsure = {"outputs": [row | {"is_unsure": True} for row in INFERRED["outputs"]]}
    assert infer_result(INFERRED | unsure, n=2).outputs[0]["is_unsure"] is True
    held = {"held_confidences_ppm": [1, 900_000], "held_right": [False, True]}
    assert distill_result(DISTILLED | held).held_right == [False, True]
    assert distill_result(DISTILLED).student == ""  # of a runner of the release before
    second = STANDING | {"student": "adapter", "correct": 4, "accuracy_ppm": 500_000, "better": 1, "worse": 4}
    both = {"student": "frozen", "competition": [STANDING, second]}
    assert distill_result(DISTILLED | both).competition == [STANDING, second]
    losses = {"student": "frozen", "competition": [STANDING | {"log_loss_ppm": 693_147}]}
    assert distill_result(DISTILLED | losses).competition[0]["log_loss_ppm"] == 693_147


@pytest.mark.parametrize(
    "changes",
    [
        {"adapter_sha256": "A" * 64},
        {"held_confidences_ppm": [1], "held_right": []},
        {"held_confidences_ppm": [1_000_001], "held_right": [True]},
        {"held_confidences_ppm": [1], "held_right": [1]},
        {"held_confidences_ppm": [1] * 13, "held_right": [True] * 13},
        {"student": "clever"},
        {"student": ["frozen"]},
        {"competition": [STANDING]},  # the student's own is first, and that is the adapter
        {"student": "frozen", "competition": [STANDING, STANDING]},
        {"student": "frozen", "competition": STANDING},
        {"student": "frozen", "competition": [STANDING | {"n": 13, "accuracy_ppm": 538_461}]},
        {"student": "frozen", "competition": [STANDING | {"worse": 9}]},
        {"student": "frozen", "competition": [STANDING | {"accuracy_ppm": 880_000}]},
        {"student": "frozen", "competition": [STANDING | {"why": "x"}]},
        {"student": "frozen", "competition": [STANDING | {"log_loss_ppm": -1}]},
        {"adapter_sha256": "a" * 63},
        {"adapter_sha256": None},
        {"base_model_sha256": 7},
        {"n_pairs": -1},
        {"n_pairs": True},
        {"runner_ms": 10**18},
        {"runner_ms": NAN},
        {"runner_ms": "900"},
        {"temperature": NAN},
        {"temperature": 0.0},
        {"temperature": "1"},
        {"adapter_config": {"scale": 0.5}},
        {"adapter_config": {"rank": 2**60}},
        {"adapter_config": []},
        {"active": {"device": "a\x00b"}},
        {"active": {"a\x00b": 1}},
        {"active": {"device": "\ud800"}},
        {"training_log": [{"train_loss": NAN}]},
        {"training_log": [{"train_loss": INF}]},
        {"training_log": [{"train_loss": 1e300}]},
        {"training_log": [7]},
        {"training_log": {}},
        {"training_log": [{"note": "x" * 5000}]},
        {"extra": 1},
    ],
)
def test_a_distillation_that_cannot_be_is_refused(changes):
    with pytest.raises(BadResult):
        distill_result(DISTILLED | changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"predictions": ["refund"]},
        {"predictions": ["refund", "other", "other"]},
        {"predictions": ["refund", "exchange"]},
        {"predictions": ["refund", ["other"]]},
        {"predictions": "ab"},
        {"baseline_predictions": ["other", None]},
        {"confidences": [0.9, NAN]},
        {"confidences": [0.9, 1.1]},
        {"confidences": [0.9, True]},
        {"confidences": [0.9]},
        {"latency_us": []},
        {"latency_us": [-1]},
        {"latency_us": [1.5]},
        {"latency_us": [10**15]},
        {"rule_answers": ["refund"]},
        {"rule_answers": ["refund", None]},
        {"rule_answers": ["refund", "exchange"], "ruled_latency_us": [3]},
        {"rule_answers": ["refund", 7], "ruled_latency_us": [3]},
        {"rule_answers": {}},
        {"ruled_latency_us": [3]},
        {"random_predictions": ["refund"]},
        {"random_predictions": ["refund", "exchange"]},
        {"head_own_ns": [3, 4, 5], "own_clock": "cpu"},
        {"head_own_ns": [-1], "own_clock": "cpu"},
        {"head_own_ns": [3]},
        {"head_reference_ns": 0.5},
        {"device": "x" * 300},
        {"device": None},
        {"runner_ms": None},
    ],
)
def test_an_evaluation_that_cannot_be_is_refused(changes):
    with pytest.raises(BadResult):
        evaluate_result(EVALUATED | changes, labels=LABELS, n=2)


@pytest.mark.parametrize(
    "changes",
    [
        {"outputs": INFERRED["outputs"][:1]},
        {"outputs": [{"label": "x", "confidence": 0.5, "latency_us": 3, "is_unsure": 1}] * 2},
        {"outputs": [{"label": "refund", "confidence": NAN, "latency_us": 3}] * 2},
        {"outputs": [{"label": 7, "confidence": 0.5, "latency_us": 3}] * 2},
        {"outputs": [{"label": "refund", "confidence": 0.5}] * 2},
        {"outputs": [None, None]},
        {"load_ms": -1},
    ],
)
def test_an_answer_that_cannot_be_is_refused(changes):
    with pytest.raises(BadResult):
        infer_result(INFERRED | changes, n=2)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(sorted(DISTILLED)), json_values)
def test_any_value_in_any_place_is_taken_or_refused_and_what_is_taken_can_be_signed(name, value):
    try:
        result = distill_result(DISTILLED | {name: value})
    except BadResult:
        return
    canonical_json(result.adapter_config)
    canonical_json(result.training_log)
    assert "\\u0000" not in json.dumps(result.to_json())


@given(st.sampled_from(sorted(EVALUATED)), json_values)
def test_any_evaluation_is_taken_or_refused(name, value):
    try:
        evaluate_result(EVALUATED | {name: value}, labels=LABELS, n=2)
    except BadResult:
        return
