"""The turns at the runners: the rows that `domain.jobs.fair_turns` judges, and the lock on the job that it names.

No lock is held over the queue. Runners that ask at the same moment see the same order, and each tries the tenants'
oldest jobs along it, passing over what another one has locked: so they come to different tenants, as they would one
after another.
"""

from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from backend.domain.jobs.fair_turns import AT_ONCE, AT_WORK_S, WINDOW_S, WaitingJob, in_turn
from backend.domain.jobs.runner_jobs import RunnerJobKind
from backend.domain.money.plans import plan
from backend.runner_jobs.models import RunnerJob, RunnerJobStatus, RunnerTurn
from backend.usage.models import Account

MAX_ATTEMPTS = 4
TRIES = 20  # tenants whose oldest job may be somebody else's just now

_USED = """
    SELECT tenant_id, sum(seconds) FROM (
        SELECT tenant_id, extract(epoch FROM ended_at - greatest(started_at, %(since)s)) AS seconds
        FROM runner_jobs_runnerturn WHERE ended_at > %(since)s
        UNION ALL
        SELECT tenant_id, extract(epoch FROM greatest(started_at, %(now)s) - greatest(started_at, %(since)s))
            + %(at_work)s
        FROM runner_jobs_runnerjob WHERE status = 'leased' AND kind <> ALL(%(at_once)s)
    ) AS lately GROUP BY tenant_id"""


def weight_of(tenant_id: UUID) -> int:
    """The tenant's weight by its plan, in its scope; 1 before it has an account."""
    name = Account.objects.of_tenant(tenant_id).values_list("plan", flat=True).first()
    return 1 if name is None else plan(name).runner_weight


def lock_next(jobs: QuerySet[RunnerJob]) -> RunnerJob | None:
    """The job whose turn it is among these queued ones, locked in the caller's transaction."""
    row = _lock(jobs.filter(kind__in=AT_ONCE).order_by("created_at"))
    if row is not None:
        return row
    jobs = jobs.exclude(kind__in=AT_ONCE)
    heads = oldest_of_each(jobs)
    if not heads:
        return None
    used_s = used_lately() if len(heads) > 1 else {}
    for head in in_turn(heads, used_s)[:TRIES]:
        row = _lock(jobs.filter(id=head.job_id))
        if row is not None:
            return row
    return _lock(jobs.order_by("created_at"))


def _lock(jobs: QuerySet[RunnerJob]) -> RunnerJob | None:
    return jobs.select_for_update(skip_locked=True).first()


def oldest_of_each(jobs: QuerySet[RunnerJob]) -> list[WaitingJob]:
    """The oldest of these jobs of each tenant."""
    return waiting_jobs(jobs.order_by("tenant_id", "created_at", "id").distinct("tenant_id"))


def waiting_jobs(jobs: QuerySet[RunnerJob]) -> list[WaitingJob]:
    """The jobs as the rule reads them. Without a model's instance for each row: there may be thousands."""
    rows = jobs.values_list("id", "tenant_id", "kind", "created_at", "weight", "ran_s", "left_s")
    return [
        WaitingJob(
            job_id=id,
            tenant_id=tenant_id,
            kind=RunnerJobKind(kind),
            created_at=created_at.timestamp(),
            weight=weight,
            ran_s=ran_s,
            left_s=left_s,
        )
        for id, tenant_id, kind, created_at, weight, ran_s, left_s in rows
    ]


def may_be_claimed(now: datetime) -> Q:
    """The condition of a queued job on the time."""
    return Q(not_before=None) | Q(not_before__lte=now)


def waiting_now(now: datetime) -> QuerySet[RunnerJob]:
    """The jobs that take turns and that a runner may claim now."""
    jobs = RunnerJob.objects.filter(may_be_claimed(now), status=RunnerJobStatus.QUEUED)
    return jobs.filter(attempts_in_vain__lt=MAX_ATTEMPTS).exclude(kind__in=AT_ONCE)


def used_lately() -> dict[UUID, float]:
    """Seconds of the window in which each tenant's jobs held a runner, those that still do included."""
    now = timezone.now()
    values = {
        "now": now,
        "since": now - timedelta(seconds=WINDOW_S),
        "at_work": AT_WORK_S,
        "at_once": [kind.value for kind in AT_ONCE],
    }
    with connection.cursor() as cursor:
        cursor.execute(_USED, values)
        return {tenant_id: float(seconds) for tenant_id, seconds in cursor.fetchall()}


def note_turn(job: RunnerJob) -> None:
    """Count the attempt under way as its tenant's, in the transaction that takes it from its runner."""
    if job.started_at is None or job.kind in AT_ONCE:
        return
    now = timezone.now()
    RunnerTurn.objects.create(tenant_id=job.tenant_id, started_at=job.started_at, ended_at=max(now, job.started_at))
    ran_s = max(0.0, (now - job.started_at).total_seconds())
    RunnerJob.objects.filter(id=job.id).update(ran_s=F("ran_s") + ran_s, queued_at=now)


def forget_turns() -> int:
    """Delete the turns that count no more. Returns how many."""
    before = timezone.now() - timedelta(seconds=WINDOW_S)
    return RunnerTurn.objects.filter(ended_at__lt=before).delete()[0]
