"""Evaluation: a runner answers the held-out inputs without their answers; the figures are computed here, where gold
is. Where the task allows it and the gate asks for it, further trials are trained and measured (`trials`); the best one
is what the gate judges and what is packaged, with the recipe pack that is made for it (`recipes`). The teacher's own
answers stand beside it (`alternatives`)."""

from backend.blobs import put_json
from backend.domain.lifecycle import StepName
from backend.domain.planning.step_outputs import EvaluationOut, SlicingOut
from backend.domain.planning.trials import best
from workers.step.durable import CompileRun
from workers.step.result import StepDone, StepWaiting, finish_step
from workers.training.alternatives import with_teacher
from workers.training.heldout import evaluation_of, public_evaluation
from workers.training.recipes import pack_recipes
from workers.training.trials import advance_trial, measurement_at, open_trial, outcomes_of, trained_in, trial_records


def run_evaluation(run: CompileRun) -> StepDone | StepWaiting:
    while (nth := open_trial(run)) is not None:
        run.stop.check()
        if not advance_trial(run, nth):
            return StepWaiting()
    chosen = best(outcomes_of(trial_records(run)))
    if not pack_recipes(run, chosen):
        return StepWaiting()
    records, trained = trial_records(run), trained_in(run, chosen)
    measured = with_teacher(run, measurement_at(run, records[chosen].evals))
    output = EvaluationOut(
        evals=put_json(run.tenant_id, measured.to_json()),
        figures=public_evaluation(run, evaluation_of(run, measured), measured),
        trials=[record.summary() for record in records],
        chosen=chosen,
    )
    inputs = {"adapter": trained.adapter_sha256, "gold_heldout": run.output(SlicingOut).gold_heldout}
    done = StepDone(inputs=inputs, output=output)
    with run.transaction() as fenced:
        finish_step(run, fenced, StepName.EVALUATION, done)
    return done
