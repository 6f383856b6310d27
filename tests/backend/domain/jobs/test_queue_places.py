"""Places and expected starts: the turns, played ahead."""

import heapq
import math
from collections import defaultdict, deque
from uuid import UUID

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.jobs.fair_turns import AT_WORK_S, Preemption, WaitingJob, WorkingJob, in_turn, turn_key
from backend.domain.jobs.queue_places import HANDOVER_S, Place, WaitingColumns, starts, turns_ahead, waiting_words
from backend.domain.jobs.runner_jobs import RunnerJobKind

KIND = RunnerJobKind.DISTILL
A, B = UUID(int=1), UUID(int=2)
UNKNOWN = math.nan
Row = tuple[int, int, float]  # tenant, weight, seconds that it is likely to take


def order(rows: list[Row], used: list[float]) -> list[int]:
    """The rows' numbers, the oldest row being the first."""
    tenant, weight, left_s = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
    columns = WaitingColumns(
        tenant=np.array(tenant, dtype=np.int64), weight=np.array(weight, dtype=float), left_s=np.array(left_s, float)
    )
    return turns_ahead(columns, np.array(used)).tolist()


def as_job(number: int, row: Row) -> WaitingJob:
    tenant, weight, left_s = row
    id, owner = UUID(int=number), UUID(int=tenant)
    return WaitingJob(job_id=id, tenant_id=owner, kind=KIND, created_at=number, weight=weight, left_s=left_s)


def played(rows: list[Row], used: list[float]) -> list[int]:
    """The turns one after another, as claims hand them out: the reference."""
    of_tenant: dict[int, deque[WaitingJob]] = defaultdict(deque)
    for number, row in enumerate(rows):
        of_tenant[row[0]].append(as_job(number, row))
    so_far = list(used)
    heap = [(turn_key(jobs[0], so_far[tenant]), tenant) for tenant, jobs in of_tenant.items()]
    heapq.heapify(heap)
    out = []
    while heap:
        _, tenant = heapq.heappop(heap)
        job = of_tenant[tenant].popleft()
        out.append(job.job_id.int)
        so_far[tenant] += AT_WORK_S if job.left_s is None or math.isnan(job.left_s) else max(AT_WORK_S, job.left_s)
        if of_tenant[tenant]:
            heapq.heappush(heap, (turn_key(of_tenant[tenant][0], so_far[tenant]), tenant))
    return out


def at_work(number: int, left_s: float | None) -> WorkingJob:
    kinds = frozenset(RunnerJobKind)
    return WorkingJob(job_id=UUID(int=number), tenant_id=A, kinds=kinds, elapsed_s=1.0, left_s=left_s)


def test_many_jobs_of_one_tenant_do_not_stand_before_the_one_of_another() -> None:
    rows = [*([(0, 1, 100.0)] * 10), (1, 1, 100.0)]
    assert order(rows, [500.0, 0.0]) == [10, *range(10)]
    assert order(rows, [0.0, 0.0])[1] == 10, "even tenants: the oldest job, then the other tenant"


def test_a_thousand_jobs_of_one_tenant_wait_behind_one_of_another_and_not_the_other_way_round() -> None:
    rows = [*([(0, 1, UNKNOWN)] * 1000), (1, 1, UNKNOWN)]
    assert order(rows, [60.0, 0.0]).index(1000) == 0


columns = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from([1, 4]), st.sampled_from([UNKNOWN, 10.0, 60.0, 120.0, 613.0])),
    max_size=30,
)


@given(st.data(), columns, st.lists(st.sampled_from([0.0, 60.0, 400.0]), min_size=5, max_size=5))
def test_the_order_is_that_of_the_turns_one_after_another(data, rows: list[Row], used: list[float]) -> None:
    weights = data.draw(st.lists(st.sampled_from([1, 4]), min_size=5, max_size=5))
    rows = [(tenant, weights[tenant], left_s) for tenant, _, left_s in rows]
    assert order(rows, used) == played(rows, used)


@given(columns, st.lists(st.floats(0, 1000), min_size=5, max_size=5))
def test_every_job_has_one_place_and_the_first_is_the_one_that_the_rule_hands_out(
    rows: list[Row], used: list[float]
) -> None:
    used = [round(seconds, 3) for seconds in used]
    seen = order(rows, used)
    assert sorted(seen) == list(range(len(rows)))
    if seen:
        oldest = {row[0]: as_job(number, row) for number, row in reversed(list(enumerate(rows)))}
        by_tenant = {UUID(int=tenant): seconds for tenant, seconds in enumerate(used)}
        assert seen[0] == in_turn(oldest.values(), by_tenant)[0].job_id.int


def test_starts_follow_from_what_is_left_of_the_jobs_before() -> None:
    takes_s = [100.0, 100.0, 100.0]
    assert starts(takes_s, [at_work(7, 50.0), at_work(8, 500.0)], [], n_runners=2) == [50.0, 150.0, 250.0]
    assert starts(takes_s, [], [], n_runners=1) == [0.0, 100.0, 200.0]


def test_no_start_is_in_the_past_however_late_a_job_at_work_is() -> None:
    assert starts([100.0], [at_work(7, -900.0)], [], n_runners=1) == [0.0]


def test_a_job_that_gives_way_frees_its_runner_before_its_end() -> None:
    gives_way = Preemption(job_id=UUID(int=7), waiting=as_job(1, (1, 1, 100.0)), in_s=30.0)
    assert starts([100.0], [at_work(7, 3000.0)], [gives_way], n_runners=1) == [30.0 + HANDOVER_S]


def test_where_nothing_is_known_no_start_is_promised() -> None:
    takes_s = [UNKNOWN, 100.0]
    assert starts(takes_s, [at_work(7, None)], [], n_runners=1) == [math.inf, math.inf]
    assert starts(takes_s, [at_work(7, 20.0)], [], n_runners=1) == [20.0, math.inf]
    assert starts(takes_s, [], [], n_runners=0) == [math.inf, math.inf]


def test_words_promise_no_more_than_is_known() -> None:
    assert waiting_words(Place(place=2, of=3, starts_in_s=None), n_runners=1) == "waiting for a runner: place 2 of 3"
    assert "in about 55 min" in waiting_words(Place(place=1, of=1, starts_in_s=3300), n_runners=1)
