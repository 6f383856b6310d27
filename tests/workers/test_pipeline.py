"""The walk: what each kind of error does to a compile. Stages that raise stand in for the real ones."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, connections

from backend.blobs import put_blob
from backend.compiles import leases
from backend.compiles.leases import LeaseLost
from backend.compiles.lifecycle import transitions
from backend.compiles.models import Compile, CompileEvent, CompileLease, StepRun
from backend.domain.errors import InvalidInput, OurError, Unavailable
from backend.domain.jobs.runner_jobs import RunnerJobKind
from backend.domain.lifecycle import STEPS, CompileStatus, StepName, StepStatus
from backend.runner_jobs.leases import Offer, offer
from backend.runner_jobs.models import RunnerJob, RunnerJobStatus
from backend.tenants.isolation import tenant_scope
from tests.compile_factories import change, fresh, lapse, make_compile
from tests.factories import make_tenant
from workers import pipeline
from workers.step.durable import Canceled, CompileRun
from workers.step.result import StepDone, StepWaiting, finish_step
from workers.teachers.protocol import TeacherFailed

pytestmark = pytest.mark.usefixtures("committed_db")


@pytest.fixture
def row() -> Compile:
    return make_compile(make_tenant())


def finishing(name: StepName, *, ends: CompileStatus | None = None) -> Callable[[CompileRun], StepDone]:
    def stage(run: CompileRun) -> StepDone:
        done = StepDone(ends=ends)
        with run.transaction() as fenced:
            finish_step(run, fenced, name, done)
        return done

    return stage


def raising(error: BaseException) -> Callable[[CompileRun], StepDone]:
    def stage(run: CompileRun) -> StepDone:
        raise error

    return stage


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> dict[StepName, Any]:
    """Every stage finishes at once; the last one ends the compile. A test replaces the one it is about."""
    table: dict[StepName, Any] = {name: finishing(name) for name in STEPS}
    table[STEPS[-1]] = finishing(STEPS[-1], ends=CompileStatus.SUCCEEDED)
    monkeypatch.setattr(pipeline, "STEP_FUNCTIONS", table)
    return table


def make_due(row: Compile) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE compiles_compilelease SET due_at = now() WHERE compile_id = %s", [row.id])


def events(row: Compile, type: str) -> list[dict[str, Any]]:
    with tenant_scope(row.tenant_id):
        return [e.data for e in CompileEvent.objects.filter(compile=row, type=type).order_by("seq")]


def step(row: Compile, name: StepName) -> StepRun:
    with tenant_scope(row.tenant_id):
        return StepRun.objects.get(compile=row, name=name)


def lease_of(row: Compile) -> CompileLease:
    return CompileLease.objects.get(compile_id=row.id)


def test_a_compile_walks_all_steps_in_order_and_ends(row, stages):
    pipeline.advance(row.id)
    assert fresh(row).status == CompileStatus.SUCCEEDED
    assert [e["step"] for e in events(row, "step.succeeded")] == [name.value for name in STEPS]
    assert lease_of(row).due_at is None
    pipeline.advance(row.id)
    assert len(events(row, "step.started")) == len(STEPS), "a second wake-up does nothing"


def test_a_stage_that_waits_for_a_runner_lets_go_and_goes_on_later(row, stages):
    def wait(run: CompileRun) -> StepWaiting:
        with run.transaction():
            leases.release(run.lease, due_in_s=30)
        return StepWaiting()

    go_on = stages[StepName.DISTILLATION]
    stages[StepName.DISTILLATION] = wait
    pipeline.advance(row.id)
    assert fresh(row).status == CompileStatus.RUNNING
    assert lease_of(row).lease_until is None
    stages[StepName.DISTILLATION] = go_on
    leases.wake(row.tenant_id, row.id)
    pipeline.advance(row.id)
    assert fresh(row).status == CompileStatus.SUCCEEDED
    assert len(events(row, "step.started")) == len(STEPS)


def test_what_is_the_customers_to_mend_ends_the_compile_with_its_code(row, stages):
    stages[StepName.LABELING] = raising(InvalidInput("The recording has no answers.", code="no_answers"))
    pipeline.advance(row.id)
    fresh(row)
    assert (row.status, row.failure_code, row.failed_step) == (CompileStatus.FAILED, "no_answers", "labeling")
    assert step(row, StepName.LABELING).status == StepStatus.FAILED
    assert step(row, StepName.SELECTION).status == StepStatus.SUCCEEDED
    assert lease_of(row).due_at is None


def test_a_failed_compile_that_is_resumed_goes_on_where_it_stopped(row, stages):
    go_on = stages[StepName.LABELING]
    stages[StepName.LABELING] = raising(InvalidInput("no"))
    pipeline.advance(row.id)
    stages[StepName.LABELING] = go_on
    with tenant_scope(row.tenant_id):
        transitions.resume(row.tenant_id, row.id, budget_microusd=None)
    pipeline.advance(row.id)
    assert fresh(row).status == CompileStatus.SUCCEEDED
    started = [e["step"] for e in events(row, "step.started")]
    assert started.count("labeling") == 2
    assert started.count("slicing") == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OurError("The disk is full.", code="no_space"), "no_space"),
        (ZeroDivisionError("secret detail"), "internal_error"),
        (TeacherFailed("gone", code="teacher_unreachable"), "teacher_unreachable"),
    ],
)
def test_what_is_ours_is_tried_again_later_and_later_and_then_ends(row, stages, error, code):
    stages[StepName.SLICING] = raising(error)
    for attempt in range(1, pipeline.MAX_ATTEMPTS):
        pipeline.advance(row.id)
        assert fresh(row).status == CompileStatus.RUNNING
        assert events(row, "step.retrying")[-1]["attempt"] == attempt
        pipeline.advance(row.id)
        assert len(events(row, "step.retrying")) == attempt, "not before its time"
        make_due(row)
    pipeline.advance(row.id)
    assert (fresh(row).status, row.failure_code) == (CompileStatus.FAILED, code)
    assert "secret" not in row.failure_message
    delays = [e["retry_in_s"] for e in events(row, "step.retrying")]
    assert delays == sorted(delays)
    assert len(set(delays)) == len(delays)


def test_a_teacher_that_refuses_for_good_is_not_asked_again(row, stages):
    stages[StepName.SYNTHESIS] = raising(TeacherFailed("wrong key", code="teacher_rejected"))
    pipeline.advance(row.id)
    assert (fresh(row).status, row.failure_code) == (CompileStatus.FAILED, "teacher_rejected")


def test_progress_starts_the_count_of_attempts_anew(row, stages):
    stages[StepName.SYNTHESIS] = raising(OurError("away"))
    for _ in range(pipeline.MAX_ATTEMPTS - 1):
        make_due(row)
        pipeline.advance(row.id)
    stages[StepName.SYNTHESIS] = finishing(StepName.SYNTHESIS)
    stages[StepName.VERIFICATION] = raising(OurError("away again"))
    make_due(row)
    pipeline.advance(row.id)
    assert fresh(row).status == CompileStatus.RUNNING


def test_a_compile_that_kills_whoever_takes_it_is_stopped(row, stages):
    for _ in range(pipeline.MAX_CLAIMS):
        lease = leases.claim(row.id, owner="dies")
        assert lease is not None
        lapse(lease)
    pipeline.advance(row.id)
    assert (fresh(row).status, row.failure_code) == (CompileStatus.FAILED, "worker_crashed")


def test_a_step_that_moves_on_outlives_any_number_of_workers(row, stages):
    def die_further_on(done: int) -> Callable[[CompileRun], StepDone]:
        def stage(run: CompileRun) -> StepDone:
            with run.transaction():
                run.progress(StepName.SLICING, done=done, total=99, message="rows saved")
            lapse(run.lease)  # as a worker that was killed leaves it
            raise SystemExit

        return stage

    for done in range(1, pipeline.MAX_CLAIMS + 3):
        stages[StepName.SLICING] = die_further_on(done)
        with pytest.raises(SystemExit):
            pipeline.advance(row.id)
    stages[StepName.SLICING] = finishing(StepName.SLICING)
    pipeline.advance(row.id)
    assert fresh(row).status == CompileStatus.SUCCEEDED


def test_a_step_that_dies_at_the_same_row_is_stopped(row, stages):
    def die(run: CompileRun) -> StepDone:
        with run.transaction():
            run.progress(StepName.SLICING, done=7, total=99, message="rows saved")
        lapse(run.lease)
        raise SystemExit

    stages[StepName.SLICING] = die
    for _ in range(pipeline.MAX_CLAIMS + 1):
        with pytest.raises(SystemExit):
            pipeline.advance(row.id)
    pipeline.advance(row.id)
    assert (fresh(row).status, row.failure_code) == (CompileStatus.FAILED, "worker_crashed")


def storing(data: bytes) -> Callable[[CompileRun], StepDone]:
    def stage(run: CompileRun) -> StepDone:
        put_blob(run.tenant_id, data)
        return finishing(StepName.SLICING)(run)

    return stage


def test_a_compile_waits_for_the_blob_disk_and_loses_no_attempt(row, stages, settings, tmp_path):
    there, settings.KOLM_BLOB_DIR = settings.KOLM_BLOB_DIR, tmp_path / "away"
    stages[StepName.SLICING] = storing(b"x")
    for _ in range(pipeline.MAX_CLAIMS + 2):
        pipeline.advance(row.id)
        assert fresh(row).status == CompileStatus.RUNNING
        assert lease_of(row).attempts == 0
        make_due(row)
    (code,) = {event["code"] for event in events(row, "step.retrying")}
    assert code == "blob_store_unavailable"
    settings.KOLM_BLOB_DIR = there
    pipeline.advance(row.id)
    assert fresh(row).status == CompileStatus.SUCCEEDED
    assert lease_of(row).away_since is None


def been_away(row: Compile, seconds: float) -> None:
    with connection.cursor() as cursor:
        since = "UPDATE compiles_compilelease SET away_since = now() - make_interval(secs => %s) WHERE compile_id = %s"
        cursor.execute(since, [seconds, row.id])


def test_a_disk_that_stays_away_ends_the_compile_with_its_name(row, stages, settings, tmp_path):
    settings.KOLM_BLOB_DIR = tmp_path / "away"
    stages[StepName.SLICING] = storing(b"x")
    for away_s in (None, 20, 590):
        if away_s is not None:
            been_away(row, away_s)
        make_due(row)
        pipeline.advance(row.id)
        assert fresh(row).status == CompileStatus.RUNNING
    assert [int(event["retry_in_s"]) for event in events(row, "step.retrying")] == [1, 10, 15]
    been_away(row, 601)
    make_due(row)
    pipeline.advance(row.id)
    assert (fresh(row).status, row.failure_code) == (CompileStatus.FAILED, "blob_store_unavailable")


def test_a_second_outage_after_progress_is_waited_for_anew(row, stages, settings, tmp_path):
    there, settings.KOLM_BLOB_DIR = settings.KOLM_BLOB_DIR, tmp_path / "away"
    stages[StepName.SLICING] = storing(b"x")
    pipeline.advance(row.id)
    been_away(row, 590)
    settings.KOLM_BLOB_DIR = there
    stages[StepName.SYNTHESIS] = raising(Unavailable("away", code="blob_store_unavailable"))
    make_due(row)
    pipeline.advance(row.id)
    assert events(row, "step.retrying")[-1]["retry_in_s"] == 1.0


def test_a_database_that_ends_our_connection_costs_no_attempt(row, stages):
    def die(run: CompileRun) -> StepDone:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        raise AssertionError("the connection is still there")

    stages[StepName.SLICING] = die
    for _ in range(pipeline.MAX_CLAIMS + 2):
        pipeline.advance(row.id)
        assert (fresh(row).status, lease_of(row).attempts) == (CompileStatus.RUNNING, 0)
        make_due(row)
    assert events(row, "step.retrying")[-1]["code"] == "unavailable"


def test_a_statement_that_the_database_refuses_is_a_fault_of_ours(row, stages):
    """What takes too long, waits for a lock for too long or is in a deadlock says nothing of the database's health."""

    def slow(run: CompileRun) -> StepDone:
        with connection.cursor() as cursor:
            cursor.execute("SET statement_timeout = 5; SELECT pg_sleep(1)")
        raise AssertionError

    stages[StepName.SLICING] = slow
    for _ in range(pipeline.MAX_ATTEMPTS):
        make_due(row)
        pipeline.advance(row.id)
    assert (fresh(row).status, row.failure_code) == (CompileStatus.FAILED, "internal_error")


