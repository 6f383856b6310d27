"""The place of a queued job and when it is likely to start: the turns of `fair_turns`, played ahead.

A place counts the jobs that would start before it if nothing new came. A start follows from what the jobs at work have
left, as their runners say, and from what the waiting ones before it are likely to take; a runner whose job says nothing
promises nobody a start.
"""

import heapq
import math
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from backend.domain.jobs.fair_turns import AT_WORK_S, Preemption, WaitingJob, WorkingJob, turn_key
from backend.domain.jobs.runner_jobs import RunnerJobKind

HANDOVER_S = 15.0  # from the word to give way to the next job's beginning (measured in docs/benchmarks/queue.md)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The `place` of `of` waiting jobs, from 1. `starts_in_s`: None where it is not known."""

    place: int
    of: int
    starts_in_s: float | None


def turns_ahead(waiting: Sequence[WaitingJob], used_s: Mapping[UUID, float]) -> list[WaitingJob]:
    """All waiting jobs in the order in which they would be handed out: each turn counts what its job is likely to take
    for its tenant, AT_WORK_S where that is not known."""
    of_tenant: dict[UUID, deque[WaitingJob]] = defaultdict(deque)
    for job in sorted(waiting, key=lambda job: (job.created_at, job.job_id.int)):
        of_tenant[job.tenant_id].append(job)
    used = {tenant: used_s.get(tenant, 0.0) for tenant in of_tenant}
    heap = [(turn_key(jobs[0], used[tenant]), tenant) for tenant, jobs in of_tenant.items()]
    heapq.heapify(heap)
    order = []
    while heap:
        _, tenant = heapq.heappop(heap)
        job = of_tenant[tenant].popleft()
        order.append(job)
        used[tenant] += max(AT_WORK_S, job.left_s or 0.0)
        if of_tenant[tenant]:
            heapq.heappush(heap, (turn_key(of_tenant[tenant][0], used[tenant]), tenant))
    return order


def places(
    order: Sequence[WaitingJob], working: Iterable[WorkingJob], preempted: Iterable[Preemption], *, n_runners: int
) -> dict[UUID, Place]:
    """The place of each job of an order of turns, on `n_runners` runners, of which those of `working` are taken."""
    free_at = _free_at(list(working), preempted, n_runners)
    heapq.heapify(free_at)
    out = {}
    for i, job in enumerate(order, start=1):
        at = heapq.heappop(free_at) if free_at else math.inf
        out[job.job_id] = Place(place=i, of=len(order), starts_in_s=at if math.isfinite(at) else None)
        if free_at or math.isfinite(at):
            heapq.heappush(free_at, at + job.left_s if job.left_s is not None else math.inf)
    return out


def _free_at(working: list[WorkingJob], preempted: Iterable[Preemption], n_runners: int) -> list[float]:
    """Seconds until each runner is free; inf where nothing is known of the job that it has."""
    gives_way = {one.job_id: one.in_s + HANDOVER_S for one in preempted}
    busy = []
    for job in working:
        ends_in = math.inf if job.left_s is None else max(0.0, job.left_s)
        busy.append(min(ends_in, gives_way.get(job.job_id, math.inf)))
    return busy + [0.0] * max(0, n_runners - len(busy))


def pools(kinds_of_runners: Iterable[Iterable[RunnerJobKind]]) -> list[frozenset[RunnerJobKind]]:
    """The kinds of job that wait for the same runners: those that one takes, and what others take beside them.

    >>> from backend.domain.jobs.runner_jobs import RunnerJobKind as K
    >>> [sorted(pool) for pool in pools([[K.SELECT], [K.DISTILL, K.EVALUATE], [K.EVALUATE, K.PACK_RECIPES]])]
    [['select'], ['distill', 'evaluate', 'pack_recipes']]
    """
    out: list[frozenset[RunnerJobKind]] = []
    for kinds in kinds_of_runners:
        mine = frozenset(kinds)
        apart = [pool for pool in out if not pool & mine]
        out = [*apart, mine.union(*(pool for pool in out if pool & mine))]
    return out


def waiting_words(place: Place, *, n_runners: int) -> str:
    """One line for people; times are rounded, since they are estimates.

    >>> waiting_words(Place(place=3, of=12, starts_in_s=250), n_runners=2)
    'waiting for a runner: place 3 of 12, starts in about 4 min'
    >>> waiting_words(Place(place=1, of=1, starts_in_s=None), n_runners=0)
    'waiting for a runner: place 1 of 1; no runner that takes it reports just now'
    """
    line = f"waiting for a runner: place {place.place} of {place.of}"
    if not n_runners:
        return f"{line}; no runner that takes it reports just now"
    return line if place.starts_in_s is None else f"{line}, starts {_in_words(place.starts_in_s)}"


def _in_words(seconds: float) -> str:
    """
    >>> [_in_words(s) for s in (20, 100, 1500, 9000)]
    ['in less than a minute', 'in about 2 min', 'in about 25 min', 'in about 2.5 h']
    """
    minutes = seconds / 60
    if minutes < 1:
        return "in less than a minute"
    if minutes < 10:
        return f"in about {round(minutes)} min"
    if minutes < 57.5:
        return f"in about {5 * round(minutes / 5)} min"
    return f"in about {round(minutes / 30) / 2:g} h"
