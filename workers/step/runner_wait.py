"""Work that a runner does: offered once, waited for without holding a lease, read back when it is done."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from backend.compiles import leases
from backend.compiles.models import StepRun
from backend.domain.errors import CustomerError, OurError
from backend.domain.lifecycle import StepName
from backend.domain.money.pricing import PriceBook, cost_microusd
from backend.domain.money.runner_work import SECOND, Work, bills_work, cost_of, costs_of
from backend.domain.planning.trial_records import TrialRecord
from backend.runner_jobs import leases as job_leases
from backend.runner_jobs.leases import Offer
from backend.runner_jobs.models import RunnerJob, RunnerJobStatus
from backend.usage.ledger import Fact
from workers.step.durable import CompileRun

SAFETY_POLL_S = 30.0  # a report wakes the compile at once; this only bounds what a lost wake-up costs

# of a runner's failures those that another base, or other options, can mend; whatever else fails is ours
THEIRS = frozenset(
    {
        "not_causal",
        "diverged",
        "nothing_to_train",
        "tokenizers_differ",
        "not_on_this_device",
        "bad_chat",
        "unknown_base",
        "gated_base",
        "base_too_large",
        "base_truncated",
        "base_needs_remote_code",
        "base_without_tokenizer",
        "base_wrong_architecture",
        "base_unsupported",
        "unsupported_base",
    }
)


class RunnerJobFailed(OurError):
    code = "runner_failed"


class RunnerRefused(CustomerError):
    """A demand of the spec that no runner can meet: another base, or other options, can mend it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """The place of a job in a step that has several: that of a trial (by its number), and what it does there."""

    trial: int
    role: str


def result_or_wait(
    run: CompileRun, step: StepName, make_offer: Callable[[], Offer], *, slot: Slot | None = None
) -> tuple[RunnerJob, dict[str, Any]] | None:
    """The finished job and its result; None after the lease was given back because a runner still works. Raises
    RunnerJobFailed, and RunnerRefused where the spec is the reason."""
    job = _find_job(run, step, slot)
    if job is None:
        offer = make_offer()
        with run.transaction() as fenced:
            job = job_leases.offer(fenced.compile.tenant_id, offer, compile_id=fenced.compile.id, step=step)
            _note(run.step(step), slot, job)
            run.progress(step, done=0, total=0, message="waiting for a runner")
            leases.release(run.lease, due_in_s=SAFETY_POLL_S)
        return None
    with run.transaction():
        job.refresh_from_db()
        if job.status in (RunnerJobStatus.QUEUED, RunnerJobStatus.LEASED):
            leases.release(run.lease, due_in_s=SAFETY_POLL_S)
            return None
    if job.status != RunnerJobStatus.SUCCEEDED:
        failure = RunnerRefused if job.error_code in THEIRS else RunnerJobFailed
        raise failure(f"The runner could not finish {step}: {job_leases.error_of(job)}", code=job.error_code or None)
    return job, job_leases.result_of(job)


def _find_job(run: CompileRun, step: StepName, slot: Slot | None) -> RunnerJob | None:
    """The job that was offered before. A resumed compile has forgotten the one that was waited for: a slot's job that
    came to nothing is offered anew."""
    with run.transaction():
        row = run.step(step)
        waited_for = None if row.runner_job_id is None else str(row.runner_job_id)
        id = waited_for if slot is None else _record(row, slot).jobs.get(slot.role)
        job = None if id is None else RunnerJob.objects.get(id=id)
        is_lost = job is not None and id != waited_for and job.status != RunnerJobStatus.SUCCEEDED
        return None if is_lost else job


def _note(row: StepRun, slot: Slot | None, job: RunnerJob) -> None:
    row.runner_job_id = job.id
    if slot is not None:
        record = _record(row, slot)
        row.trials[slot.trial] = replace(record, jobs={**record.jobs, slot.role: str(job.id)}).to_json()
    row.save(update_fields=["runner_job_id", "trials"])


def _record(row: StepRun, slot: Slot) -> TrialRecord:
    return TrialRecord.from_json(row.trials[slot.trial])


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWork:
    """The work that a job is billed by: `done` as its runner counted it, None where it counted nothing; `most` is what
    the data that it was given can amount to."""

    done: Work | None
    most: Work


def runner_facts(run: CompileRun, job: RunnerJob, work: JobWork, runner_ms: int) -> list[Fact]:
    """The facts of a finished job: its work at the prices of the compile's book. Seconds where that book has none, or
    where the runner counted nothing: then no more of them than the most work costs."""
    if not bills_work(run.book):
        return [_seconds_fact(run.book, job, _seconds(job, runner_ms))]
    if work.done is None:
        most = cost_of(work.most, run.book) // cost_microusd(1, run.book.prices[SECOND])
        return [_seconds_fact(run.book, job, min(_seconds(job, runner_ms), max(1, most)))]
    done = {sku: min(n, work.most.get(sku, 0)) for sku, n in work.done.items()}
    return [
        Fact(
            sku=part.sku,
            quantity=part.quantity,
            unit=part.unit,
            amount_microusd=part.amount_microusd,
            price_version=run.book.version,
            source_key=f"runner:{job.id}:{part.sku}",
        )
        for part in costs_of(done, run.book)
    ]


def _seconds(job: RunnerJob, runner_ms: int) -> int:
    """Whole seconds, rounded up, as the runner says, but never more than it had the job."""
    if job.started_at is not None and job.ended_at is not None:
        runner_ms = min(runner_ms, math.ceil((job.ended_at - job.started_at).total_seconds() * 1000))
    return max(1, -(-runner_ms // 1000))


def _seconds_fact(book: PriceBook, job: RunnerJob, seconds: int) -> Fact:
    return Fact(
        sku=SECOND,
        quantity=seconds,
        unit="second",
        amount_microusd=cost_microusd(seconds, book.prices[SECOND]),
        price_version=book.version,
        source_key=f"runner:{job.id}",
    )


def runner_nanousd(own_us: int, book: PriceBook) -> int:
    """The price of so many microseconds of a runner, in nano-USD, rounded down."""
    return int(book.prices[SECOND].usd_per_unit * own_us * 1000)


def runner_ms_of(result: dict[str, Any]) -> int:
    """The runner's own time, of a result that need not be one."""
    runner_ms = result.get("runner_ms")
    return runner_ms if isinstance(runner_ms, int) and runner_ms > 0 else 0
