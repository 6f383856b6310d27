"""The places of queued jobs, shown to those who wait: in the compile's step and its events.

`upkeep` plays the turns ahead every few seconds, once for all, and writes what has changed, so that reading a compile
costs no look at the queue. Only counts and times are shown: no tenant learns of another's jobs.
"""

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
from django.db import DatabaseError, connection
from django.utils import timezone

from backend.compiles import leases as compile_leases
from backend.compiles.events import append_event
from backend.compiles.models import StepRun
from backend.domain.jobs.fair_turns import AT_ONCE, AT_WORK_S
from backend.domain.jobs.queue_places import Place, WaitingColumns, pools, starts, turns_ahead, waiting_words
from backend.domain.jobs.runner_jobs import RunnerJobKind
from backend.rest.times import rfc3339
from backend.runner_jobs.models import Runner, RunnerJob, RunnerJobStatus, RunnerPlace
from backend.runner_jobs.preemption import IDLE_S, due_preemptions, jobs_at_work, kinds_of
from backend.runner_jobs.turns import CLAIMABLE, look, used_lately
from backend.tenants.isolation import tenant_scope

Kinds = frozenset[RunnerJobKind]

EVERY_S, PAUSE_BY_LOOK = 3.0, 20.0  # or so many times as long as the last look took: of thousands of jobs
SHOWING_S = 0.5  # of a look, for writing lines: what is left comes at the next one
KEEP = timedelta(days=1)
ALIVE_S = 120.0  # since a runner's last report
N_TYPICAL = 20  # ended jobs of a kind, whose median is what one is likely to take
LEAST_PAUSE_S, PAUSE_SHARE = 10.0, 0.05  # from one line to the next of the same job, and of its wait
TAKEN = "a runner has taken the job"

_WAITING = f"""
    SELECT job.id::text, tenant_id::text, kind, weight, left_s,
        extract(epoch FROM %(now)s - coalesce(queued_at, created_at))::float8,
        extract(epoch FROM %(now)s - shown_at)::float8, words, compile_id IS NOT NULL
    FROM runner_jobs_runnerjob AS job LEFT JOIN runner_jobs_runnerplace ON job_id = job.id
    WHERE {CLAIMABLE} ORDER BY created_at, job.id"""


class Waiting(NamedTuple):
    """A waiting job as the database has it, of which there may be thousands; `shown_s` ago its owner was shown
    `words`. `has_step`: a compile shows it."""

    job_id: str
    tenant_id: str
    kind: str
    weight: int
    left_s: float | None
    waits_s: float
    shown_s: float | None
    words: str | None
    has_step: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The line of one waiting job. `n_runners` take jobs of its kind."""

    place: Place
    n_runners: int
    at: datetime

    @property
    def words(self) -> str:
        return waiting_words(self.place, n_runners=self.n_runners)

    @property
    def queue(self) -> dict[str, Any]:
        """The place as the API has it."""
        in_s = self.place.starts_in_s
        starts_at = None if in_s is None else rfc3339(self.at + timedelta(seconds=round(in_s)))
        return {"place": self.place.place, "of": self.place.of, "expected_start_at": starts_at}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The jobs that wait for the same `n_runners`, in the order of turns, and in how many seconds each is expected to
    start (inf: nothing is known)."""

    jobs: list[Waiting]
    starts_in_s: list[float]
    n_runners: int
    at: datetime

    def line(self, row: int) -> Line:
        in_s = self.starts_in_s[row]
        place = Place(place=row + 1, of=len(self.jobs), starts_in_s=in_s if math.isfinite(in_s) else None)
        return Line(place=place, n_runners=self.n_runners, at=self.at)

    def is_due(self, row: int) -> bool:
        """Say whether a line may be shown; not oftener than every few seconds, and the seldomer the longer the wait."""
        job, in_s = self.jobs[row], self.starts_in_s[row]
        if not job.has_step or job.waits_s < IDLE_S:
            return False
        if job.shown_s is None:
            return True
        wait_s = in_s if math.isfinite(in_s) else row * AT_WORK_S
        return job.shown_s >= max(LEAST_PAUSE_S, PAUSE_SHARE * wait_s)


def show_places() -> int:
    """Show the owners of waiting jobs where they stand, every few seconds, the next ones first. Returns how many lines
    were new."""
    global _next_look
    began = time.monotonic()
    if began < _next_look:
        return 0
    queue = pools_now(timezone.now())
    due = sorted((row, n) for n, pool in enumerate(queue) for row in range(len(pool.jobs)) if pool.is_due(row))
    looked, n_shown = time.monotonic(), 0
    _next_look = looked + max(EVERY_S, PAUSE_BY_LOOK * (looked - began))
    for row, n in due:
        if time.monotonic() - looked > SHOWING_S:
            break
        line, job = queue[n].line(row), queue[n].jobs[row]
        if line.words != job.words:
            n_shown += show_line(UUID(job.job_id), line)
    forget_places()
    return n_shown


_next_look = 0.0


def forget_places() -> int:
    """Forget lines that were shown long ago: of jobs that ended, mostly. Returns how many."""
    return RunnerPlace.objects.filter(shown_at__lt=timezone.now() - KEEP).delete()[0]


