"""Distillation: the pairs become a job for a runner; its adapter comes back as a blob with the log of how it was
trained. It is the first trial's; whether another is trained is decided in `evaluation`."""

from backend.blobs import get_json
from backend.domain.ids import Prefix, encode_id
from backend.domain.lifecycle import StepName
from backend.domain.planning.step_outputs import DistillationOut, LabelingOut
from backend.domain.planning.trials import first_trial
from backend.runner_jobs.leases import result_of
from workers.step.durable import CompileRun
from workers.step.result import StepDone, StepWaiting, finish_step
from workers.step.runner_wait import runner_facts, runner_ms_of
from workers.step.spending import capture
from workers.training.job_work import training_work
from workers.training.on_policy import first_job, train
from workers.training.trial_jobs import Trained, distill_facts, read_trained


def run_distillation(run: CompileRun) -> StepDone | StepWaiting:
    trial = first_trial(run.spec, extracts=bool(run.output(LabelingOut).extraction))
    finished = train(run, StepName.DISTILLATION, trial)
    if finished is None:
        return StepWaiting()
    row, value = finished
    result = read_trained(run, trial, value)
    output = DistillationOut(
        adapter=result.adapter_sha256,
        trial=trial,
        attempts=row.attempts,
        job=encode_id(Prefix.RUNNER_JOB, row.id),
        training=distill_facts(result),
    )
    facts = runner_facts(run, row, training_work(run, trial, row, value), result.runner_ms)
    before = first_job(run, StepName.DISTILLATION)
    if before is not None:
        brought = result_of(before)
        facts += runner_facts(run, before, training_work(run, trial, before, brought), runner_ms_of(brought))
    inputs = {"dataset": run.output(LabelingOut).dataset, "base": result.base_model_sha256}
    if before is not None:
        inputs["own_answers"] = get_json(run.tenant_id, row.payload_sha256)["dataset_sha256"]
    done = StepDone(inputs=inputs, output=output)
    with run.transaction() as fenced:
        capture(fenced, StepName.DISTILLATION, facts)
        _warn_of_left_out(run, result)
        _warn_of_soft_targets(run, result)
        _warn_of_own_answers(run, result)
        finish_step(run, fenced, StepName.DISTILLATION, done)
    return done


def _warn_of_left_out(run: CompileRun, trained: Trained) -> None:
    n = trained.active.get("n_too_long", 0)
    if n:
        run.warn(
            "pairs_too_long",
            f"{n} pairs are longer than train.causal.max_tokens or the base's context and were left out; raise it, or "
            "shorten the inputs.",
            step=StepName.DISTILLATION.value,
        )


def _warn_of_soft_targets(run: CompileRun, trained: Trained) -> None:
    """Warn where answers train on their tokens alone although the spec wants the teacher's distributions of them."""
    soft = trained.active.get("soft_targets")
    if soft and (soft["n_unmatched"] or not soft["n_matched"]):
        run.warn(
            "soft_targets_unused",
            f"{soft['n_matched']} pairs train on the teacher's distributions of tokens, {soft['n_unmatched']} on their "
            "tokens alone because the teacher's are others than the base's, the rest because it gave no log-probs; "
            "leave train.causal.soft_targets out, or take a base with the teacher's tokenizer.",
            step=StepName.DISTILLATION.value,
        )


def _warn_of_own_answers(run: CompileRun, trained: Trained) -> None:
    """Warn where answers of the student teach nothing because their tokens are not the teacher's."""
    own = trained.active.get("on_policy")
    if own and own["n_unmatched"]:
        run.warn(
            "own_answers_unused",
            f"{own['n_answers']} of the student's own answers train, {own['n_unmatched']} do not because the teacher's "
            "tokens of them are others than the base's; take a base with the teacher's tokenizer, or leave "
            "train.causal.on_policy out.",
            step=StepName.DISTILLATION.value,
        )
