"""Places and expected starts: the turns, played ahead."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from backend.domain.jobs.fair_turns import Preemption, WaitingJob, WorkingJob, in_turn
from backend.domain.jobs.queue_places import HANDOVER_S, Place, places, turns_ahead, waiting_words
from backend.domain.jobs.runner_jobs import RunnerJobKind

KIND = RunnerJobKind.DISTILL
A, B = UUID(int=1), UUID(int=2)


def waits(number: int, tenant: UUID, *, at: float = 0.0, left_s: float | None = 100.0) -> WaitingJob:
    return WaitingJob(job_id=UUID(int=number), tenant_id=tenant, kind=KIND, created_at=at, left_s=left_s)


def at_work(number: int, left_s: float | None) -> WorkingJob:
    kinds = frozenset(RunnerJobKind)
    return WorkingJob(job_id=UUID(int=number), tenant_id=A, kinds=kinds, elapsed_s=1.0, left_s=left_s)


def starts(
    order: list[WaitingJob], working: list[WorkingJob], *, n_runners: int, gives_way: Preemption | None = None
) -> list[float | None]:
    seen = places(order, working, [gives_way] if gives_way else [], n_runners=n_runners)
    assert [seen[job.job_id].place for job in order] == list(range(1, len(order) + 1))
    return [seen[job.job_id].starts_in_s for job in order]


def test_many_jobs_of_one_tenant_do_not_stand_before_the_one_of_another() -> None:
    queue = [*(waits(n, A, at=n) for n in range(10)), waits(99, B, at=50)]
    order = turns_ahead(queue, {A: 500.0})
    assert order.index(queue[-1]) == 0
    assert [job.job_id.int for job in order[1:]] == list(range(10))
    assert turns_ahead(queue, {}).index(queue[-1]) == 1, "even tenants: the oldest job, then the other tenant"


@given(st.lists(st.tuples(st.sampled_from([A, B]), st.floats(0, 100)), max_size=20), st.floats(0, 1000))
def test_every_job_has_one_place_and_the_first_is_the_one_that_the_rule_hands_out(
    rows: list[tuple[UUID, float]], used: float
) -> None:
    queue = [waits(number, tenant, at=at) for number, (tenant, at) in enumerate(rows)]
    order = turns_ahead(queue, {A: used})
    assert sorted(job.job_id.int for job in order) == list(range(len(rows)))
    if order:
        oldest = [min((j for j in queue if j.tenant_id == t), key=lambda j: (j.created_at, j.job_id.int), default=None)
                  for t in (A, B)]  # fmt: skip
        assert order[0] == in_turn([job for job in oldest if job], {A: used})[0]


def test_starts_follow_from_what_is_left_of_the_jobs_before() -> None:
    order = [waits(1, A), waits(2, B), waits(3, A)]
    assert starts(order, [at_work(7, 50.0), at_work(8, 500.0)], n_runners=2) == [50.0, 150.0, 250.0]
    assert starts(order, [], n_runners=1) == [0.0, 100.0, 200.0]


def test_a_job_that_gives_way_frees_its_runner_before_its_end() -> None:
    gives_way = Preemption(job_id=UUID(int=7), waiting=waits(1, B), in_s=30.0)
    assert starts([waits(1, B)], [at_work(7, 3000.0)], n_runners=1, gives_way=gives_way) == [30.0 + HANDOVER_S]


def test_where_nothing_is_known_no_start_is_promised() -> None:
    order = [waits(1, A, left_s=None), waits(2, B)]
    assert starts(order, [at_work(7, None)], n_runners=1) == [None, None]
    assert starts(order, [at_work(7, 20.0)], n_runners=1) == [20.0, None]
    assert starts(order, [], n_runners=0) == [None, None]


def test_words_promise_no_more_than_is_known() -> None:
    assert waiting_words(Place(place=2, of=3, starts_in_s=None), n_runners=1) == "waiting for a runner: place 2 of 3"
    assert "in about 55 min" in waiting_words(Place(place=1, of=1, starts_in_s=3300), n_runners=1)
