"""Preemption of a job at work: at a heartbeat it is asked to give its runner to another tenant's, by
`fair_turns.preemptions`. It hands over a checkpoint, is queued again, and goes on from there when its turn comes."""

from datetime import datetime

from django.conf import settings
from django.utils import timezone

from backend.domain.jobs.fair_turns import AT_ONCE, Preemption, WorkingJob, preemptions
from backend.domain.jobs.runner_jobs import RunnerJobKind
from backend.runner_jobs.models import Runner, RunnerJob, RunnerJobStatus
from backend.runner_jobs.turns import first_in_turn, used_lately

IDLE_S = 5.0  # a runner that is free has taken a job by then
GIVES_WAY_WITHIN_S = 180.0  # who was asked, and is still at work after that, is not counted on: a release of before


def must_give_way(job: RunnerJob) -> bool:
    """Say whether this leased job is to give its runner back; it is asked until it does. In the transaction of its
    heartbeat, whose row it is.

    Only a job that has handed over a checkpoint since it was leased is asked: whatever cannot make one works on, and
    each turn of what can brings it further."""
    if job.preempt_asked_at is not None:
        return True
    now = timezone.now()
    ran_s = (now - job.started_at).total_seconds() if job.started_at else 0.0
    if not settings.KOLM_RUNNER_SLICE_S or ran_s < settings.KOLM_RUNNER_SLICE_S or job.attempts_in_vain:
        return False
    asked = {one.job_id for one in due_preemptions(now) if not one.in_s}
    if job.id not in asked:
        return False
    RunnerJob.objects.filter(id=job.id).update(preempt_asked_at=now)
    return True


def due_preemptions(now: datetime) -> list[Preemption]:
    """Each job at work that gives way, now or when its slice is over, to the tenant that it gives way to."""
    working = [job for job in jobs_at_work(now) if job.may_stop or job.is_asked]
    if not working:
        return []
    kinds = frozenset[RunnerJobKind]().union(*(job.kinds for job in working))
    # of a kind each job at work is given to one, and passed over by one of its own tenant, at most
    heads = first_in_turn(now, kinds, idle_s=IDLE_S, most=2 * len(working))
    if not heads:
        return []
    used_s = used_lately(of={job.tenant_id for job in (*working, *heads)})
    return preemptions(working, heads, used_s, slice_s=float(settings.KOLM_RUNNER_SLICE_S))


def jobs_at_work(now: datetime) -> list[WorkingJob]:
    """The leased jobs that take turns."""
    rows = RunnerJob.objects.filter(status=RunnerJobStatus.LEASED).exclude(kind__in=AT_ONCE)
    kinds = dict(Runner.objects.values_list("name", "report__kinds"))
    return [_working_job(row, kinds.get(row.runner), now) for row in rows.order_by("id")]


def _working_job(row: RunnerJob, kinds: list[str] | None, now: datetime) -> WorkingJob:
    asked_s = None if row.preempt_asked_at is None else (now - row.preempt_asked_at).total_seconds()
    left_s = None
    if row.left_s is not None and row.left_at is not None:
        left_s = max(0.0, row.left_s - (now - row.left_at).total_seconds())
    return WorkingJob(
        job_id=row.id,
        tenant_id=row.tenant_id,
        kinds=kinds_of(kinds),
        elapsed_s=(now - row.started_at).total_seconds() if row.started_at else 0.0,
        weight=row.weight,
        may_stop=not row.attempts_in_vain and asked_s is None,
        is_asked=asked_s is not None and abs(asked_s) < GIVES_WAY_WITHIN_S,
        left_s=left_s,
    )


def kinds_of(names: list[str] | None) -> frozenset[RunnerJobKind]:
    """The kinds that a runner reports; all, where it reported none that are known here."""
    known = frozenset(kind for kind in RunnerJobKind if kind in (names or ()))
    return (known or frozenset(RunnerJobKind)) - AT_ONCE
