"""The rule by which tenants take turns at the runners, and by which a long job makes room for another tenant's.

Of the tenants that wait, the one goes first that had the least of the runners lately: the seconds of WINDOW_S that its
jobs held a runner, divided by the weight of its plan. A job at work counts from its start, and AT_WORK_S of what it is
going to take, so that two runners that ask at the same moment do not both serve one tenant. Where tenants are even, and
within a tenant, the oldest job goes first: a tenant that is alone has a plain queue.

This is weighted fair queueing by the time used. A window takes the place of a virtual clock: everything follows from
rows that are there anyway, nothing has to be carried from one claim to the next. It bounds the wait, too: who had no
runner for the length of the window has used nothing, and then only older jobs stand before his, however many new
tenants come.

A job that somebody waits for at the other end of a request (AT_ONCE) takes no turns; it goes before all others.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from backend.domain.jobs.runner_jobs import RunnerJobKind

WINDOW_S = 3600.0
AT_WORK_S = 60.0
AT_ONCE = frozenset({RunnerJobKind.INFER, RunnerJobKind.CHECK_BASE})
PREEMPTED = "preempted"  # the code of a job that its runner gave back because it was asked to


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingJob:
    """A queued job. `created_at` in seconds of any clock that all share; `ran_s` is how long runners worked on it
    before; `left_s` how long it takes from here on, None where nothing is known."""

    job_id: UUID
    tenant_id: UUID
    kind: RunnerJobKind
    created_at: float
    weight: int = 1
    ran_s: float = 0.0
    left_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingJob:
    """A job that holds a runner, which takes jobs of `kinds`, for `elapsed_s` so far. `may_stop`: it has handed over a
    checkpoint since it was leased, so that giving it back loses nothing. `is_asked`: it was asked to give way a moment
    ago."""

    job_id: UUID
    tenant_id: UUID
    kinds: frozenset[RunnerJobKind]
    elapsed_s: float
    weight: int = 1
    may_stop: bool = False
    is_asked: bool = False
    left_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """`job_id` gives its runner to `waiting`, at the earliest `in_s` seconds from now."""

    job_id: UUID
    waiting: WaitingJob
    in_s: float


def share_used(used_s: float, weight: int) -> float:
    """Runner seconds by which tenants are compared.

    >>> share_used(120, 4) < share_used(60, 1)
    True
    """
    return used_s / max(1, weight)


def in_turn(heads: Iterable[WaitingJob], used_s: Mapping[UUID, float]) -> list[WaitingJob]:
    """The tenants' oldest jobs in the order of their turns. `used_s` holds the seconds of each tenant within the
    window, jobs at work included.

    >>> a, b = UUID(int=1), UUID(int=2)
    >>> jobs = [WaitingJob(job_id=t, tenant_id=t, kind=RunnerJobKind.DISTILL, created_at=0) for t in (a, b)]
    >>> [job.tenant_id.int for job in in_turn(jobs, {a: 30.0})]
    [2, 1]
    """
    return sorted(heads, key=lambda job: turn_key(job, used_s.get(job.tenant_id, 0.0)))


def turn_key(job: WaitingJob, used_s: float) -> tuple[float, float, int]:
    return share_used(used_s, job.weight), job.created_at, job.job_id.int


def preemptions(
    working: Sequence[WorkingJob], heads: Iterable[WaitingJob], used_s: Mapping[UUID, float], *, slice_s: float
) -> list[Preemption]:
    """Return which job gives way to which tenant's: one runner a waiting tenant, in the order of turns.

    A job gives way to one of another tenant that used less, once it has worked for `slice_s`, and for as long as the
    other one has worked before, a window at most: two long trainings change places after 2, 2, 4, 6, 10 minutes and not
    every other one, while a job that has not begun waits for a slice at most. Of several the one gives way that may do
    so first, and among those the one whose tenant used the most."""
    left = {job.job_id: job for job in working if job.may_stop or job.is_asked}
    out = []
    for head in in_turn(heads, used_s):
        mine = share_used(used_s.get(head.tenant_id, 0.0), head.weight)
        may = [job for job in left.values() if _may_give_way(job, head, used_s, mine)]
        if not may:
            continue
        chosen = min(may, key=lambda job: (_gives_way_in(job, head, slice_s), -_used_by(job, used_s), job.job_id.int))
        del left[chosen.job_id]
        out.append(Preemption(job_id=chosen.job_id, waiting=head, in_s=_gives_way_in(chosen, head, slice_s)))
    return out


def _gives_way_in(job: WorkingJob, head: WaitingJob, slice_s: float) -> float:
    return 0.0 if job.is_asked else max(0.0, max(slice_s, min(head.ran_s, WINDOW_S)) - job.elapsed_s)


def _may_give_way(job: WorkingJob, head: WaitingJob, used_s: Mapping[UUID, float], mine: float) -> bool:
    if job.tenant_id == head.tenant_id or head.kind not in job.kinds:
        return False
    return job.is_asked or _used_by(job, used_s) > mine


def _used_by(job: WorkingJob, used_s: Mapping[UUID, float]) -> float:
    return share_used(used_s.get(job.tenant_id, 0.0), job.weight)