@pytest.mark.nightly
def test_what_was_made_while_the_database_was_away_is_saved_when_it_is_back(row, stages, monkeypatch):
    """The stage holds answers in hand when the database goes: its transaction begins when it is back."""

    def work(run: CompileRun) -> StepDone:
        connection.close()
        connection.close_pool()
        monkeypatch.setitem(connection.settings_dict, "PORT", "1")
        monkeypatch.setitem(connection.settings_dict["OPTIONS"]["pool"], "timeout", 0.3)
        threading.Timer(2.5, come_back).start()
        return finishing(StepName.SLICING)(run)

    def come_back() -> None:
        settings.update(PORT=port)
        settings["OPTIONS"]["pool"]["timeout"] = timeout_s  # of the next pool, which later tests share
        connections["default"].close_pool()  # it knows the other port

    settings, port = connection.settings_dict, connection.settings_dict["PORT"]
    timeout_s = settings["OPTIONS"]["pool"]["timeout"]
    stages[StepName.SLICING] = work
    pipeline.advance(row.id)
    connection.close_pool()
    assert fresh(row).status == CompileStatus.SUCCEEDED
    assert (events(row, "step.retrying"), lease_of(row).fence) == ([], 1)


def test_a_holder_that_lost_its_lease_leaves_without_a_word(row, stages):
    def lose(run: CompileRun) -> StepDone:
        lapse(run.lease)
        assert leases.claim(row.id, owner="two") is not None
        raise LeaseLost

    stages[StepName.SLICING] = lose
    pipeline.advance(row.id)
    assert fresh(row).status == CompileStatus.RUNNING
    assert (events(row, "step.retrying"), lease_of(row).owner) == ([], "two")


