"""Turns at the runners, played on a clock of the test's own: shares, and how long anybody waits."""

from collections import defaultdict, deque
from dataclasses import dataclass, field
from itertools import count
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.domain.jobs.fair_turns import (
    AT_WORK_S,
    WINDOW_S,
    WaitingJob,
    WorkingJob,
    in_turn,
    preemptions,
)
from backend.domain.jobs.runner_jobs import RunnerJobKind

KIND = RunnerJobKind.DISTILL
ALL = frozenset(RunnerJobKind)
A, B, C = UUID(int=1), UUID(int=2), UUID(int=3)


@dataclass
class Queue:
    """Jobs of tenants on some runners. `takes` are seconds by job; `turns` who had a runner from when to when."""

    n_runners: int
    now: float = 0.0
    waiting: dict[UUID, deque[WaitingJob]] = field(default_factory=lambda: defaultdict(deque))
    takes: dict[UUID, float] = field(default_factory=dict)
    turns: list[tuple[UUID, float, float]] = field(default_factory=list)  # of the window
    seconds: dict[UUID, float] = field(default_factory=lambda: defaultdict(float))
    _numbers: "count[int]" = field(default_factory=lambda: count(1000))

    def offer(self, tenant: UUID, seconds: float, *, weight: int = 1) -> UUID:
        id = UUID(int=next(self._numbers))
        job = WaitingJob(job_id=id, tenant_id=tenant, kind=KIND, created_at=self.now, weight=weight)
        self.waiting[tenant].append(job)
        self.takes[id] = seconds
        return id

    def used_s(self) -> dict[UUID, float]:
        out: dict[UUID, float] = defaultdict(float)
        for tenant, began, ended in self.turns:
            out[tenant] += max(0.0, min(ended, self.now) - max(began, self.now - WINDOW_S))
            out[tenant] += AT_WORK_S if began <= self.now < ended else 0.0
        return out

    def start_next(self) -> WaitingJob | None:
        """Give the runner that is free next the job whose turn it is, at that time."""
        self.turns = [turn for turn in self.turns if turn[2] > self.now - WINDOW_S]
        ends = sorted(ended for _, _, ended in self.turns)[-self.n_runners :]
        self.now = max(self.now, ends[0] if len(ends) == self.n_runners else self.now)
        heads = [jobs[0] for jobs in self.waiting.values() if jobs]
        if not heads:
            return None
        job = in_turn(heads, self.used_s())[0]
        self.waiting[job.tenant_id].popleft()
        self.turns.append((job.tenant_id, self.now, self.now + self.takes[job.job_id]))
        self.seconds[job.tenant_id] += self.takes[job.job_id]
        return job


lengths = st.floats(min_value=30, max_value=300)


@given(st.lists(lengths, min_size=1, max_size=30), st.integers(1, 3))
def test_a_tenant_that_is_alone_gets_every_turn_oldest_first(takes: list[float], n_runners: int) -> None:
    queue = Queue(n_runners=n_runners)
    ids = [queue.offer(A, seconds) for seconds in takes]
    started = [queue.start_next() for _ in takes]
    assert [job.job_id for job in started if job is not None] == ids
    assert queue.start_next() is None


@settings(max_examples=20)
@given(lengths, lengths, st.integers(1, 3))
def test_equal_tenants_get_equal_time_however_long_their_jobs_are(one: float, other: float, n_runners: int) -> None:
    queue = Queue(n_runners=n_runners)
    while queue.now < 2 * WINDOW_S:
        for tenant, seconds in ((A, one), (B, other)):
            if not queue.waiting[tenant]:
                queue.offer(tenant, seconds)
        queue.start_next()
    a, b = queue.seconds[A], queue.seconds[B]
    assert abs(a - b) <= 0.1 * (a + b) + 2 * n_runners * (max(one, other) + AT_WORK_S)


def test_a_plan_of_weight_four_gets_four_times_the_seconds() -> None:
    queue = Queue(n_runners=2)
    while queue.now < 4 * WINDOW_S:
        for tenant, weight in ((A, 1), (B, 4)):
            while len(queue.waiting[tenant]) < 2:
                queue.offer(tenant, 30.0, weight=weight)
        queue.start_next()
    assert queue.seconds[B] / queue.seconds[A] == pytest.approx(4, rel=0.1)


