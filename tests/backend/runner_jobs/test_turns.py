"""Turns of tenants at the runners, on a real queue: who is next, who gives way, and what that costs."""

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest
from django.db import connection, transaction
from django.test import Client
from django.utils import timezone

from backend.blobs import put_blob
from backend.compiles.models import Compile, StepRun
from backend.domain.ids import Prefix, decode_id
from backend.domain.jobs.absence import Absence
from backend.domain.jobs.fair_turns import WINDOW_S, WaitingJob, in_turn
from backend.domain.jobs.runner_jobs import Claim, HeartbeatAnswer, Progress, RunnerJobKind
from backend.domain.lifecycle import StepName, StepStatus
from backend.runner_jobs import leases, own_absence, queue_places, turns
from backend.runner_jobs.leases import MAX_ATTEMPTS, Offer
from backend.runner_jobs.models import Runner, RunnerJob, RunnerJobStatus, RunnerPlace, RunnerTurn
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from backend.usage.models import UsageFact
from tests.compile_factories import make_compile, public_id
from tests.factories import bearer, make_api_key, make_tenant

pytestmark = pytest.mark.usefixtures("queue_is_empty")

STEP = StepName.DISTILLATION
KINDS = [RunnerJobKind.DISTILL, RunnerJobKind.EVALUATE]


