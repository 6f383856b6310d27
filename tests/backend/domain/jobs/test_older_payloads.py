"""What the release before rules and recipe packs (commit 71c410e) put into jobs and results is still read: a queue and
its runners outlive an upgrade."""

import pytest

from backend.domain.jobs.base_checks import CheckBaseJob, CheckBaseResult
from backend.domain.jobs.causal_jobs import (
    DistillCausalJob,
    DistillCausalResult,
    EvaluateCausalJob,
    EvaluateCausalResult,
)
from backend.domain.jobs.recipe_jobs import PackRecipesJob, PackRecipesResult
from backend.domain.jobs.runner_jobs import (
    DistillJob,
    DistillResult,
    EvaluateJob,
    EvaluateResult,
    InferJob,
    InferResult,
    RunnerJobKind,
    SelectJob,
    SelectResult,
)
from backend.domain.jobs.runner_results import evaluate_causal_result, evaluate_result
from backend.domain.jobs.span_jobs import DistillSpansJob, DistillSpansResult, EvaluateSpansJob, EvaluateSpansResult

SHA = "5" * 64
OPTIONS = {"rank": 8, "seed": 7}
WIRES = {
    RunnerJobKind.CHECK_BASE: (CheckBaseJob, CheckBaseResult),
    RunnerJobKind.DISTILL: (DistillJob, DistillResult),
    RunnerJobKind.DISTILL_CAUSAL: (DistillCausalJob, DistillCausalResult),
    RunnerJobKind.DISTILL_SPANS: (DistillSpansJob, DistillSpansResult),
    RunnerJobKind.EVALUATE: (EvaluateJob, EvaluateResult),
    RunnerJobKind.EVALUATE_CAUSAL: (EvaluateCausalJob, EvaluateCausalResult),
    RunnerJobKind.EVALUATE_SPANS: (EvaluateSpansJob, EvaluateSpansResult),
    RunnerJobKind.INFER: (InferJob, InferResult),
    RunnerJobKind.PACK_RECIPES: (PackRecipesJob, PackRecipesResult),
    RunnerJobKind.SELECT: (SelectJob, SelectResult),
}
OLD_JOBS = {
    RunnerJobKind.DISTILL: {
        "base_model": "minilm",
        "labels": ["a", "b"],
        "dataset_sha256": SHA,
        "train": OPTIONS,
        "checkpoint_every_s": 20.0,
    },
    RunnerJobKind.DISTILL_CAUSAL: {
        "base_model": "qwen",
        "system": "s",
        "dataset_sha256": SHA,
        "options": OPTIONS,
        "checkpoint_every_s": 20.0,
    },
    RunnerJobKind.EVALUATE: {
        "base_model": "minilm",
        "base_model_sha256": SHA,
        "labels": ["a", "b"],
        "adapter_sha256": SHA,
        "adapter_config": {},
        "temperature": 1.0,
        "inputs_sha256": SHA,
    },
    RunnerJobKind.EVALUATE_CAUSAL: {
        "base_model": "qwen",
        "base_model_sha256": SHA,
        "system": "s",
        "answer": {"type": "text"},
        "max_new_tokens": 64,
        "adapter_sha256": SHA,
        "adapter_config": {},
        "inputs_sha256": SHA,
    },
    RunnerJobKind.INFER: {"artifact_sha256": SHA, "inputs": ["x"]},
    RunnerJobKind.SELECT: {
        "columns_sha256": SHA,
        "rows_sha256": SHA,
        "n": 2,
        "width": 0,
        "k": 1,
        "options": {},
    },
}
OLD_RESULTS = {
    RunnerJobKind.DISTILL: {
        "adapter_sha256": SHA,
        "adapter_config": {},
        "base_model_sha256": SHA,
        "n_pairs": 2,
        "n_parameters": 3,
        "temperature": 1.0,
        "training_log": [],
        "active": {},
        "runner_ms": 1,
        "resumed_from_epoch": 0,
    },
    RunnerJobKind.DISTILL_CAUSAL: {
        "adapter_sha256": SHA,
        "adapter_config": {},
        "base_model_sha256": SHA,
        "tokenizer_sha256": SHA,
        "n_pairs": 2,
        "n_parameters": 3,
        "training_log": [],
        "active": {},
        "runner_ms": 1,
        "resumed_from_step": 0,
    },
    RunnerJobKind.EVALUATE: {
        "predictions": ["a"],
        "confidences": [0.9],
        "baseline_predictions": ["b"],
        "latency_us": [900],
        "device": "cpu",
        "runner_ms": 1,
    },
    RunnerJobKind.EVALUATE_CAUSAL: {
        "outputs": ["x"],
        "finish_reasons": ["stop"],
        "n_tokens": [1],
        "confidences": [0.9],
        "baseline_outputs": ["y"],
        "latency_us": [900],
        "device": "cpu",
        "engine": {},
        "runner_ms": 1,
    },
    RunnerJobKind.INFER: {"outputs": [], "load_ms": 0},
    RunnerJobKind.SELECT: {
        "picks": [0],
        "nearest_pick_ppm": [None],
        "cluster_of": [0, 0],
        "floor_dropped": [],
        "report": {},
        "log": "",
        "embedder": "",
        "n_tokens": 0,
        "runner_ms": 1,
    },
}
NEW_SINCE = {
    RunnerJobKind.CHECK_BASE,
    RunnerJobKind.DISTILL_SPANS,
    RunnerJobKind.EVALUATE_SPANS,
    RunnerJobKind.PACK_RECIPES,
}  # the release before had no such jobs


