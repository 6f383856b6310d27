"""The held-out answers of one trial, judged where gold is: a runner predicts the inputs and never sees the answers.

Where rules were induced, the runner says what they answer beside what the model answers. The artifact is judged as it
will be served, rules first; rules that make it worse on held-out gold than the model alone are left out.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from backend.artifacts.receipting import as_integers
from backend.blobs import blob_size, get_jsonl
from backend.domain.evaluation.classification import PPM, evaluate
from backend.domain.evaluation.generative import evaluate_json, evaluate_text
from backend.domain.evaluation.kscore import AnyEvaluation, GateOptions, KScore, score_evaluation
from backend.domain.jobs.causal_jobs import EvaluateCausalResult
from backend.domain.lifecycle import StepName
from backend.domain.money.pricing import price_book
from backend.domain.spec.gold import leakage
from backend.domain.spec.parsing import JsonOutput, LabelOutput, Spec, TextOutput, label_names
from workers.durable import CompileRun
from workers.scoring.answer_checks import failed_checks
from workers.step.runner_wait import SKU
from workers.training.judging import judge_texts
from workers.training.trial_jobs import Answered, Trained

BASELINES = {"encoder": "frozen_encoder_logistic_regression", "causal": "base_constrained"}
CONDITIONS = ("latency_us_p50", "latency_us_p95", "n_latencies", "device", "leakage", "rules", "recipes")
_OF_CAUSAL = ("engine", "n_cut", "mean_tokens_milli")
_BY_ROW = ("predictions", "baseline_predictions", "failed", "verdicts", "baseline_failed")

Measured = dict[str, Any]


def measure(
    run: CompileRun, heldout: list[dict[str, str]], dataset: list[dict[str, Any]], result: Answered
) -> Measured:
    """What is kept of an evaluation: the answers, what was found of each, and the conditions. Whole numbers and texts.
    Of a text task the teacher is asked here."""
    leaks = {"leakage": _leakage(dataset, heldout)}
    own = _measured(run, heldout, result, _model_answers(result), result.latency_us) | leaks
    said = result.rule_answers
    ruled = [i for i, answer in enumerate(said) if answer is not None]
    if not ruled:
        return own | ({"rules": _rules_told(len(said), ruled, is_used=False)} if said else {})
    answers = [model if rule is None else rule for rule, model in zip(said, _model_answers(result), strict=True)]
    both = _measured(run, heldout, result, answers, result.ruled_latency_us) | leaks
    is_used = evaluation_of(run, both).marks_ppm >= evaluation_of(run, own).marks_ppm
    told = _rules_told(len(said), ruled, is_used=is_used) | {
        "marks_ppm": evaluation_of(run, both, rows=ruled).marks_ppm,
        "model_marks_ppm": evaluation_of(run, own, rows=ruled).marks_ppm,
    }
    if not is_used:
        return own | {"rules": told}
    return both | {"rules": told, "rule_rows": ruled, "model_predictions": _model_answers(result)}


def _model_answers(result: Answered) -> list[str]:
    return result.outputs if isinstance(result, EvaluateCausalResult) else result.predictions


def _rules_told(n: int, ruled: Sequence[int], *, is_used: bool) -> dict[str, Any]:
    """`is_used`: whether the rules answer in the artifact. `marks_ppm` is the sum of their marks on the rows that they
    answer, `model_marks_ppm` that of the model on the same rows."""
    told = {"is_used": is_used, "n_answered": len(ruled), "coverage_ppm": len(ruled) * PPM // n if n else 0}
    return told | {"marks_ppm": 0, "model_marks_ppm": 0}


def _measured(
    run: CompileRun, heldout: list[dict[str, str]], result: Answered, answers: list[str], latency_us: list[int]
) -> Measured:
    """With these answers. `confidences_ppm` are the model's, also where a rule answered."""
    if isinstance(result, EvaluateCausalResult):
        bare = result.baseline_outputs
        more: Measured = {
            "engine": as_integers(result.engine),
            "n_cut": sum(reason != "stop" for reason in result.finish_reasons),
            "mean_tokens_milli": 1000 * sum(result.n_tokens) // max(1, len(result.n_tokens)),
        }
    else:
        bare, more = result.baseline_predictions, {}
    measured = {
        "kind": "causal" if more else "encoder",
        "predictions": answers,
        "baseline_predictions": bare,
        "confidences_ppm": [round(value * 1_000_000) for value in result.confidences],
        **latencies(latency_us),
        "device": result.device,
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


def latencies(values: Sequence[int]) -> dict[str, int]:
    ordered = sorted(values)
    return {
        "latency_us_p50": ordered[len(ordered) // 2],
        "latency_us_p95": ordered[min(len(ordered) - 1, len(ordered) * 95 // 100)],
        "n_latencies": len(ordered),
    }


def _leakage(dataset: list[dict[str, Any]], heldout: list[dict[str, str]]) -> dict[str, int]:
    leaks = leakage([row["input"] for row in dataset], [row["input"] for row in heldout])
    return {"n_exact": len(leaks.exact), "n_near": len(leaks.near)}


def evaluation_of(run: CompileRun, measured: Measured, *, rows: Sequence[int] | None = None) -> AnyEvaluation:
    """The held-out figures from what was measured: accuracy with interval, tables, baselines. `rows`: those alone."""
    with run.fenced():
        digests = {name: run.step(name).output["digests"] for name in (StepName.SLICING, StepName.LABELING)}
    heldout = get_jsonl(run.tenant_id, digests[StepName.SLICING]["gold_heldout"])
    gold = [row["output"] for row in heldout]
    if rows is not None:
        gold = [gold[i] for i in rows]
        measured = measured | {name: [measured[name][i] for i in rows] for name in _BY_ROW if name in measured}
    if not isinstance(run.spec.output, LabelOutput):
        return _generative(run.spec, gold, measured)
    dataset = get_jsonl(run.tenant_id, digests[StepName.LABELING]["dataset"])
    return evaluate(
        label_names(run.spec),
        gold,
        measured["predictions"],
        confidence=run.spec.gate.confidence,
        baselines={BASELINES[measured["kind"]]: measured["baseline_predictions"]},
        n_trained=Counter(row["label"] for row in dataset),
    )


def _generative(spec: Spec, gold: Sequence[str], measured: Mapping[str, Any]) -> AnyEvaluation:
    name, passed = BASELINES[measured["kind"]], [not why for why in measured["failed"]]
    if isinstance(spec.output, JsonOutput):
        return evaluate_json(
            spec.output,
            gold,
            measured["predictions"],
            passed=passed,
            baselines={name: measured["baseline_predictions"]},
            confidence=spec.gate.confidence,
        )
    assert isinstance(spec.output, TextOutput)
    return evaluate_text(
        spec.output,
        gold,
        measured["predictions"],
        passed=passed,
        wins=measured.get("verdicts", ()),
        baselines={name: [not why for why in measured["baseline_failed"]]} if "baseline_failed" in measured else None,
        confidence=spec.gate.confidence,
    )


def score_of(run: CompileRun, evaluation: AnyEvaluation, measured: Measured, trained: Trained) -> KScore:
    """The K-score: what is shipped is the adapter with its pack and rules, a call costs its median time on a runner."""
    p50_us = int(measured["latency_us_p50"])
    usd_per_second = price_book().prices[SKU].usd_per_unit
    rules = rules_shipped(run, measured)
    shipped = [trained.adapter_sha256, measured.get("recipes", {}).get("pack_sha256", ""), rules]
    return score_evaluation(
        evaluation,
        size_bytes=sum(blob_size(run.tenant_id, digest) for digest in shipped if digest),
        p50_us=p50_us,
        cost_nanousd=int(usd_per_second * p50_us * 1000),
        rule_coverage_ppm=measured["rules"]["coverage_ppm"] if rules else 0,
    )


def rules_shipped(run: CompileRun, measured: Measured) -> str:
    """The digest of the rules.json that the artifact gets; "" for none."""
    if not measured.get("rules", {}).get("is_used"):
        return ""
    with run.fenced():
        return str(run.step(StepName.LABELING).output["digests"].get("rules", ""))


def gate_options(spec: Spec) -> GateOptions:
    return GateOptions(**spec.gate.model_dump())


def public_evaluation(evaluation: AnyEvaluation, measured: Measured) -> dict[str, Any]:
    """What the API and the artifact show: figures and conditions."""
    return evaluation.to_json() | conditions(measured)


def conditions(measured: Measured) -> dict[str, Any]:
    return {name: measured[name] for name in (*CONDITIONS, *_OF_CAUSAL) if name in measured}
