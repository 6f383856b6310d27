"""What a runner may bring back of a causal job: every wrong shape, length and range is a BadResult."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.canonical import canonical_json
from backend.domain.jobs.runner_results import BadResult, distill_causal_result, evaluate_causal_result, infer_result
from tests.backend.domain.jobs.test_runner_results import json_values

DISTILLED: dict[str, Any] = {
    "adapter_sha256": "a" * 64,
    "adapter_config": {"format": "kolm.lora-causal/1", "rank": 8, "alpha": 16, "target_modules": ["q_proj"]},
    "base_model_sha256": "b" * 64,
    "tokenizer_sha256": "c" * 64,
    "n_pairs": 12,
    "n_parameters": 1000,
    "training_log": [{"epoch": 1, "train_loss": 0.5}],
    "active": {"device": "cpu", "liger": False},
    "runner_ms": 900,
    "resumed_from_step": 0,
}
EVALUATED: dict[str, Any] = {
    "outputs": ['{"a": 1}', "refund"],
    "finish_reasons": ["stop", "length"],
    "n_tokens": [7, 0],
    "confidences": [0.9, 1.0],
    "baseline_outputs": ["", "x"],
    "rule_answers": [],
    "latency_us": [900, 950],
    "ruled_latency_us": [],
    "device": "cpu",
    "engine": {"name": "transformers", "versions": {"torch": "2"}},
    "runner_ms": 30,
}
LABELS = {"type": "label", "labels": ["refund", "other"]}
TEXT = {"type": "text"}
ROW = {"output": "x", "finish_reason": "stop", "n_tokens": 3, "latency_us": 9}
NAN = float("nan")


def test_what_a_runner_really_brings_passes() -> None:
    assert distill_causal_result(DISTILLED).tokenizer_sha256 == "c" * 64
    assert evaluate_causal_result(EVALUATED, answer=TEXT, n=2).outputs[1] == "refund"
    labels = EVALUATED | {"outputs": ["refund", "other"], "baseline_outputs": ["other", "other"]}
    assert evaluate_causal_result(labels, answer=LABELS, n=2).n_tokens == [7, 0]
    assert infer_result({"outputs": [ROW], "load_ms": 1}, n=1, task_type="json").outputs == [ROW]
    ruled = ROW | {"n_tokens": 0, "rule": 0}
    assert infer_result({"outputs": [ruled], "load_ms": 1}, n=1, task_type="json").outputs == [ruled]


@pytest.mark.parametrize(
    "changes",
    [
        {"adapter_sha256": "A" * 64},
        {"tokenizer_sha256": ""},
        {"tokenizer_sha256": None},
        {"n_pairs": -1},
        {"resumed_from_step": 1.5},
        {"runner_ms": NAN},
        {"adapter_config": {"scale": 0.5}},
        {"adapter_config": {"rank": 2**60}},
        {"active": {"device": "a\x00b"}},
        {"active": []},
        {"training_log": [{"train_loss": NAN}]},
        {"training_log": [7]},
        {"temperature": 1.0},
    ],
)
def test_a_distillation_that_cannot_be_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(BadResult):
        distill_causal_result(DISTILLED | changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"outputs": ["x"]},
        {"outputs": ["x", "y", "z"]},
        {"outputs": "xy"},
        {"outputs": ["x", None]},
        {"outputs": ["x", "a\x00b"]},
        {"outputs": ["x", "\ud800"]},
        {"outputs": ["x", "y" * 100_001]},
        {"baseline_outputs": []},
        {"finish_reasons": ["stop", "error"]},
        {"finish_reasons": ["stop", ["stop"]]},
        {"n_tokens": [1, -1]},
        {"n_tokens": [1, True]},
        {"n_tokens": [1, 10**9]},
        {"confidences": [0.9, NAN]},
        {"confidences": [0.9, 1.1]},
        {"latency_us": []},
        {"latency_us": [1, 2, 3]},
        {"latency_us": [-1]},
        {"rule_answers": ["x"], "ruled_latency_us": [1]},
        {"rule_answers": ["x", "a\x00b"], "ruled_latency_us": [1]},
        {"rule_answers": ["x", None], "ruled_latency_us": []},
        {"device": None},
        {"engine": {"x": NAN}},
        {"engine": [1]},
        {"runner_ms": None},
        {"extra": 1},
    ],
)
def test_an_evaluation_that_cannot_be_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(BadResult):
        evaluate_causal_result(EVALUATED | changes, answer=TEXT, n=2)


@pytest.mark.parametrize("name", ["outputs", "baseline_outputs"])
def test_a_label_task_answers_with_its_labels(name: str) -> None:
    rows = EVALUATED | {"outputs": ["refund", "other"], "baseline_outputs": ["other", "other"]}
    with pytest.raises(BadResult, match="no label"):
        evaluate_causal_result(rows | {name: ["refund", "refunds"]}, answer=LABELS, n=2)


@pytest.mark.parametrize(
    "row",
    [
        {"label": "x", "confidence": 0.5, "latency_us": 3},
        ROW | {"rule": -1},
        ROW | {"rule": True},
        ROW | {"finish_reason": "error"},
        ROW | {"n_tokens": -1},
        ROW | {"output": 7},
        ROW | {"latency_us": -1},
        ROW | {"more": 1},
        None,
    ],
)
def test_an_answer_that_cannot_be_is_refused(row: Any) -> None:
    with pytest.raises(BadResult):
        infer_result({"outputs": [row], "load_ms": 1}, n=1, task_type="text")


@given(st.sampled_from(sorted(DISTILLED)), json_values)
def test_any_value_in_any_place_is_taken_or_refused_and_what_is_taken_can_be_signed(name: str, value: Any) -> None:
    try:
        result = distill_causal_result(DISTILLED | {name: value})
    except BadResult:
        return
    canonical_json(result.adapter_config)
    assert "\\u0000" not in json.dumps(result.to_json())


@given(st.sampled_from(sorted(EVALUATED)), json_values, st.sampled_from([LABELS, TEXT]))
def test_any_evaluation_is_taken_or_refused(name: str, value: Any, answer: dict[str, Any]) -> None:
    try:
        evaluate_causal_result(EVALUATED | {name: value}, answer=answer, n=2)
    except BadResult:
        return