@pytest.fixture
def queue_is_empty(committed_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's job, no turn of anybody, no runner, and a web process that was never away."""
    monkeypatch.setattr(own_absence, "absence", Absence(break_s=1e9))
    for model in (RunnerJob, RunnerTurn, RunnerPlace, Runner):
        model.objects.all().delete()


def queue(row: Compile | Tenant, *, kind: RunnerJobKind = RunnerJobKind.DISTILL, waits_s: float = 60.0) -> RunnerJob:
    """A job that has waited for so long."""
    tenant_id, compile_id = (row.tenant_id, row.id) if isinstance(row, Compile) else (row.id, None)
    with tenant_scope(tenant_id):
        work = Offer(kind=kind, payload={"base_model": "tiny"}, inputs=())
        job = leases.offer(tenant_id, work, compile_id=compile_id, step=STEP if compile_id else "")
        StepRun.objects.filter(tenant_id=tenant_id, compile_id=compile_id, name=STEP).update(status=StepStatus.RUNNING)
    RunnerJob.objects.filter(id=job.id).update(created_at=timezone.now() - timedelta(seconds=waits_s))
    return job


def claimed(runner: str = "r1", kinds: list[RunnerJobKind] | None = None) -> Claim:
    claim = leases.claim(runner, kinds or KINDS)
    assert claim is not None
    return claim


def job_of(claim: Claim) -> RunnerJob:
    return RunnerJob.objects.get(id=decode_id(Prefix.RUNNER_JOB, claim.job_id))


def worked(claim: Claim, seconds: float) -> None:
    """Move the claim's beginning back."""
    RunnerJob.objects.filter(id=job_of(claim).id).update(started_at=timezone.now() - timedelta(seconds=seconds))


def beat(claim: Claim, **changes: Any) -> HeartbeatAnswer:
    progress = {"step": 0, "n_steps": 0, "loss": None, "eta_s": None, "checkpoint_sha256": None, "note": ""} | changes
    return leases.heartbeat(job_of(claim).id, claim.token, Progress.from_json(progress))


def keep_checkpoint(claim: Claim, step: int, *, eta_s: float = 3000.0) -> str:
    job = job_of(claim)
    sha256 = put_blob(job.tenant_id, f"state at {step}".encode())
    beat(claim, step=step, n_steps=1000, eta_s=eta_s, checkpoint_sha256=sha256, checkpoint_step=step, note="epoch 1")
    return sha256


def finish(claim: Claim, **changes: Any) -> None:
    leases.report_success(job_of(claim).id, claim.token, {"n": 1, **changes})


def give_back(claim: Claim) -> None:
    job = job_of(claim)
    leases.report_failure(job.id, claim.token, code="preempted", message="it gave way", is_retryable=True)


def test_a_tenant_with_one_job_does_not_wait_for_anothers_whole_queue() -> None:
    big, small = make_tenant("big"), make_tenant("small")
    for _ in range(5):
        queue(big, waits_s=600)
    assert job_of(claimed("r1")).tenant_id == big.id
    queue(small, waits_s=1)
    assert job_of(claimed("r2")).tenant_id == small.id
    assert job_of(claimed("r3")).tenant_id == big.id


def test_time_of_the_last_hour_counts_and_older_time_does_not() -> None:
    lately, once = make_tenant(), make_tenant()
    now = timezone.now()
    for tenant, hours in ((lately, 0.5), (once, 3.0)):
        ended = now - timedelta(hours=hours)
        RunnerTurn.objects.create(tenant_id=tenant.id, started_at=ended - timedelta(hours=1), ended_at=ended)
    assert turns.used_lately() == {lately.id: pytest.approx(WINDOW_S / 2, abs=5)}
    assert turns.forget_turns() == 1
    queue(lately, waits_s=100)
    queue(once, waits_s=1)
    assert job_of(claimed()).tenant_id == once.id


def test_the_weight_is_that_of_the_plan_when_the_job_was_offered() -> None:
    assert {name: queue(make_tenant(plan=name)).weight for name in ("free", "team")} == {"free": 1, "team": 4}


def test_what_somebody_waits_for_at_the_other_end_goes_before_all_turns() -> None:
    busy, other = make_tenant(), make_tenant()
    queue(other, waits_s=500)
    queue(busy, waits_s=400)
    assert job_of(claimed()).tenant_id == other.id
    asked = queue(other, kind=RunnerJobKind.INFER, waits_s=0)
    assert job_of(claimed(kinds=[*KINDS, RunnerJobKind.INFER])).id == asked.id
    assert asked.id not in RunnerTurn.objects.values_list("id", flat=True)


def test_a_claim_takes_what_the_rule_says_of_any_queue() -> None:
    rng = random.Random(7)
    now = timezone.now()
    tenants = [make_tenant() for _ in range(6)]
    for tenant in tenants:
        for _ in range(rng.randint(1, 4)):
            job = queue(tenant, kind=rng.choice(KINDS), waits_s=rng.uniform(10, 900))
            RunnerJob.objects.filter(id=job.id).update(weight=rng.choice([1, 2, 4]))
        ended = now - timedelta(seconds=rng.uniform(0, 3500))
        began = ended - timedelta(seconds=rng.choice([0, 300, 900]))
        RunnerTurn.objects.create(tenant_id=tenant.id, started_at=began, ended_at=ended)
    while waiting := list(RunnerJob.objects.filter(status=RunnerJobStatus.QUEUED).order_by("-created_at")):
        heads = [as_the_rule_reads(job) for job in {job.tenant_id: job for job in waiting}.values()]
        expected = in_turn(heads, turns.used_lately())[0].job_id
        assert job_of(claimed()).id == expected


def as_the_rule_reads(job: RunnerJob) -> WaitingJob:
    return WaitingJob(
        job_id=job.id,
        tenant_id=job.tenant_id,
        kind=RunnerJobKind(job.kind),
        created_at=job.created_at.timestamp(),
        weight=job.weight,
    )


@pytest.mark.parametrize("hours", [-30, 30])
def test_a_clock_that_jumped_for_a_while_costs_a_tenant_one_window_at_most(hours: int) -> None:
    struck, other = make_tenant(), make_tenant()
    queue(struck)
    claim = claimed()
    worked(claim, 100)
    with clock_ahead_by(timedelta(hours=hours)):
        finish(claim)
    queue(struck, waits_s=20)
    queue(other, waits_s=10)
    assert turns.used_lately().get(struck.id, 0.0) <= 101
    assert {job_of(claimed(name)).tenant_id for name in ("r1", "r2")} == {struck.id, other.id}
    assert turns.forget_turns() == (1 if hours > 0 else 0)


def test_a_pause_that_a_jumped_clock_set_does_not_keep_a_job_for_a_day() -> None:
    job = queue(make_tenant())
    RunnerJob.objects.filter(id=job.id).update(not_before=timezone.now() + timedelta(hours=30))
    assert job_of(claimed()).id == job.id


@contextmanager
def clock_ahead_by(step: timedelta) -> Iterator[None]:
    real = timezone.now
    with patch("django.utils.timezone.now", lambda: real() + step):
        yield


@contextmanager
def taken_by_another(job: RunnerJob) -> Iterator[None]:
    """A runner of another connection that has just locked this job and has not committed yet."""
    is_locked, release = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            with transaction.atomic():
                RunnerJob.objects.select_for_update().get(id=job.id)
                is_locked.set()
                release.wait(10)
        finally:
            connection.close()

    thread = threading.Thread(target=hold)
    thread.start()
    assert is_locked.wait(10)
    try:
        yield
    finally:
        release.set()
        thread.join()


def test_a_runner_passes_over_what_another_one_is_taking_and_comes_to_the_next_tenant() -> None:
    one, other = make_tenant(), make_tenant()
    first, second, third = queue(one, waits_s=30), queue(one, waits_s=20), queue(other, waits_s=10)
    with taken_by_another(first):
        assert job_of(claimed("r2")).id == third.id, "not the first tenant's second job"
        assert job_of(claimed("r3")).id == second.id, "but that before none"
        assert leases.claim("r4", KINDS) is None


def test_runners_that_ask_at_once_come_to_different_tenants() -> None:
    tenants = [make_tenant() for _ in range(3)]
    for tenant in tenants:
        for _ in range(4):
            queue(tenant)
    together = threading.Barrier(3)

    def ask(number: int) -> UUID:
        try:
            together.wait()
            return job_of(claimed(f"r{number}")).tenant_id
        finally:
            connection.close()

    with ThreadPoolExecutor(3) as threads:
        assert sorted(threads.map(ask, range(3))) == sorted(tenant.id for tenant in tenants)


@pytest.fixture
def rows() -> tuple[Compile, Compile]:
    """A compile of one team, whose training of an hour is at work, and one of another team that waits for a minute."""
    return make_compile(make_tenant("long")), make_compile(make_tenant("short"))


def test_a_long_training_gives_way_at_its_checkpoint_goes_on_from_there_and_is_paid_for_once(rows) -> None:
    long, short = rows
    queue(long)
    claim = claimed("r1")
    checkpoint = keep_checkpoint(claim, step=120)
    worked(claim, 500)
    assert not beat(claim).preempt, "nobody waits"
    minute = queue(short)
    assert [beat(claim).preempt for _ in range(2)] == [True, True], "again: the first answer may have been lost"
    last = keep_checkpoint(claim, step=130)
    give_back(claim)
    with pytest.raises(leases.JobGone):
        beat(claim)
    job = job_of(claim)
    assert (job.status, job.checkpoint_sha256, job.error_code) == (RunnerJobStatus.QUEUED, last, "")
    assert (job.attempts, job.attempts_in_vain) == (1, 0)
    assert job.ran_s == pytest.approx(500, abs=10)
    between = claimed("r1")
    assert job_of(between).id == minute.id
    finish(between)
    again = claimed("r1")
    assert (again.job_id, again.checkpoint_sha256, again.attempt) == (claim.job_id, last, 2)
    assert checkpoint != last
    finish(again)
    with tenant_scope(long.tenant_id):
        assert not UsageFact.objects.filter(compile_id=long.id).exists(), "its work is billed by its step, once"
        assert Compile.objects.get(id=long.id).waste_microusd == 0
        messages = [e.data["message"] for e in long.events.order_by("seq") if e.type == "step.progress"]
    assert "paused at step 130, where it goes on: another team's turn" in messages


def test_a_tenant_that_is_being_shown_its_place_loses_no_turn(rows) -> None:
    """Before, the place was a column of the job: its row was locked meanwhile, and a claim passed over it."""
    long, short = rows
    queue(short, waits_s=100)
    queue(long, waits_s=50)
    ((id, line), _) = lines().items()
    is_shown, release = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            with transaction.atomic():
                assert queue_places.show_line(id, line) == 1
                is_shown.set()
                release.wait(10)
        finally:
            connection.close()

    thread = threading.Thread(target=hold)
    thread.start()
    assert is_shown.wait(10)
    try:
        assert job_of(claimed("r1")).id == id
    finally:
        release.set()
        thread.join()


def test_any_number_of_turns_costs_no_attempt(rows) -> None:
    long, short = rows
    queue(long)
    for n in range(1, MAX_ATTEMPTS + 3):
        RunnerTurn.objects.all().delete()
        claim = claimed("r1")
        assert job_of(claim).tenant_id == long.tenant_id
        keep_checkpoint(claim, step=n)
        worked(claim, 10_000)
        queue(short)
        assert beat(claim).preempt
        give_back(claim)
        finish(claimed("r1"))
    assert job_of(claimed("r1")).attempts_in_vain == 1


def test_a_runner_that_dies_before_it_gave_way_leaves_its_checkpoint_and_is_not_asked_again(rows) -> None:
    long, short = rows
    queue(long)
    claim = claimed("r1")
    last = keep_checkpoint(claim, step=120)
    worked(claim, 500)
    queue(short)
    assert beat(claim).preempt
    RunnerJob.objects.filter(id=job_of(claim).id).update(lease_until=timezone.now() - timedelta(seconds=1))
    assert leases.expire_leases() == 1
    job = job_of(claim)
    assert (job.status, job.checkpoint_sha256, job.error_code) == (RunnerJobStatus.QUEUED, last, "runner_lost")
    finish(claimed("r2"))
    again = claimed("r2")
    assert (again.job_id, again.checkpoint_sha256) == (claim.job_id, last)
    keep_checkpoint(again, step=140)
    worked(again, 500)
    assert not beat(again).preempt, "nobody waits any more"
    with pytest.raises(leases.JobGone):
        give_back(claim)


def test_a_job_that_was_canceled_in_the_queue_is_handed_to_nobody_and_moves_nobody(rows) -> None:
    long, short = rows
    queue(long)
    claim = claimed("r1")
    keep_checkpoint(claim, step=120)
    worked(claim, 500)
    waiting = queue(short)
    with tenant_scope(waiting.tenant_id):
        leases.cancel(waiting.id)
    assert not beat(claim).preempt
    finish(claim)
    assert leases.claim("r1", KINDS) is None
    assert RunnerJob.objects.get(id=waiting.id).status == RunnerJobStatus.CANCELED


def test_only_what_has_kept_a_checkpoint_since_it_was_leased_is_asked(rows, settings) -> None:
    long, short = rows
    queue(long)
    claim = claimed("r1")
    worked(claim, 500)
    queue(short)
    assert not beat(claim, step=50, n_steps=100).preempt
    keep_checkpoint(claim, step=60)
    RunnerJob.objects.update(preempt_asked_at=None)
    settings.KOLM_RUNNER_SLICE_S = 0
    assert not beat(claim).preempt, "the operator wants it to keep its runner"
    settings.KOLM_RUNNER_SLICE_S = 1000
    assert not beat(claim).preempt, "its slice is not over"
    settings.KOLM_RUNNER_SLICE_S = 120
    assert beat(claim).preempt


def test_a_job_that_a_free_runner_is_about_to_take_moves_nobody(rows) -> None:
    long, short = rows
    queue(long)
    claim = claimed("r1")
    keep_checkpoint(claim, step=60)
    worked(claim, 500)
    queue(short, waits_s=1)
    assert not beat(claim).preempt


def test_a_runner_that_takes_no_such_jobs_is_not_asked_to_make_room(rows) -> None:
    long, short = rows
    Runner.objects.create(name="r1", report={"kinds": ["distill"]}, seen_at=timezone.now())
    queue(long)
    claim = claimed("r1")
    keep_checkpoint(claim, step=60)
    worked(claim, 500)
    queue(short, kind=RunnerJobKind.EVALUATE)
    assert not beat(claim).preempt


def test_two_trainings_of_one_team_make_room_for_one_waiting_job_once(rows) -> None:
    long, short = rows
    queue(long)
    queue(long)
    claims = [claimed("r1"), claimed("r2")]
    for claim in claims:
        keep_checkpoint(claim, step=60)
        worked(claim, 500)
    queue(short)
    assert sorted(beat(claim).preempt for claim in claims * 2) == [False, False, True, True]


def test_giving_a_job_back_unasked_is_an_attempt_that_came_to_nothing(rows) -> None:
    long, _ = rows
    queue(long)
    claim = claimed("r1")
    give_back(claim)
    job = job_of(claim)
    assert (job.status, job.attempts_in_vain, job.error_code) == (RunnerJobStatus.QUEUED, 1, "preempted")
    with tenant_scope(long.tenant_id):
        assert UsageFact.objects.filter(compile_id=long.id, billing="waste").count() == 1


def show() -> int:
    queue_places._next_look = 0.0
    return queue_places.show_places()


def lines() -> dict[UUID, queue_places.Line]:
    """The line of every waiting job."""
    queue = queue_places.pools_now(timezone.now())
    return {UUID(job.job_id): pool.line(row) for pool in queue for row, job in enumerate(pool.jobs)}


def step_in_api(row: Compile) -> dict[str, Any]:
    answer = Client().get(f"/v1/compiles/{public_id(row)}/steps", headers=bearer(make_api_key(row.tenant_id)))
    return next(step for step in answer.json()["data"] if step["name"] == STEP)


def compile_in_api(row: Compile, *, listed: bool = False) -> dict[str, Any]:
    headers = bearer(make_api_key(row.tenant_id))
    if listed:
        return next(one for one in Client().get("/v1/compiles", headers=headers).json()["data"])
    answer: dict[str, Any] = Client().get(f"/v1/compiles/{public_id(row)}", headers=headers).json()
    return answer


def test_a_waiting_job_has_its_place_and_its_expected_start_in_step_events_and_api(rows) -> None:
    long, short = rows
    queue(long)
    claim = claimed("r1")
    beat(claim, step=10, n_steps=100, eta_s=230.0)
    queue(short, waits_s=30)
    queue(long, waits_s=90)
    assert show() == 2
    shown = step_in_api(short)
    assert (shown["queue"]["place"], shown["queue"]["of"]) == (1, 2)
    assert shown["queue"]["expected_start_at"].endswith("Z")
    assert shown["progress"]["message"] == "waiting for a runner: place 1 of 2, starts in about 4 min"
    assert step_in_api(long)["progress"]["message"] == "waiting for a runner: place 2 of 2"
    with tenant_scope(short.tenant_id):
        event = short.events.order_by("seq").last()
    assert event is not None
    assert event.data["queue"] == shown["queue"]
    assert compile_in_api(short)["queue"] == shown["queue"]
    assert compile_in_api(short, listed=True)["queue"] == shown["queue"]
    assert show() == 0, "nothing is new"
    finish(claim)
    beat(claimed("r1"))
    assert step_in_api(short)["queue"] is None
    assert compile_in_api(short)["queue"] is None
    assert step_in_api(short)["progress"]["message"] == "a runner has taken the job"


def test_an_expected_start_that_is_over_is_never_shown_as_past(rows) -> None:
    _, short = rows
    past = {"place": 1, "of": 1, "expected_start_at": "2026-01-01T00:00:00.000Z"}
    with tenant_scope(short.tenant_id):
        StepRun.objects.filter(compile=short, name=STEP).update(status=StepStatus.RUNNING, queue=past)
    before = timezone.now().replace(microsecond=0)
    for shown in (step_in_api(short)["queue"], compile_in_api(short)["queue"]):
        assert datetime.fromisoformat(shown["expected_start_at"]) >= before


def test_a_start_is_expected_by_what_jobs_of_the_kind_took_lately(rows) -> None:
    long, short = rows
    for _ in range(3):
        queue(long)
        claim = claimed("r1")
        worked(claim, 600)
        finish(claim)
    queue(long)
    beat(claimed("r1"), step=1, n_steps=10, eta_s=60.0)
    RunnerTurn.objects.all().delete()
    first, second = queue(short, waits_s=30), queue(short, waits_s=20)
    expected = lines()
    assert expected[first.id].place.starts_in_s == pytest.approx(60, abs=5)
    assert expected[second.id].place.starts_in_s == pytest.approx(660, abs=10)


def test_a_job_that_no_runner_takes_is_told_so(rows) -> None:
    _, short = rows
    queue(short)
    assert show() == 1
    assert "no runner that takes it reports just now" in step_in_api(short)["progress"]["message"]


def test_a_job_that_a_runner_took_meanwhile_is_shown_no_place(rows) -> None:
    _, short = rows
    queue(short)
    ((id, line),) = lines().items()
    claimed("r1")
    assert queue_places.show_line(id, line) == 0
    assert step_in_api(short)["queue"] is None


def test_what_no_runner_may_take_yet_moves_nobody_and_has_no_place(rows) -> None:
    long, short = rows
    queue(long)
    claim = claimed("r1")
    keep_checkpoint(claim, step=60)
    worked(claim, 500)
    later = queue(short)
    RunnerJob.objects.filter(id=later.id).update(not_before=timezone.now() + timedelta(minutes=10))
    assert not beat(claim).preempt
    RunnerJob.objects.filter(id=later.id).update(not_before=None, attempts_in_vain=MAX_ATTEMPTS)
    assert not beat(claim).preempt
    assert lines() == {}
