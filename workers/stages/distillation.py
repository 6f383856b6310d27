"""Distillation: the pairs become a job for a runner; its adapter comes back as a blob with the log of how it was
trained."""

from backend.blobs import has_blob
from backend.domain.ids import Prefix, encode_id
from backend.domain.lifecycle import StepName
from backend.domain.runner_jobs import DistillJob, RunnerJobKind
from backend.domain.runner_results import BadResult, distill_result
from backend.domain.spec import label_names
from backend.runner_jobs.leases import Offer
from workers.durable import CompileRun
from workers.spending import settle
from workers.stages.outcome import Done, Waiting, finish_step
from workers.stages.runner_work import result_or_wait, runner_fact


def run_distillation(run: CompileRun) -> Done | Waiting:
    with run.fenced():
        dataset = run.step(StepName.LABELING).output["digests"]["dataset"]
    job = DistillJob(
        base_model=run.spec.train.base,
        labels=label_names(run.spec),
        dataset_sha256=dataset,
        train=run.spec.train.options().to_json(),
    )
    found = result_or_wait(
        run,
        StepName.DISTILLATION,
        lambda: Offer(kind=RunnerJobKind.DISTILL, payload=job.to_json(), inputs=(dataset,)),
    )
    if found is None:
        return Waiting()
    row, value = found
    result = distill_result(value)
    if not has_blob(run.tenant_id, result.adapter_sha256):
        raise BadResult("its adapter was never handed over")
    done = Done(
        inputs={"dataset": dataset, "base": result.base_model_sha256},
        outputs={"adapter": result.adapter_sha256},
        facts={
            "n_pairs": result.n_pairs,
            "n_parameters": result.n_parameters,
            "resumed_from_epoch": result.resumed_from_epoch,
            "runner_ms": result.runner_ms,
            "attempts": row.attempts,
            "active": result.active,
            "training_log": result.training_log,
            "job": encode_id(Prefix.RUNNER_JOB, row.id),
        },
    )
    with run.fenced() as compile:
        settle(compile, StepName.DISTILLATION, [runner_fact(row, result.runner_ms)])
        finish_step(run, compile, StepName.DISTILLATION, done)
    return done