def pools_now(now: datetime) -> list[Pool]:
    """Every job whose turn it may be, with those that wait for the same runners."""
    waiting = _waiting(now)
    if not waiting:
        return []
    kinds = {RunnerJobKind(kind) for kind in {job.kind for job in waiting}}
    takes_s, used_s = typical_seconds(kinds), used_lately()
    working, preempted, runners = jobs_at_work(now), due_preemptions(now), _runners(now)
    out = []
    for pool in _pools(runners, kinds):
        jobs = [job for job in waiting if job.kind in pool]
        left_s = np.array([_left_s(job, takes_s) for job in jobs], dtype=np.float64)
        order = turns_ahead(*_columns(jobs, left_s, used_s)).tolist()
        n_runners = sum(1 for kinds_of_one in runners if kinds_of_one & pool)
        at_work = [job for job in working if job.kinds & pool]
        in_s = starts(left_s[order].tolist(), at_work, preempted, n_runners=n_runners)
        out.append(Pool(jobs=[jobs[n] for n in order], starts_in_s=in_s, n_runners=n_runners, at=now))
    return out


def _waiting(now: datetime) -> list[Waiting]:
    with connection.cursor() as cursor:
        cursor.execute(_WAITING, look(now, frozenset(RunnerJobKind) - AT_ONCE))
        return list(map(Waiting._make, cursor.fetchall()))


def _left_s(job: Waiting, takes_s: dict[RunnerJobKind, float]) -> float:
    """A job that has begun is expected by its own runner's word, another by its kind; NaN: nothing is known."""
    return job.left_s if job.left_s is not None else takes_s.get(RunnerJobKind(job.kind), math.nan)


def _columns(
    jobs: list[Waiting], left_s: "np.ndarray[Any, np.dtype[np.float64]]", used_s: dict[UUID, float]
) -> tuple[WaitingColumns, "np.ndarray[Any, np.dtype[np.float64]]"]:
    """The jobs as the rule reads them, and what each of their tenants used."""
    numbers: dict[str, int] = {}
    tenant = np.array([numbers.setdefault(job.tenant_id, len(numbers)) for job in jobs], dtype=np.int64)
    weight = np.array([job.weight for job in jobs], dtype=np.float64)
    used = np.array([used_s.get(UUID(tenant_id), 0.0) for tenant_id in numbers], dtype=np.float64)
    return WaitingColumns(tenant=tenant, weight=weight, left_s=left_s), used


def typical_seconds(kinds: Iterable[RunnerJobKind]) -> dict[RunnerJobKind, float]:
    """Seconds that a runner lately needed for a job of each kind, all of its turns together; no entry where none has
    ended."""
    out = {}
    for kind in kinds:
        done = RunnerJob.objects.filter(status=RunnerJobStatus.SUCCEEDED, kind=kind, ran_s__gt=0)
        seconds = list(done.order_by("-created_at").values_list("ran_s", flat=True)[:N_TYPICAL])
        if seconds:
            out[kind] = median(seconds)
    return out


def _runners(now: datetime) -> list[Kinds]:
    """The kinds that each runner takes which reported lately, or has a job."""
    lately = Runner.objects.filter(seen_at__gt=now - timedelta(seconds=ALIVE_S))
    alive = {row.name: kinds_of(row.report.get("kinds")) for row in lately}
    for name in RunnerJob.objects.filter(status=RunnerJobStatus.LEASED).values_list("runner", flat=True):
        alive.setdefault(name, kinds_of(None))
    return list(alive.values())


def _pools(runners: list[Kinds], wanted: set[RunnerJobKind]) -> list[Kinds]:
    """The kinds that wait for the same runners; what none takes waits by itself."""
    known = pools(runners)
    return [*known, *(frozenset({kind}) for kind in sorted(wanted) if not any(kind in pool for pool in known))]


def show_line(job_id: UUID, line: Line) -> int:
    """Write the line where the job still waits; 0 where it does not, or another process is at its compile."""
    job = RunnerJob.objects.filter(id=job_id, status=RunnerJobStatus.QUEUED).exclude(compile_id=None).first()
    if job is None:
        return 0
    try:
        with tenant_scope(job.tenant_id):
            assert job.compile_id is not None
            compile_leases.lock(job.compile_id)
            if not RunnerJob.objects.filter(id=job.id, status=RunnerJobStatus.QUEUED).exists():
                return 0
            _note_shown(job_id, line.words, line.at)
            show_step(job, line.words, line.queue)
    except DatabaseError:  # a lock that was waited for in vain: at the next look
        return 0
    return 1


def _note_shown(job_id: UUID, words: str, at: datetime) -> None:
    RunnerPlace.objects.update_or_create(job_id=job_id, defaults={"words": words, "shown_at": at})


def pause_in_queue(job: RunnerJob) -> None:
    """Show that the job gave way at its checkpoint, in the caller's transaction."""
    words = f"paused at step {job.checkpoint_step}, where it goes on: another team's turn"
    _note_shown(job.id, words, timezone.now())
    show_step(job, words, None)


def leave_queue(job: RunnerJob) -> None:
    """Take the place off the step of a job that a runner has taken, if its owner was shown one, in the caller's
    transaction."""
    if RunnerPlace.objects.filter(job_id=job.id).delete()[0]:
        show_step(job, TAKEN, None)


def show_step(job: RunnerJob, message: str, queue: dict[str, Any] | None) -> None:
    """Show a line in the step of the job's compile and in its events, in the caller's transaction."""
    if job.compile_id is None:
        return
    steps = StepRun.objects.filter(tenant_id=job.tenant_id, compile_id=job.compile_id, name=job.step)
    steps.update(message=message, queue=queue)
    done, total = steps.values_list("done", "total").first() or (0, 0)
    data = {"step": job.step, "done": done, "total": total, "message": message, "queue": queue}
    append_event(job.tenant_id, job.compile_id, "step.progress", data)
