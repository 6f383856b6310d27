"""The trials of a compile: one distillation and evaluation each, one after the other, until the rule of
`domain.planning.trials` wants no more. All but the first training happen inside the evaluation step.

`StepRun.trials` of that step is what a resumed process goes on from: a TrialRecord each. A trial's outcome and the
decision on the next trial are one transaction, so that no trial is offered twice and none is forgotten.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from backend.blobs import get_json, get_jsonl, put_json
from backend.compiles import leases
from backend.domain.errors import PaymentRequired
from backend.domain.jobs.runner_results import BadResult
from backend.domain.lifecycle import StepName
from backend.domain.planning.step_outputs import DistillationOut, EvaluationOut, LabelingOut, SlicingOut
from backend.domain.planning.trial_records import TrialRecord
from backend.domain.planning.trials import Trial, TrialOutcome, next_trial
from backend.runner_jobs.leases import result_of
from backend.runner_jobs.models import RunnerJob, RunnerJobStatus
from backend.usage.ledger import Fact
from workers.step.durable import CompileRun
from workers.step.runner_wait import RunnerJobFailed, RunnerRefused, Slot, result_or_wait, runner_facts, runner_ms_of
from workers.step.spending import capture, left_to_bill
from workers.teachers.protocol import TeacherFailed
from workers.training.abstaining import threshold_of
from workers.training.heldout import evaluation_of, gate_of, measure, score_of
from workers.training.job_work import evaluation_work, training_work
from workers.training.measurement import Measurement
from workers.training.on_policy import train
from workers.training.trial_jobs import (
    Trained,
    evaluate_offer,
    read_answered,
    read_trained,
    student_facts,
)

STEP = StepName.EVALUATION


def open_trial(run: CompileRun) -> int | None:
    """The number of the trial that is under way; None when all have ended."""
    with run.transaction():
        step = run.step(STEP)
        if not step.trials:
            first = run.step(StepName.DISTILLATION)
            trial = DistillationOut.from_json(first.output).trial
            jobs = (
                TrialRecord.from_json(first.trials[0]).jobs if first.trials else {"distill": str(first.runner_job_id)}
            )
            step.trials = [TrialRecord(trial=trial, jobs=jobs).to_json()]
            step.save(update_fields=["trials"])
        nth = len(step.trials) - 1
        return nth if TrialRecord.from_json(step.trials[nth]).outcome is None else None


def advance_trial(run: CompileRun, nth: int) -> bool:
    """Carry a trial as far as it goes now; False where a runner works and the lease was given back. A trial that fails
    on its runner ends the compile only when it is the first: what was measured before it stands."""
    trial = _record(run, nth).trial
    try:
        ended = _answers(run, nth, trial)
        if ended is None:
            return False
        measured, trained = ended
    except (RunnerJobFailed, RunnerRefused, BadResult, PaymentRequired, TeacherFailed) as error:
        if nth == 0 or (isinstance(error, TeacherFailed) and error.retryable):
            raise
        failed = TrialOutcome(trial=trial, passed=False, k_score_ppm=0, failure=error.code)
        _end(run, nth, failed, why_not=error.message)
        return True
    evaluation = evaluation_of(run, measured)
    score = score_of(run, evaluation, measured, trained)
    decision = gate_of(run, measured, evaluation, score, trained)
    outcome = TrialOutcome(
        trial=trial,
        passed=decision.passed,
        k_score_ppm=score.composite_ppm,
        first_failed=decision.first_failed,
        accuracy_ppm=evaluation.accuracy_ppm,
        cost_microusd=sum(fact.amount_microusd for _, fact in _runner_facts(run, nth)),
        **student_facts(trained),
    )
    _end(run, nth, outcome, evals=put_json(run.tenant_id, measured.to_json()))
    return True


def trained_in(run: CompileRun, nth: int) -> Trained:
    """The result of a trial's training."""
    record = _record(run, nth)
    job = RunnerJob.objects.get(id=record.jobs["distill"])
    return read_trained(run, record.trial, result_of(job))


def trial_records(run: CompileRun) -> list[TrialRecord]:
    """The compile's trials so far, in their order."""
    with run.transaction():
        return list(map(TrialRecord.from_json, run.step(STEP).trials))


