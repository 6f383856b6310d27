"""The held-out answers of one trial, judged where gold is: a runner predicts the inputs and never sees the answers.

Where rules were induced, the runner says what they answer beside what the model answers. The artifact is judged as it
will be served, rules first; rules that make it worse on held-out gold than the model alone are left out.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from backend.artifacts.receipting import as_integers
from backend.blobs import blob_size, get_jsonl
from backend.domain.evaluation.classification import PPM, evaluate
from backend.domain.evaluation.gate import GateDecision, decide_gate
from backend.domain.evaluation.gate_floors import K_MIN_OF, GateOptions
from backend.domain.evaluation.generative import are_right, evaluate_json, evaluate_text
from backend.domain.evaluation.kscore import AnyEvaluation, KScore, score_evaluation
from backend.domain.evaluation.means import Means
from backend.domain.evaluation.own_time import Clock, OwnTime, Unit, own_time
from backend.domain.jobs.causal_jobs import DistillCausalResult, EvaluateCausalResult
from backend.domain.jobs.runner_jobs import DistillResult, EvaluateResult
from backend.domain.jobs.span_jobs import EvaluateSpansResult
from backend.domain.jobs.students import Student
from backend.domain.planning.step_outputs import LabelingOut, SlicingOut
from backend.domain.planning.trials import TrialKind
from backend.domain.spec.gold import leakage
from backend.domain.spec.parsing import JsonOutput, LabelOutput, Spec, TextOutput, label_names
from workers.scoring.answer_checks import failed_checks
from workers.step.durable import CompileRun
from workers.step.runner_wait import runner_nanousd
from workers.training.abstaining import confidence_figures
from workers.training.alternatives import BASELINES, alternatives_of, common_answer
from workers.training.judging import judge_texts
from workers.training.measurement import Measurement, RuleShare, quantiles_us
from workers.training.trial_jobs import Answered, Trained, random_labels


def measure(
    run: CompileRun, heldout: list[dict[str, str]], dataset: list[dict[str, Any]], result: Answered
) -> Measurement:
    """Measure what is kept of an evaluation. Of a text task the teacher is asked here."""
    shared: dict[str, Any] = {"leakage": _leakage(dataset, heldout), "common_answer": common_answer(run.spec, dataset)}
    own = replace(_measure_answers(run, heldout, result, _model_answers(result), is_ruled=False), **shared)
    of_rules = result.rule_answers
    ruled = [i for i, answer in enumerate(of_rules) if answer is not None]
    if not ruled:
        return replace(own, rules=_rule_share(len(of_rules), ruled, is_used=False)) if of_rules else own
    answers = [model if rule is None else rule for rule, model in zip(of_rules, _model_answers(result), strict=True)]
    both = replace(_measure_answers(run, heldout, result, answers, is_ruled=True), **shared)
    is_used = evaluation_of(run, both).marks_ppm >= evaluation_of(run, own).marks_ppm
    share = replace(
        _rule_share(len(of_rules), ruled, is_used=is_used),
        marks_ppm=evaluation_of(run, both, rows=ruled).marks_ppm,
        model_marks_ppm=evaluation_of(run, own, rows=ruled).marks_ppm,
    )
    if not is_used:
        return replace(own, rules=share)
    return replace(both, rules=share, rule_rows=ruled, model_predictions=_model_answers(result))


def _model_answers(result: Answered) -> list[str]:
    return result.predictions if isinstance(result, EvaluateResult) else result.outputs


def _rule_share(n: int, ruled: Sequence[int], *, is_used: bool) -> RuleShare:
    return RuleShare(is_used=is_used, n_answered=len(ruled), coverage_ppm=len(ruled) * PPM // n if n else 0)


def _measure_answers(
    run: CompileRun, heldout: list[dict[str, str]], result: Answered, answers: list[str], *, is_ruled: bool
) -> Measurement:
    """The measurement with these answers, the rules' before the model's or the model's alone."""
    latency_us = result.ruled_latency_us if is_ruled else result.latency_us
    p50, p95 = quantiles_us(latency_us)
    bare = result.baseline_predictions if isinstance(result, EvaluateResult) else result.baseline_outputs
    measured = Measurement(
        kind=_kind_of(result),
        predictions=answers,
        baseline_predictions=bare,
        **(_heads(run, heldout, result) if isinstance(result, EvaluateResult) else {}),
        fields=result.fields if isinstance(result, EvaluateSpansResult) else None,
        confidences_ppm=[round(value * 1_000_000) for value in result.confidences],
        device=result.device,
        latency_us_p50=p50,
        latency_us_p95=p95,
        n_latencies=len(latency_us),
        own=_own_time(unit_of(run.spec, _kind_of(result)), result, result.ruled_own_ns if is_ruled else result.own_ns),
    )
    if isinstance(result, EvaluateCausalResult):
        measured = replace(
            measured,
            engine=as_integers(result.engine),
            n_cut=sum(reason != "stop" for reason in result.finish_reasons),
            mean_tokens_milli=1000 * sum(result.n_tokens) // max(1, len(result.n_tokens)),
        )
    output = run.spec.output
    if isinstance(output, LabelOutput):
        return measured
    failed = failed_checks(output, _with_inputs(heldout, answers))
    measured = replace(measured, failed=failed)
    if isinstance(output, TextOutput) and output.accuracy == "judge":
        return replace(measured, verdicts=judge_texts(run, heldout, answers, failed))
    if isinstance(output, TextOutput):
        return replace(measured, baseline_failed=failed_checks(output, _with_inputs(heldout, bare)))
    return measured


