"""The held-out answers of one trial, judged where gold is: a runner predicts the inputs and never sees the answers."""

from collections import Counter
from typing import Any

from backend.artifacts.receipting import as_integers
from backend.blobs import get_blob, get_jsonl
from backend.domain.causal_jobs import EvaluateCausalResult
from backend.domain.evaluation import evaluate
from backend.domain.generative_evaluation import evaluate_json, evaluate_text
from backend.domain.gold import leakage
from backend.domain.kscore import AnyEvaluation, GateOptions, KScore, score_evaluation
from backend.domain.lifecycle import StepName
from backend.domain.pricing import price_book
from backend.domain.spec import JsonOutput, LabelOutput, Spec, TextOutput, label_names
from workers.durable import CompileRun
from workers.scoring.answer_checks import failed_checks
from workers.stages.pairwise_judging import judge_texts
from workers.stages.runner_work import SKU
from workers.stages.trial_jobs import Answered, Trained

BASELINES = {"encoder": "frozen_encoder_logistic_regression", "causal": "base_constrained"}
CONDITIONS = ("latency_us_p50", "latency_us_p95", "n_latencies", "device", "leakage")
_OF_CAUSAL = ("engine", "n_cut", "mean_tokens_milli")


def measure(
    run: CompileRun, heldout: list[dict[str, str]], dataset: list[dict[str, Any]], result: Answered
) -> dict[str, Any]:
    """What is kept of an evaluation: the answers, what was found of each, and the conditions. Whole numbers and texts.
    Of a text task the teacher is asked here."""
    if isinstance(result, EvaluateCausalResult):
        answers, bare = result.outputs, result.baseline_outputs
        more: dict[str, Any] = {
            "engine": as_integers(result.engine),
            "n_cut": sum(reason != "stop" for reason in result.finish_reasons),
            "mean_tokens_milli": 1000 * sum(result.n_tokens) // max(1, len(result.n_tokens)),
        }
    else:
        answers, bare, more = result.predictions, result.baseline_predictions, {}
    measured = {
        "kind": "causal" if more else "encoder",
        "predictions": answers,
        "baseline_predictions": bare,
        "confidences_ppm": [round(value * 1_000_000) for value in result.confidences],
        **_latency(result.latency_us),
        "device": result.device,
        "leakage": _leakage(dataset, heldout),
        **more,
    }
    if isinstance(run.spec.output, LabelOutput):
        return measured
    measured["failed"] = failed_checks(run.spec.output, _asked(heldout, answers))
    if isinstance(run.spec.output, TextOutput) and run.spec.output.accuracy == "judge":
        measured["verdicts"] = judge_texts(run, heldout, answers, measured["failed"])
    elif isinstance(run.spec.output, TextOutput):
        measured["baseline_failed"] = failed_checks(run.spec.output, _asked(heldout, bare))
    return measured


def _asked(heldout: list[dict[str, str]], answers: list[str]) -> list[tuple[str, str]]:
    return [(row["input"], answer) for row, answer in zip(heldout, answers, strict=True)]


def _latency(values: list[int]) -> dict[str, int]:
    ordered = sorted(values)
    return {
        "latency_us_p50": ordered[len(ordered) // 2],
        "latency_us_p95": ordered[min(len(ordered) - 1, len(ordered) * 95 // 100)],
        "n_latencies": len(ordered),
    }


def _leakage(dataset: list[dict[str, Any]], heldout: list[dict[str, str]]) -> dict[str, int]:
    leaks = leakage([row["input"] for row in dataset], [row["input"] for row in heldout])
    return {"n_exact": len(leaks.exact), "n_near": len(leaks.near)}


def evaluation_of(run: CompileRun, measured: dict[str, Any]) -> AnyEvaluation:
    """The held-out figures from what was measured: accuracy with interval, tables, baselines."""
    with run.fenced():
        digests = {name: run.step(name).output["digests"] for name in (StepName.SLICING, StepName.LABELING)}
    heldout = get_jsonl(run.tenant_id, digests[StepName.SLICING]["gold_heldout"])
    gold = [row["output"] for row in heldout]
    name, passed = BASELINES[measured["kind"]], [not why for why in measured.get("failed", ())]
    baselines = {name: measured["baseline_predictions"]}
    confidence = run.spec.gate.confidence
    if isinstance(run.spec.output, LabelOutput):
        dataset = get_jsonl(run.tenant_id, digests[StepName.LABELING]["dataset"])
        return evaluate(
            label_names(run.spec),
            gold,
            measured["predictions"],
            confidence=confidence,
            baselines=baselines,
            n_trained=Counter(row["label"] for row in dataset),
        )
    if isinstance(run.spec.output, JsonOutput):
        return evaluate_json(
            run.spec.output, gold, measured["predictions"], passed=passed, baselines=baselines, confidence=confidence
        )
    return evaluate_text(
        run.spec.output,
        gold,
        measured["predictions"],
        passed=passed,
        wins=measured.get("verdicts", ()),
        baselines={name: [not why for why in measured["baseline_failed"]]} if "baseline_failed" in measured else None,
        confidence=confidence,
    )


def score_of(run: CompileRun, evaluation: AnyEvaluation, measured: dict[str, Any], trained: Trained) -> KScore:
    """The K-score: what is shipped is the adapter blob, a call costs its median time on a runner."""
    p50_us = int(measured["latency_us_p50"])
    usd_per_second = price_book().prices[SKU].usd_per_unit
    return score_evaluation(
        evaluation,
        size_bytes=len(get_blob(run.tenant_id, trained.adapter_sha256)),
        p50_us=p50_us,
        cost_nanousd=int(usd_per_second * p50_us * 1000),
    )


def gate_options(spec: Spec) -> GateOptions:
    return GateOptions(**spec.gate.model_dump())


def public_evaluation(evaluation: AnyEvaluation, measured: dict[str, Any]) -> dict[str, Any]:
    """What the API and the artifact show: figures and conditions."""
    return evaluation.to_json() | conditions(measured)


def conditions(measured: dict[str, Any]) -> dict[str, Any]:
    return {name: measured[name] for name in (*CONDITIONS, *_OF_CAUSAL) if name in measured}