def test_a_canceled_compile_stops_its_step_and_its_runner(row, stages):
    jobs: list[RunnerJob] = []

    def cancel_meanwhile(run: CompileRun) -> StepDone:
        with run.transaction() as fenced:
            work = Offer(kind=RunnerJobKind.DISTILL, payload={}, inputs=())
            jobs.append(offer(fenced.compile.tenant_id, work, compile_id=fenced.compile.id, step=StepName.DISTILLATION))
            row_ = run.step(StepName.DISTILLATION)
            row_.runner_job_id = jobs[0].id
            row_.save()
        with tenant_scope(row.tenant_id):
            transitions.cancel(row.tenant_id, row.id)
        raise Canceled

    stages[StepName.DISTILLATION] = cancel_meanwhile
    pipeline.advance(row.id)
    assert fresh(row).status == CompileStatus.CANCELED
    jobs[0].refresh_from_db()
    assert jobs[0].status == RunnerJobStatus.CANCELED
    assert step(row, StepName.DISTILLATION).status == StepStatus.CANCELED
    assert step(row, StepName.LABELING).status == StepStatus.SUCCEEDED


def test_the_heartbeat_tells_a_working_stage_that_it_is_to_stop(row, stages, settings):
    settings.KOLM_COMPILE_LEASE_S = 1

    def work(run: CompileRun) -> StepDone:
        with tenant_scope(row.tenant_id):
            transitions.cancel(row.tenant_id, row.id)
        for _ in range(100):
            run.stop.check()
            time.sleep(0.05)
        raise AssertionError("the stage was never told")

    stages[StepName.SYNTHESIS] = work
    pipeline.advance(row.id)
    assert fresh(row).status == CompileStatus.CANCELED


def test_a_compile_that_is_being_canceled_is_ended_by_whoever_takes_it(row, stages):
    change(row, status=CompileStatus.CANCELING)
    pipeline.advance(row.id)
    assert fresh(row).status == CompileStatus.CANCELED


def test_a_stored_spec_with_a_pattern_that_is_refused_today_ends_with_what_to_write(row, stages):
    change(row, spec=row.spec | {"verifiers": [{"kind": "regex", "pattern": "^(?!.*money)"}]})
    pipeline.advance(row.id)
    fresh(row)
    assert (row.status, row.failure_code) == (CompileStatus.FAILED, "invalid_spec")
    assert "/verifiers/0/pattern: the pattern, at character 2: (?! looks ahead" in row.failure_message
