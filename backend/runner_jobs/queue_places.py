"""The places of queued jobs, shown to those who wait: in the compile's step and its events.

`upkeep` looks every few seconds and writes what has changed, so that reading a compile costs no look at the queue. Only
counts and times are shown: no tenant learns of another's jobs.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from statistics import median
from typing import Any
from uuid import UUID

from django.db import DatabaseError
from django.utils import timezone

from backend.compiles import leases as compile_leases
from backend.compiles.events import append_event
from backend.compiles.models import StepRun
from backend.domain.jobs.fair_turns import WaitingJob
from backend.domain.jobs.queue_places import Place, places, pools, turns_ahead, waiting_words
from backend.domain.jobs.runner_jobs import RunnerJobKind
from backend.rest.times import rfc3339
from backend.runner_jobs.models import Runner, RunnerJob, RunnerJobStatus
from backend.runner_jobs.preemption import IDLE_S, due_preemptions, jobs_at_work, kinds_of
from backend.runner_jobs.turns import used_lately, waiting_jobs, waiting_now
from backend.tenants.isolation import tenant_scope

Kinds = frozenset[RunnerJobKind]

EVERY_S, PAUSE_BY_LOOK = 3.0, 20.0  # or so many times as long as the last look took: of thousands of jobs
ALIVE_S = 120.0  # since a runner's last report
N_TYPICAL = 20  # ended jobs of a kind, whose median is what one is likely to take
MOST_SHOWN = 50  # jobs a look: what is left comes at the next one
LEAST_PAUSE_S, PAUSE_SHARE = 10.0, 0.05  # from one line to the next of the same job, and of its wait
TAKEN = "a runner has taken the job"


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


def show_places() -> int:
    """Show the owners of waiting jobs where they stand, every few seconds. Returns how many lines were new."""
    global _next_look
    if time.monotonic() < _next_look:
        return 0
    began, lines = time.monotonic(), dict(lines_now(timezone.now()))
    rows = RunnerJob.objects.filter(id__in=lines, status=RunnerJobStatus.QUEUED).exclude(compile_id=None)
    n_shown = 0
    for job in rows.only("id", "tenant_id", "compile_id", "step", "created_at", "queued_at", "shown_place"):
        if n_shown < MOST_SHOWN and _is_news(job, lines[job.id]):
            n_shown += _show(job, lines[job.id])
    ended = time.monotonic()
    _next_look = ended + max(EVERY_S, PAUSE_BY_LOOK * (ended - began))
    return n_shown


_next_look = 0.0


def lines_now(now: datetime) -> list[tuple[UUID, Line]]:
    """The id and the line of every job whose turn it may be, those that wait for the same runners in the order of
    turns."""
    waiting = waiting_jobs(waiting_now(now))
    if not waiting:
        return []
    takes = typical_seconds({job.kind for job in waiting})
    waiting = [_with_estimate(job, takes) for job in waiting]
    working, used_s, preempted = jobs_at_work(now), used_lately(), due_preemptions(now)
    runners = _runners(now)
    out = []
    for pool in _pools(runners, {job.kind for job in waiting}):
        order = turns_ahead([job for job in waiting if job.kind in pool], used_s)
        n_runners = sum(1 for kinds in runners if kinds & pool)
        at = places(order, [job for job in working if job.kinds & pool], preempted, n_runners=n_runners)
        out += [(job.job_id, Line(place=at[job.job_id], n_runners=n_runners, at=now)) for job in order]
    return out


def typical_seconds(kinds: Iterable[str]) -> dict[str, float]:
    """Seconds that a runner lately needed for a job of each kind, all of its turns together; no entry where none has
    ended."""
    out = {}
    for kind in kinds:
        done = RunnerJob.objects.filter(status=RunnerJobStatus.SUCCEEDED, kind=kind, ran_s__gt=0)
        seconds = list(done.order_by("-created_at").values_list("ran_s", flat=True)[:N_TYPICAL])
        if seconds:
            out[kind] = median(seconds)
    return out


def _with_estimate(job: WaitingJob, takes: Mapping[str, float]) -> WaitingJob:
    """A job that has begun is expected by its own runner's word, another by its kind."""
    return job if job.left_s is not None else replace(job, left_s=takes.get(job.kind))


def _runners(now: datetime) -> list[Kinds]:
    """The kinds that each runner takes which reported lately, or has a job."""
    alive = {row.name: kinds_of(row.report.get("kinds")) for row in Runner.objects.filter(seen_at__gt=_since(now))}
    for name in RunnerJob.objects.filter(status=RunnerJobStatus.LEASED).values_list("runner", flat=True):
        alive.setdefault(name, kinds_of(None))
    return list(alive.values())


def _since(now: datetime) -> datetime:
    return now - timedelta(seconds=ALIVE_S)


def _pools(runners: list[Kinds], wanted: set[RunnerJobKind]) -> list[Kinds]:
    """The kinds that wait for the same runners; what none takes waits by itself."""
    known = pools(runners)
    return [*known, *(frozenset({kind}) for kind in sorted(wanted) if not any(kind in pool for pool in known))]


def _is_news(job: RunnerJob, line: Line) -> bool:
    """Say whether the line says something new; not oftener than every few seconds, and the seldomer the longer the
    wait."""
    if (line.at - (job.queued_at or job.created_at)).total_seconds() < IDLE_S:
        return False
    if job.shown_place is None:
        return True
    pause_s = max(LEAST_PAUSE_S, PAUSE_SHARE * (line.place.starts_in_s or 0.0))
    age_s = (line.at - datetime.fromisoformat(job.shown_place["at"])).total_seconds()
    return bool(job.shown_place["words"] != line.words) and age_s >= pause_s


def _show(job: RunnerJob, line: Line) -> int:
    """Write the line where the job still waits; 0 where it does not, or another process is at its compile."""
    try:
        with tenant_scope(job.tenant_id):
            assert job.compile_id is not None
            compile_leases.lock(job.compile_id)
            waits = RunnerJob.objects.filter(id=job.id, status=RunnerJobStatus.QUEUED)
            if not waits.update(shown_place={"words": line.words, "at": line.at.isoformat()}):
                return 0
            show_step(job, line.words, line.queue)
    except DatabaseError:  # a lock that was waited for in vain: at the next look
        return 0
    return 1


def pause_in_queue(job: RunnerJob) -> None:
    """Show that the job gave way at its checkpoint, in the caller's transaction."""
    words = f"paused at step {job.checkpoint_step}, where it goes on: another team's turn"
    RunnerJob.objects.filter(id=job.id).update(shown_place={"words": words, "at": timezone.now().isoformat()})
    show_step(job, words, None)


def leave_queue(job: RunnerJob) -> None:
    """Take the place off the step of a job that a runner has taken, in the caller's transaction."""
    RunnerJob.objects.filter(id=job.id).update(shown_place=None)
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
