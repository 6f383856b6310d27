"""Work that a runner does: offered once, waited for without holding a lease, read back when it is done."""

import math
from collections.abc import Callable
from typing import Any

from backend.compiles import leases
from backend.domain.errors import OurError
from backend.domain.lifecycle import StepName
from backend.domain.pricing import cost_microusd, price_book
from backend.runner_jobs import leases as job_leases
from backend.runner_jobs.leases import Offer
from backend.runner_jobs.models import RunnerJob, RunnerJobStatus
from backend.usage.ledger import Fact
from workers.durable import CompileRun

SAFETY_POLL_S = 30.0  # a report wakes the compile at once; this only bounds what a lost wake-up costs
SKU = "runner.second"


class RunnerJobFailed(OurError):
    code = "runner_failed"


def result_or_wait(
    run: CompileRun, step: StepName, make_offer: Callable[[], Offer]
) -> tuple[RunnerJob, dict[str, Any]] | None:
    """The finished job and its result; None after the lease was given back because a runner still works. Raises
    RunnerJobFailed."""
    with run.fenced():
        row = run.step(step)
        job = None if row.runner_job_id is None else RunnerJob.objects.get(id=row.runner_job_id)
    if job is None:
        offer = make_offer()
        with run.fenced() as compile:
            row = run.step(step)
            job = job_leases.offer(compile.tenant_id, offer, compile_id=compile.id, step=step)
            row.runner_job_id = job.id
            row.save(update_fields=["runner_job_id"])
            run.progress(step, done=0, total=0, message="waiting for a runner")
            leases.release(run.lease, due_in_s=SAFETY_POLL_S)
        return None
    with run.fenced():
        job.refresh_from_db()
        if job.status in (RunnerJobStatus.QUEUED, RunnerJobStatus.LEASED):
            leases.release(run.lease, due_in_s=SAFETY_POLL_S)
            return None
    if job.status != RunnerJobStatus.SUCCEEDED:
        raise RunnerJobFailed(
            f"The runner could not finish {step}: {job_leases.error_of(job)}", code=job.error_code or None
        )
    return job, job_leases.result_of(job)


def runner_fact(job: RunnerJob, runner_ms: int) -> Fact:
    """Runner seconds as one fact a job, rounded up to whole seconds; what the runner says, but never more than it had
    the job."""
    book = price_book()
    if job.started_at is not None and job.ended_at is not None:
        runner_ms = min(runner_ms, math.ceil((job.ended_at - job.started_at).total_seconds() * 1000))
    seconds = max(1, -(-runner_ms // 1000))
    return Fact(
        sku=SKU,
        quantity=seconds,
        unit="second",
        amount_microusd=cost_microusd(seconds, book.prices[SKU]),
        price_version=book.version,
        source_key=f"runner:{job.id}",
    )