def test_every_kind_is_tried() -> None:
    assert set(WIRES) == set(RunnerJobKind)
    assert set(OLD_JOBS) == set(OLD_RESULTS) == set(RunnerJobKind) - NEW_SINCE


@pytest.mark.parametrize("kind", sorted(OLD_JOBS))
def test_a_job_that_the_release_before_queued_is_read(kind: RunnerJobKind) -> None:
    old = OLD_JOBS[kind]
    read = WIRES[kind][0].from_json(old).to_json()
    assert {name: read[name] for name in old} == old
    added = {name for name in read if name not in old}
    blobs = {"rules_sha256", "gold_sha256", "random_sha256", "start_sha256", "sampled_sha256"}
    assert added <= blobs | {"grant", "start_config", "sampling"}
    assert all(read[name] in ("", {}) for name in added)


@pytest.mark.parametrize("kind", sorted(OLD_RESULTS))
def test_a_result_that_a_runner_of_the_release_before_reports_is_read(kind: RunnerJobKind) -> None:
    old = OLD_RESULTS[kind]
    read = WIRES[kind][1].from_json(old).to_json()
    assert {name: read[name] for name in old} == old
    assert all(value in ([], "", 0) for name, value in read.items() if name not in old)


def test_an_older_evaluation_passes_the_checks_as_one_without_rules() -> None:
    labels = evaluate_result(OLD_RESULTS[RunnerJobKind.EVALUATE], labels=["a", "b"], n=1)
    assert labels.rule_answers == labels.ruled_latency_us == []
    texts = evaluate_causal_result(OLD_RESULTS[RunnerJobKind.EVALUATE_CAUSAL], answer={"type": "text"}, n=1)
    assert texts.rule_answers == texts.ruled_latency_us == []


@pytest.mark.parametrize(("kind", "side"), [(kind, side) for kind in sorted(WIRES) for side in (0, 1)])
def test_a_key_that_is_not_known_is_refused(kind: RunnerJobKind, side: int) -> None:
    with pytest.raises(ValueError, match="unknown"):
        WIRES[kind][side].from_json({"from_the_future": 1})


def test_a_key_without_a_default_is_missed() -> None:
    with pytest.raises(ValueError, match="missing \\['labels'\\]"):
        EvaluateJob.from_json({k: v for k, v in OLD_JOBS[RunnerJobKind.EVALUATE].items() if k != "labels"})
