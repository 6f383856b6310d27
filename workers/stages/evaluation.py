"""Evaluation: a runner predicts the held-out inputs without their labels; the figures are computed here, where the
labels are."""

from collections import Counter
from typing import Any

from backend.blobs import get_blob, get_json, get_jsonl, put_json, put_jsonl
from backend.domain.evaluation import Evaluation, evaluate
from backend.domain.gold import leakage
from backend.domain.kscore import KScore, score_evaluation
from backend.domain.lifecycle import StepName
from backend.domain.pricing import price_book
from backend.domain.runner_jobs import DistillResult, EvaluateJob, EvaluateResult, RunnerJobKind
from backend.domain.runner_results import evaluate_result
from backend.domain.spec import label_names
from backend.runner_jobs.leases import Offer, result_of
from backend.runner_jobs.models import RunnerJob
from workers.durable import CompileRun
from workers.spending import settle
from workers.stages.outcome import Done, Waiting, finish_step
from workers.stages.runner_work import SKU, result_or_wait, runner_fact

BASELINE = "frozen_encoder_logistic_regression"


def distilled(run: CompileRun) -> DistillResult:
    """What the distillation step brought back."""
    with run.fenced():
        job = RunnerJob.objects.get(id=run.step(StepName.DISTILLATION).runner_job_id)
    return DistillResult.from_json(result_of(job))


def run_evaluation(run: CompileRun) -> Done | Waiting:
    trained = distilled(run)
    with run.fenced():
        heldout_digest = run.step(StepName.SLICING).output["digests"]["gold_heldout"]
        dataset_digest = run.step(StepName.LABELING).output["digests"]["dataset"]
    heldout = get_jsonl(run.tenant_id, heldout_digest)
    inputs = put_jsonl(run.tenant_id, [{"input": row["input"]} for row in heldout])
    job = EvaluateJob(
        base_model=run.spec.train.base,
        base_model_sha256=trained.base_model_sha256,
        labels=label_names(run.spec),
        adapter_sha256=trained.adapter_sha256,
        adapter_config=trained.adapter_config,
        temperature=trained.temperature,
        inputs_sha256=inputs,
    )
    found = result_or_wait(
        run,
        StepName.EVALUATION,
        lambda: Offer(kind=RunnerJobKind.EVALUATE, payload=job.to_json(), inputs=(trained.adapter_sha256, inputs)),
    )
    if found is None:
        return Waiting()
    row, value = found
    result = evaluate_result(value, labels=job.labels, n=len(heldout))
    measured = _measured(heldout, get_jsonl(run.tenant_id, dataset_digest), result)
    digest = put_json(run.tenant_id, measured)
    evaluation = evaluation_of(run, measured)
    done = Done(
        inputs={"adapter": trained.adapter_sha256, "gold_heldout": heldout_digest},
        outputs={"evals": digest},
        facts=evaluation.to_json() | _conditions(measured),
    )
    with run.fenced() as compile:
        settle(compile, StepName.EVALUATION, [runner_fact(row, result.runner_ms)])
        finish_step(run, compile, StepName.EVALUATION, done)
    return done


def evaluation_of(run: CompileRun, measured: dict[str, Any]) -> Evaluation:
    """The held-out figures from what was measured: accuracy with interval, per class, baselines, K-score."""
    with run.fenced():
        digests = {name: run.step(name).output["digests"] for name in (StepName.SLICING, StepName.LABELING)}
    heldout = get_jsonl(run.tenant_id, digests[StepName.SLICING]["gold_heldout"])
    dataset = get_jsonl(run.tenant_id, digests[StepName.LABELING]["dataset"])
    return evaluate(
        label_names(run.spec),
        [row["output"] for row in heldout],
        measured["predictions"],
        confidence=run.spec.gate.confidence,
        baselines={BASELINE: measured["baseline_predictions"]},
        n_trained=Counter(row["label"] for row in dataset),
    )


def score_of(run: CompileRun, evaluation: Evaluation, measured: dict[str, Any]) -> KScore:
    """The K-score: what is shipped is the adapter blob, a call costs its median time on a runner."""
    p50_us = int(measured["latency_us_p50"])
    usd_per_second = price_book().prices[SKU].usd_per_unit
    return score_evaluation(
        evaluation,
        size_bytes=len(get_blob(run.tenant_id, distilled(run).adapter_sha256)),
        p50_us=p50_us,
        cost_nanousd=int(usd_per_second * p50_us * 1000),
    )


def measured_of(run: CompileRun) -> dict[str, Any]:
    """What the evaluation step measured."""
    with run.fenced():
        digest = run.step(StepName.EVALUATION).output["digests"]["evals"]
    value: dict[str, Any] = get_json(run.tenant_id, digest)
    return value


def public_evaluation(evaluation: Evaluation, measured: dict[str, Any]) -> dict[str, Any]:
    """What the API and the artifact show: figures and conditions."""
    return evaluation.to_json() | _conditions(measured)


def _measured(heldout: list[dict[str, str]], dataset: list[dict[str, Any]], result: EvaluateResult) -> dict[str, Any]:
    latencies = sorted(result.latency_us)
    leaks = leakage([row["input"] for row in dataset], [row["input"] for row in heldout])
    return {
        "predictions": result.predictions,
        "baseline_predictions": result.baseline_predictions,
        "confidences_ppm": [round(value * 1_000_000) for value in result.confidences],
        "latency_us_p50": latencies[len(latencies) // 2],
        "latency_us_p95": latencies[min(len(latencies) - 1, len(latencies) * 95 // 100)],
        "n_latencies": len(latencies),
        "device": result.device,
        "leakage": {"n_exact": len(leaks.exact), "n_near": len(leaks.near)},
    }


def _conditions(measured: dict[str, Any]) -> dict[str, Any]:
    return {name: measured[name] for name in ("latency_us_p50", "latency_us_p95", "n_latencies", "device", "leakage")}
