"""The turns at the runners: `domain.jobs.fair_turns`, told to the database, and the lock on the job whose turn it is.

A claim reads the oldest job of each tenant by a loose index scan (one look in the index a tenant, however many jobs a
tenant has), and sets beside them what each tenant used: the thousands of rows stay in the database. `in_turn` is the
rule; the statement sorts by the same key, and a test holds the two together.

No lock is held over the queue. Runners that ask at the same moment see the same order, and each tries the tenants'
oldest jobs along it, passing over what another one has locked: so they come to different tenants, as they would one
after another.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import F, Q
from django.utils import timezone

from backend.domain.jobs.fair_turns import AT_ONCE, AT_WORK_S, WINDOW_S, WaitingJob
from backend.domain.jobs.runner_jobs import RunnerJobKind
from backend.domain.money.plans import plan
from backend.runner_jobs.models import RunnerJob, RunnerTurn
from backend.runner_jobs.wasted_attempts import OF_ONE_RUNNER
from backend.usage.models import Account

MAX_ATTEMPTS = 4
TRIES = 64  # tenants whose oldest job may be somebody else's just now
SKEW_S = 60.0  # that clocks of web processes may differ by: what ended later than that did not, a clock had jumped

# `not_before` is never an hour away: where it is, a clock had jumped
CLAIMABLE = """status = 'queued' AND kind = ANY(%(kinds)s) AND attempts_in_vain < %(most_attempts)s
    AND (not_before IS NULL OR not_before <= %(now)s OR not_before > %(now)s + interval '1 hour'
        OR (error_code = ANY(%(of_one_runner)s) AND runner <> %(runner)s))
    AND (%(takes_over)s OR token_sha256 = '')
    AND (%(waits_since)s IS NULL OR coalesce(queued_at, created_at) < %(waits_since)s)"""

_HEAD = f"SELECT id, tenant_id, kind, created_at, weight, ran_s FROM runner_jobs_runnerjob WHERE {CLAIMABLE}"
_USED = """
    SELECT tenant_id, extract(epoch FROM sum(held)) AS seconds FROM (
        SELECT tenant_id, greatest(interval '0', least(ended_at, %(now)s) - greatest(started_at, %(since)s)) AS held
        FROM runner_jobs_runnerturn WHERE ended_at > %(since)s AND ended_at < %(ended_before)s AND {of}
        UNION ALL
        SELECT tenant_id, greatest(interval '0', %(now)s - greatest(started_at, %(since)s)) + %(at_work)s
        FROM runner_jobs_runnerjob WHERE status = 'leased' AND kind <> ALL(%(at_once)s) AND {of}
    ) AS lately GROUP BY tenant_id"""
# `share` and what breaks a tie: `fair_turns.turn_key`
_IN_TURN = f"""
    WITH RECURSIVE heads AS (
        ({_HEAD} ORDER BY tenant_id, created_at, id LIMIT 1)
        UNION ALL
        SELECT following.* FROM heads, LATERAL (
            {_HEAD} AND tenant_id > heads.tenant_id ORDER BY tenant_id, created_at, id LIMIT 1
        ) AS following
    ), used AS ({_USED.format(of="true")}), ranked AS (
        SELECT heads.*, coalesce(used.seconds, 0)::float8 / greatest(1, weight) AS share
        FROM heads LEFT JOIN used USING (tenant_id)
    )"""
_LOCK_IN_TURN = f"""{_IN_TURN}, turns AS (
        SELECT id AS turn_id, row_number() OVER (ORDER BY share, created_at, id) AS turn
        FROM ranked ORDER BY turn LIMIT {TRIES}
    )
    SELECT job.* FROM turns JOIN runner_jobs_runnerjob AS job ON job.id = turn_id
    WHERE {CLAIMABLE} ORDER BY turn LIMIT 1 FOR UPDATE OF job SKIP LOCKED"""
_LOCK_OLDEST = f"""
    SELECT * FROM runner_jobs_runnerjob WHERE {CLAIMABLE} ORDER BY created_at LIMIT 1 FOR UPDATE SKIP LOCKED"""
_FIRST_OF_KINDS = f"""{_IN_TURN}
    SELECT id, tenant_id, kind, extract(epoch FROM created_at)::float8, weight, ran_s FROM (
        SELECT *, row_number() OVER (PARTITION BY kind ORDER BY share, created_at, id) AS of_kind FROM ranked
    ) AS numbered WHERE of_kind <= %(most)s"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimant:
    """A runner that asks for a job of these kinds. `takes_over`: it may be given what another one fell silent at."""

    runner: str
    kinds: Collection[RunnerJobKind]
    takes_over: bool = True


