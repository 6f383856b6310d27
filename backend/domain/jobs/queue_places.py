"""The place of a queued job and when it is likely to start: the turns of `fair_turns`, played ahead.

A place counts the jobs that would start before it if nothing new came. A start follows from what the jobs at work have
left, as their runners say, and from what the waiting ones before it are likely to take; a runner whose job says nothing
promises nobody a start. Ten thousand waiting jobs are columns here, not values: the whole is played every few seconds.
"""

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backend.domain.jobs.fair_turns import AT_WORK_S, Preemption, WorkingJob
from backend.domain.jobs.runner_jobs import RunnerJobKind

HANDOVER_S = 15.0  # from the word to give way to the next job's beginning (measured in docs/benchmarks/queue.md)

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The `place` of `of` waiting jobs, from 1. `starts_in_s`: None where it is not known."""

    place: int
    of: int
    starts_in_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingColumns:
    """Waiting jobs, the oldest first (what breaks a tie between tenants): of which `tenant` each is (a number from 0),
    its `weight`, and how long it is likely to take, `left_s`, NaN where that is not known. All (n,)."""

    tenant: Ints
    weight: Floats
    left_s: Floats


def turns_ahead(waiting: WaitingColumns, used_s: Floats) -> Ints:
    """Return the row numbers in the order in which the jobs would be handed out, (n,). `used_s` are the seconds of each
    tenant. Each turn counts what its job is likely to take for its tenant, AT_WORK_S where that is not known.

    Within a tenant the oldest goes first, so that no job has a smaller share than the one before it. To play the turns
    is then to sort by that share."""
    if not len(waiting.tenant):
        return np.zeros(0, dtype=np.int64)
    by_tenant = np.argsort(waiting.tenant, kind="stable")
    tenant, takes_s = waiting.tenant[by_tenant], np.fmax(AT_WORK_S, waiting.left_s[by_tenant])  # (n,), NaN: AT_WORK_S
    first = np.flatnonzero(np.diff(tenant, prepend=-1))  # (n_tenants,) the row at which each begins
    before_s = np.cumsum(takes_s) - takes_s
    before_s -= np.repeat(before_s[first], np.diff(first, append=len(tenant)))
    # rounded: the sums of two even tenants differ in the last bits
    share = np.round((used_s[tenant] + before_s) / np.maximum(1.0, waiting.weight[by_tenant]), 6)
    for begin, end in zip(first, [*first[1:], len(tenant)], strict=True):
        np.maximum.accumulate(share[begin:end], out=share[begin:end])  # a plan of more weight, halfway through
    key = np.empty_like(share)
    key[by_tenant] = share
    return np.argsort(key, kind="stable")


def starts(
    left_s: Sequence[float], working: Iterable[WorkingJob], preempted: Iterable[Preemption], *, n_runners: int
) -> list[float]:
    """Seconds until each job of an order of turns begins, inf where nothing is known, on `n_runners` runners, of which
    those of `working` are taken. `left_s` is what each is likely to take, NaN where that is not known."""
    free_at = _free_at(list(working), preempted, n_runners)
    if not free_at:
        return [math.inf] * len(left_s)
    heapq.heapify(free_at)
    out = []
    for seconds in left_s:
        out.append(free_at[0])
        heapq.heapreplace(free_at, math.inf if math.isnan(seconds) else free_at[0] + seconds)
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
