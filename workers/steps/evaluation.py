"""Evaluation: a runner answers the held-out inputs without their answers; the figures are computed here, where gold
is. Where the task allows it and the gate asks for it, further trials are trained and measured (`trials`); the best one
is what the gate judges and what is packaged, with the recipe pack that is made for it (`recipes`)."""

from backend.blobs import get_json
from backend.domain.lifecycle import StepName
from backend.domain.planning.trials import best
from workers.durable import CompileRun
from workers.step.result import StepDone, StepWaiting, finish_step
from workers.training.heldout import conditions, evaluation_of
from workers.training.recipes import pack_recipes
from workers.training.trials import Row, go_on, open_trial, outcomes, rows_of, trained_in


def run_evaluation(run: CompileRun) -> StepDone | StepWaiting:
    while (nth := open_trial(run)) is not None:
        run.stop.check()
        if not go_on(run, nth):
            return StepWaiting()
    chosen = best(outcomes(rows_of(run)))
    if not pack_recipes(run, chosen):
        return StepWaiting()
    rows = rows_of(run)
    digest, trained = rows[chosen]["evals"], trained_in(run, chosen)
    measured = get_json(run.tenant_id, digest)
    with run.fenced():
        heldout = run.step(StepName.SLICING).output["digests"]["gold_heldout"]
    facts = evaluation_of(run, measured).to_json() | conditions(measured)
    done = StepDone(
        inputs={"adapter": trained.adapter_sha256, "gold_heldout": heldout},
        outputs={"evals": digest},
        facts=facts | {"trials": [_told(row) for row in rows], "chosen": chosen},
    )
    with run.fenced() as compile:
        finish_step(run, compile, StepName.EVALUATION, done)
    return done


def _told(row: Row) -> Row:
    """A trial as receipts and the API tell it."""
    own = {name: row[name] for name in ("accuracy_ppm", "first_failed", "evals", "why_not") if name in row}
    told: Row = row["outcome"] | row["trial"] | own
    del told["trial"]
    return told