def weight_of(tenant_id: UUID) -> int:
    """The tenant's weight by its plan, in its scope; 1 before it has an account."""
    name = Account.objects.of_tenant(tenant_id).values_list("plan", flat=True).first()
    return 1 if name is None else plan(name).runner_weight


def lock_next(claimant: Claimant) -> RunnerJob | None:
    """The queued job whose turn it is of those that this runner may have, locked in the caller's transaction."""
    at_once = AT_ONCE.intersection(claimant.kinds)
    in_turn = frozenset(claimant.kinds) - AT_ONCE
    row = _lock(_LOCK_OLDEST, claimant, at_once) if at_once else None
    if row is None and in_turn:
        with walking_the_index():
            row = _lock(_LOCK_IN_TURN, claimant, in_turn)
        row = row or _lock(_LOCK_OLDEST, claimant, in_turn)
    return row


def _lock(statement: str, claimant: Claimant, kinds: Collection[RunnerJobKind]) -> RunnerJob | None:
    values = look(timezone.now(), kinds)
    values |= {"runner": claimant.runner, "takes_over": claimant.takes_over, "of_one_runner": sorted(OF_ONE_RUNNER)}
    return next(iter(RunnerJob.objects.raw(statement, values)), None)


@contextmanager
def walking_the_index() -> Iterator[None]:
    """Keep Postgres from sorting the queue once for each tenant, which it does while its statistics are older than a
    burst of jobs: 1.8 s for 1,000 tenants in the place of 2 ms."""
    with transaction.atomic(savepoint=False), connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_sort = off")
        yield
        cursor.execute("SET LOCAL enable_sort = on")


def first_in_turn(now: datetime, kinds: Collection[RunnerJobKind], *, idle_s: float, most: int) -> list[WaitingJob]:
    """The tenants' oldest jobs of these kinds, of each kind the `most` whose turn comes first, that have waited for
    `idle_s`. Without a model's instance for each row."""
    values = look(now, kinds) | {"waits_since": now - timedelta(seconds=idle_s), "most": most}
    with walking_the_index(), connection.cursor() as cursor:
        cursor.execute(_FIRST_OF_KINDS, values)
        return [
            WaitingJob(
                job_id=id,
                tenant_id=tenant_id,
                kind=RunnerJobKind(kind),
                created_at=created_at,
                weight=weight,
                ran_s=ran_s,
            )
            for id, tenant_id, kind, created_at, weight, ran_s in cursor.fetchall()
        ]


def look(now: datetime, kinds: Collection[RunnerJobKind]) -> dict[str, Any]:
    """The parameters of a look at the queue, with the eyes of no runner in particular."""
    return {
        "kinds": [kind.value for kind in kinds],
        "now": now,
        "since": now - timedelta(seconds=WINDOW_S),
        "ended_before": now + timedelta(seconds=SKEW_S),
        "at_work": timedelta(seconds=AT_WORK_S),
        "at_once": [kind.value for kind in AT_ONCE],
        "most_attempts": MAX_ATTEMPTS,
        "of_one_runner": [],
        "runner": "",
        "takes_over": True,
        "waits_since": None,
    }


def used_lately(*, of: Collection[UUID] | None = None) -> dict[UUID, float]:
    """Seconds of the window in which each tenant's jobs held a runner, those that still do included; of these tenants,
    or of all."""
    one_of = "true" if of is None else "tenant_id = ANY(%(of)s)"
    with connection.cursor() as cursor:
        cursor.execute(_USED.format(of=one_of), look(timezone.now(), ()) | {"of": list(of or ())})
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
    """Delete the turns that count no more, and those of a clock that had jumped. Returns how many."""
    now, window = timezone.now(), timedelta(seconds=WINDOW_S)
    return RunnerTurn.objects.filter(Q(ended_at__lt=now - window) | Q(ended_at__gt=now + window)).delete()[0]