def _record(run: CompileRun, nth: int) -> TrialRecord:
    return trial_records(run)[nth]


def measurement_at(run: CompileRun, digest: str) -> Measurement:
    """The measurement that a blob keeps."""
    return Measurement.from_json(get_json(run.tenant_id, digest))


def _answers(run: CompileRun, nth: int, trial: Trial) -> tuple[Measurement, Trained] | None:
    """The measurement of a trial, and what was trained for it; None while a runner works."""
    distilled = train(run, STEP, trial, slot=Slot(trial=nth, role="distill"))
    if distilled is None:
        return None
    trained = read_trained(run, trial, distilled[1])
    heldout = get_jsonl(run.tenant_id, run.output(SlicingOut).gold_heldout)
    answered = result_or_wait(
        run, STEP, lambda: evaluate_offer(run, trained, heldout), slot=Slot(trial=nth, role="evaluate")
    )
    if answered is None:
        return None
    result = read_answered(run, trial, answered[1], n=len(heldout))
    labeled = run.output(LabelingOut)
    dataset = get_jsonl(run.tenant_id, labeled.dataset)
    threshold = threshold_of(run.spec, trained, labeled.cuts or ())
    return replace(measure(run, heldout, dataset, result), threshold=threshold), trained


def _end(run: CompileRun, nth: int, outcome: TrialOutcome, **ended: Any) -> None:
    """Write down what came of a trial, what it cost, and which one comes next."""
    # the first training was paid by its own step
    facts = [fact for role, fact in _runner_facts(run, nth) if nth or role == "evaluate"]
    with run.transaction() as fenced:
        capture(fenced, STEP, facts)
        step = run.step(STEP)
        records = list(map(TrialRecord.from_json, step.trials))
        records[nth] = replace(records[nth], outcome=outcome, **ended)
        following = next_trial(run.spec, outcomes_of(records), left_to_bill(fenced))
        if following is not None:
            records.append(TrialRecord(trial=following, jobs={}))
        step.trials = [record.to_json() for record in records]
        step.save(update_fields=["trials"])
        leases.note_progress(run.lease)
        _report(run, outcome, following)


def _runner_facts(run: CompileRun, nth: int) -> list[tuple[str, Fact]]:
    """The usage of runners for the trial's finished jobs, by what they did."""
    record = _record(run, nth)
    ended = []
    for role in ("pairs", "distill", "evaluate"):
        job = RunnerJob.objects.filter(id=record.jobs.get(role), status=RunnerJobStatus.SUCCEEDED).first()
        if job is not None:
            value, trial = result_of(job), record.trial
            is_evaluation = role == "evaluate"
            work = evaluation_work(run, trial, value) if is_evaluation else training_work(run, trial, job, value)
            facts = runner_facts(run, job, work, runner_ms_of(value))
            ended += [(role, fact) for fact in facts]
    return ended


def outcomes_of(records: Sequence[TrialRecord]) -> list[TrialOutcome]:
    """The outcomes of those that have ended."""
    return [record.outcome for record in records if record.outcome is not None]


def _report(run: CompileRun, outcome: TrialOutcome, following: Trial | None) -> None:
    if outcome.failure:
        trial = outcome.trial
        run.warn(
            "trial_failed",
            f"A further trial ({trial.kind}, rank {trial.rank}) came to nothing; the best of the others counts.",
            failure=outcome.failure,
            step=STEP.value,
        )
    if following is not None:
        message = f"another trial: {following.kind}, rank {following.rank}"
        run.progress(STEP, done=0, total=0, message=message)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenTrial:
    """The trial that the evaluation found best: what was trained, its measurement, and the `ranks` that all trials of
    its kind had."""

    trained: Trained
    measured: Measurement
    ranks: tuple[int, ...]


def chosen_trial(run: CompileRun) -> ChosenTrial:
    """Read the trial that the evaluation found best."""
    evaluation = run.output(EvaluationOut)
    trained = trained_in(run, evaluation.chosen)
    trials = [record.trial for record in trial_records(run)]
    kind = trials[evaluation.chosen].kind
    return ChosenTrial(
        trained=trained,
        measured=measurement_at(run, evaluation.evals),
        ranks=tuple(trial.rank for trial in trials if trial.kind is kind),
    )