def _kind_of(result: Answered) -> TrialKind:
    if isinstance(result, EvaluateCausalResult):
        return TrialKind.CAUSAL
    return TrialKind.SPANS if isinstance(result, EvaluateSpansResult) else TrialKind.ENCODER


def _heads(run: CompileRun, heldout: list[dict[str, str]], result: EvaluateResult) -> dict[str, Any]:
    """The measurements of heads on the frozen base, beside the one on the pairs that train."""
    timed, clock = result.head_own_ns, result.own_clock
    return {
        "gold_predictions": result.gold_predictions or None,
        "random_predictions": result.random_predictions or None,
        "n_random": len(random_labels(run, heldout)) if result.random_predictions else None,
        "head_own": own_time(Unit.ANSWER, Clock(clock), timed, [1] * len(timed), reference_ns=result.head_reference_ns)
        if timed
        else None,
    }


def _own_time(unit: Unit, result: Answered, times_ns: list[int]) -> OwnTime | None:
    """The time by the answer, or by the token: then a rule's answer counts the tokens that it saves."""
    if not times_ns:
        return None
    by_token = unit is Unit.TOKEN and isinstance(result, EvaluateCausalResult)
    units = result.own_tokens if by_token and isinstance(result, EvaluateCausalResult) else [1] * len(times_ns)
    return own_time(unit, Clock(result.own_clock), times_ns, units, reference_ns=result.own_reference_ns)


def unit_of(spec: Spec, kind: TrialKind) -> Unit:
    """The unit by which the time of a task's answers is scored: what writes no tokens answers as a whole."""
    return Unit.ANSWER if isinstance(spec.output, LabelOutput) or kind is TrialKind.SPANS else Unit.TOKEN


def _with_inputs(heldout: list[dict[str, str]], answers: list[str]) -> list[tuple[str, str]]:
    return [(row["input"], answer) for row, answer in zip(heldout, answers, strict=True)]


def _leakage(dataset: list[dict[str, Any]], heldout: list[dict[str, str]]) -> dict[str, int]:
    leaks = leakage([row["input"] for row in dataset], [row["input"] for row in heldout])
    return {"n_exact": len(leaks.exact), "n_near": len(leaks.near)}


def heldout_gold(run: CompileRun) -> list[str]:
    """The right answers to the held-out inputs."""
    return [row["output"] for row in get_jsonl(run.tenant_id, run.output(SlicingOut).gold_heldout)]