@settings(max_examples=10)
@given(st.lists(st.integers(20, 90), min_size=1, max_size=9), st.floats(1, 400))
def test_nobody_starves_behind_new_tenants_that_keep_coming(newcomers: list[int], used: float) -> None:
    """A tenant that used a lot waits while a new one, which used nothing, comes for every turn."""
    queue = Queue(n_runners=1)
    queue.turns.append((A, -used, 0.0))
    mine = queue.offer(A, 10.0)
    for number in range(300):
        queue.offer(UUID(int=100_000 + number), float(newcomers[number % len(newcomers)]))
        job = queue.start_next()
        if job is not None and job.job_id == mine:
            break
    else:
        pytest.fail("it waits still")
    assert queue.now <= WINDOW_S + used + max(newcomers)


@given(st.permutations([A, B, C]), st.dictionaries(st.sampled_from([A, B, C]), st.floats(0, 5000)))
def test_the_order_does_not_depend_on_the_order_of_the_rows(order: list[UUID], used: dict[UUID, float]) -> None:
    heads = [WaitingJob(job_id=t, tenant_id=t, kind=KIND, created_at=7.0) for t in order]
    assert in_turn(heads, used) == in_turn(sorted(heads, key=lambda job: job.job_id), used)


def working(job: int, tenant: UUID, elapsed_s: float, **changes: object) -> WorkingJob:
    values: dict[str, object] = {"kinds": ALL, "may_stop": True} | changes
    return WorkingJob(job_id=UUID(int=job), tenant_id=tenant, elapsed_s=elapsed_s, **values)  # type: ignore[arg-type]


def waits(tenant: UUID, **changes: object) -> WaitingJob:
    values: dict[str, object] = {"kind": KIND, "created_at": 0.0} | changes
    return WaitingJob(job_id=UUID(int=900 + tenant.int), tenant_id=tenant, **values)  # type: ignore[arg-type]


def asked(jobs: list[WorkingJob], heads: list[WaitingJob], used: dict[UUID, float]) -> list[tuple[int, float]]:
    return [(one.job_id.int, one.in_s) for one in preemptions(jobs, heads, used, slice_s=120)]


def test_a_training_of_an_hour_gives_way_to_a_minute_of_another_tenant() -> None:
    assert asked([working(1, A, 1800)], [waits(B)], {A: 1860.0}) == [(1, 0.0)]
    assert asked([working(1, A, 30)], [waits(B)], {A: 90.0}) == [(1, 90.0)], "not before its slice is over"


def test_no_job_gives_way_to_its_own_tenant_to_one_that_used_more_or_without_a_checkpoint() -> None:
    assert asked([working(1, A, 1800)], [waits(A)], {A: 1860.0}) == []
    assert asked([working(1, A, 1800)], [waits(B)], {A: 1860.0, B: 1900.0}) == []
    assert asked([working(1, A, 1800, may_stop=False)], [waits(B)], {A: 1860.0}) == []
    other_kinds = frozenset({RunnerJobKind.SELECT})
    assert asked([working(1, A, 1800, kinds=other_kinds)], [waits(B)], {A: 1860.0}) == []


def test_one_waiting_tenant_takes_one_runner_and_that_of_the_tenant_that_used_the_most() -> None:
    two = [working(1, A, 500), working(2, C, 400)]
    assert asked(two, [waits(B)], {A: 560.0, C: 3000.0}) == [(2, 0.0)]
    assert len(asked([working(1, A, 500), working(2, A, 900)], [waits(B)], {A: 1460.0})) == 1


def test_a_runner_that_was_asked_already_stands_for_the_tenant_that_waits() -> None:
    two = [working(1, A, 500, may_stop=False, is_asked=True), working(2, A, 900)]
    assert asked(two, [waits(B)], {A: 1460.0}) == [(1, 0.0)]
    assert asked(two, [waits(B), waits(C)], {A: 1460.0}) == [(1, 0.0), (2, 0.0)]


def test_a_job_that_ran_for_a_day_waits_for_a_window_at_most() -> None:
    """As after a clock that jumped."""
    assert asked([working(1, A, WINDOW_S)], [waits(B, ran_s=86_400.0)], {A: 7000.0}) == [(1, 0.0)]


def test_two_long_trainings_change_places_ever_more_seldom() -> None:
    """Turns of 2, 2, 4, 6, 10 ... minutes: an hour and an hour take some ten changes and not sixty."""
    ran = {A: 0.0, B: 0.0}
    at_work, others, n_changes = A, B, 0
    while max(ran.values()) < 3600:
        (one,) = preemptions(
            [working(1, at_work, 0.0)], [waits(others, ran_s=ran[others])], {at_work: 1e9}, slice_s=120
        )
        ran[at_work] += one.in_s
        at_work, others, n_changes = others, at_work, n_changes + 1
    assert n_changes <= 10