def evaluation_of(run: CompileRun, measured: Measurement, *, rows: Sequence[int] | None = None) -> AnyEvaluation:
    """The held-out figures from what was measured: accuracy with interval, tables, baselines. `rows`: those alone."""
    gold = heldout_gold(run)
    if rows is not None:
        gold = [gold[i] for i in rows]
        measured = measured.of_rows(rows)
    if not isinstance(run.spec.output, LabelOutput):
        return _generative(run.spec, gold, measured)
    dataset = get_jsonl(run.tenant_id, run.output(LabelingOut).dataset)
    return evaluate(
        label_names(run.spec),
        gold,
        measured.predictions,
        confidence=run.spec.gate.confidence,
        baselines={BASELINES[measured.kind].value: measured.baseline_predictions},
        n_trained=Counter(row["label"] for row in dataset),
    )


def _generative(spec: Spec, gold: Sequence[str], measured: Measurement) -> AnyEvaluation:
    name, passed = BASELINES[measured.kind].value, _have_passed(measured.failed or ())
    if isinstance(spec.output, JsonOutput):
        return evaluate_json(
            spec.output,
            gold,
            measured.predictions,
            passed=passed,
            baselines={name: measured.baseline_predictions},
            confidence=spec.gate.confidence,
        )
    assert isinstance(spec.output, TextOutput)
    bare = measured.baseline_failed
    theirs = None if bare is None else are_right(spec.output, gold, measured.baseline_predictions, _have_passed(bare))
    return evaluate_text(
        spec.output,
        gold,
        measured.predictions,
        passed=passed,
        wins=measured.verdicts or (),
        baselines=None if theirs is None else {name: theirs},
        confidence=spec.gate.confidence,
    )


def _have_passed(failed: Sequence[Sequence[str]]) -> list[bool]:
    return [not why for why in failed]


def score_of(run: CompileRun, evaluation: AnyEvaluation, measured: Measurement, trained: Trained) -> KScore:
    """The K-score: what is shipped is the adapter with its pack and rules, a call costs its own time on a runner."""
    own = measured.own_time(unit_of(run.spec, measured.kind))
    rules = measured.shipped_rules(run.output(LabelingOut))
    shipped = [trained.adapter_sha256, measured.pack_sha256, rules]
    return score_evaluation(
        evaluation,
        size_bytes=sum(blob_size(run.tenant_id, digest) for digest in shipped if digest),
        own=own,
        cost_nanousd=runner_nanousd(own.answer_us, run.book),
        p50_us=measured.latency_us_p50,
        rule_coverage_ppm=measured.used_rules.coverage_ppm if rules and measured.used_rules else 0,
    )


def gate_of(
    run: CompileRun,
    measured: Measurement,
    evaluation: AnyEvaluation,
    score: KScore,
    trained: Trained,
    *,
    ranks: Sequence[int] = (),
) -> GateDecision:
    """The gate's decision on what was trained; where the spec names no K-score, the kind of base does. `ranks` are
    those of all trials of its kind, for the advice."""
    gate = run.spec.gate.model_dump()
    is_causal = isinstance(trained, DistillCausalResult)
    if gate["k_min"] is None:
        gate["k_min"] = K_MIN_OF["causal" if is_causal else "encoder"]
    rank = trained.adapter_config.get("rank")
    return decide_gate(
        GateOptions(**gate),
        evaluation,
        score,
        rank=rank if isinstance(rank, int) else 1,
        alternatives=alternatives_of(run, measured),
        means=Means(
            is_causal=is_causal,
            ranks=tuple(ranks),
            has_slices=bool(run.spec.slices) or not run.spec.captures,
            is_frozen=isinstance(trained, DistillResult) and trained.student == Student.FROZEN,
        ),
    )


def public_evaluation(run: CompileRun, evaluation: AnyEvaluation, measured: Measurement) -> dict[str, Any]:
    """The part that receipts, the API and the artifact show: figures, alternatives and conditions."""
    asked = measured.teacher
    trusted = confidence_figures(run.spec, heldout_gold(run), measured)
    beside: dict[str, Any] = {"alternatives": [one.to_json() for one in alternatives_of(run, measured)]}
    skipped = {} if asked is None or not asked.why_not else {"teacher_why_not": asked.why_not}
    plan = run.output(LabelingOut).extraction_plan
    beside |= {} if plan is None else {"extraction": plan}
    return evaluation.to_json() | measured.conditions() | trusted | beside | skipped
