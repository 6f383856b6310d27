"""Upkeep: a lost wake-up is sent again, and what nobody takes comes to an end."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection

from backend import queue
from backend.compiles import leases
from backend.compiles.lifecycle import transitions
from backend.compiles.models import Compile, CompileEvent, CompileLease, Outbox, StepRun
from backend.domain.jobs.absence import Absence
from backend.domain.jobs.runner_jobs import RunnerJobKind
from backend.domain.lifecycle import CompileStatus, StepName, StepStatus
from backend.runner_jobs.leases import Offer, offer
from backend.runner_jobs.models import RunnerJobStatus
from backend.tenants.isolation import tenant_scope
from backend.valkey import pause
from tests.compile_factories import change, fresh, hold, lapse, make_compile
from tests.factories import make_tenant
from tests.workers.wake_ups import wake_ups_for
from workers import upkeep
from workers.upkeep import expire_compiles, relay_outbox, tick, wake_due_compiles

pytestmark = pytest.mark.usefixtures("committed_db")


@pytest.fixture
def row(committed_db: None, monkeypatch: pytest.MonkeyPatch) -> Compile:
    """The only compile that is due, and the only wake-up that is not sent: the tables are everybody's."""
    CompileLease.objects.update(due_at=None)
    Outbox.objects.all().delete()
    pause.note_answer()
    monkeypatch.setattr(upkeep, "absence", Absence(break_s=10))  # another test's upkeep may have been away just now
    compile = make_compile(make_tenant())
    Outbox.objects.filter(ids__compile_id=str(compile.id)).update(sent_at=None)
    return compile


@pytest.fixture
def without_redis(settings) -> Iterator[None]:
    settings.REDIS_URL = "redis://127.0.0.1:1"
    queue._app.cache_clear()
    yield
    queue._app.cache_clear()
    pause.note_answer()


def age(row: Compile, *, hours: float = 0, seconds: float = 0) -> None:
    """Let time pass for a lease."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE compiles_compilelease SET due_at = due_at - make_interval(hours => 1) * %(h)s"
            " - make_interval(secs => %(s)s), hinted_at = hinted_at - make_interval(secs => %(s)s)"
            " WHERE compile_id = %(id)s",
            {"h": hours, "s": seconds, "id": row.id},
        )


def unsent(row: Compile) -> int:
    return Outbox.objects.filter(ids__compile_id=str(row.id), sent_at=None).count()


def test_a_wake_up_goes_out_with_the_commit_that_it_announces(row):
    compile = make_compile(make_tenant())
    assert wake_ups_for(compile.id) == 1
    assert unsent(compile) == 0


def test_a_wake_up_of_a_transaction_that_was_rolled_back_is_never_sent(row):
    before = wake_ups_for(row.id)
    with pytest.raises(RuntimeError), tenant_scope(row.tenant_id):  # noqa: PT012
        leases.wake_worker(row.tenant_id, row.id)
        raise RuntimeError
    relay_outbox()
    assert (wake_ups_for(row.id), Outbox.objects.filter(ids__compile_id=str(row.id)).count()) == (before + 1, 1)


def test_what_the_outbox_holds_is_relayed_once(row):
    before = wake_ups_for(row.id)
    assert relay_outbox() == 1
    assert relay_outbox() == 0
    assert (wake_ups_for(row.id), unsent(row)) == (before + 1, 0)


def test_two_upkeeps_at_once_relay_a_row_once(row):
    before = wake_ups_for(row.id)

    def relay(_: int) -> int:
        try:
            return relay_outbox()
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(relay, range(4))) == 1
    assert wake_ups_for(row.id) == before + 1


def test_while_redis_is_away_rows_stay_and_are_relayed_when_it_is_back(row, without_redis, settings):
    assert relay_outbox() == 0
    assert unsent(row) == 1
    tick()  # nothing raises
    compile = make_compile(make_tenant())  # writes are accepted
    assert unsent(compile) == 1


def test_rows_that_were_kept_go_out_when_redis_is_back(row):
    before = wake_ups_for(row.id)
    pause._until = float("inf")
    assert relay_outbox() == 0
    pause.note_answer()
    assert relay_outbox() == 1
    assert wake_ups_for(row.id) == before + 1


def test_what_was_sent_long_ago_is_swept(row):
    relay_outbox()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE compiles_outbox SET sent_at = sent_at - interval '25 hours'")
    relay_outbox()
    assert not Outbox.objects.filter(ids__compile_id=str(row.id)).exists()


def test_workers_are_woken_again_for_a_due_compile_that_nobody_holds_every_few_seconds(row):
    before = wake_ups_for(row.id)
    assert wake_due_compiles() == 1
    assert wake_due_compiles() == 0, "not twice in the same moment"
    age(row, seconds=6)
    assert wake_due_compiles() == 1
    assert wake_ups_for(row.id) == before + 2


def test_a_held_compile_is_left_alone_until_its_lease_lapses(row):
    run = hold(row)
    assert wake_due_compiles() == 0
    lapse(run.lease)
    assert wake_due_compiles() == 1


def test_a_compile_that_waits_for_its_runner_is_left_alone(row):
    run = hold(row)
    with run.transaction():
        leases.release(run.lease, due_in_s=30)
    assert wake_due_compiles() == 0


def test_a_compile_that_nobody_took_for_a_day_expires(row):
    assert expire_compiles() == 0
    age(row, hours=25)
    assert expire_compiles() == 1
    assert fresh(row).status == CompileStatus.EXPIRED
    assert (row.failure_code, row.ended_at is not None) == ("expired", True)
    with tenant_scope(row.tenant_id):
        assert CompileEvent.objects.filter(compile=row).order_by("seq").last().type == "compile.expired"
    assert (expire_compiles(), wake_due_compiles()) == (0, 0)


def test_an_expired_compile_stops_its_runner_job_and_can_be_resumed(row):
    with tenant_scope(row.tenant_id):
        work = Offer(kind=RunnerJobKind.DISTILL, payload={}, inputs=())
        job = offer(row.tenant_id, work, compile_id=row.id, step=StepName.DISTILLATION)
        step = StepRun.objects.get(compile=row, name=StepName.DISTILLATION)
        StepRun.objects.filter(id=step.id).update(status=StepStatus.RUNNING, runner_job_id=job.id)
    change(row, status=CompileStatus.RUNNING)
    age(row, hours=25)
    assert expire_compiles() == 1
    job.refresh_from_db()
    assert (job.status, fresh(step).status) == (RunnerJobStatus.CANCELED, StepStatus.CANCELED)
    with tenant_scope(row.tenant_id):
        transitions.resume(row.tenant_id, row.id, budget_microusd=None)
    assert leases.claim(row.id, owner="next") is not None


def test_a_compile_that_was_being_canceled_when_all_workers_went_is_canceled_in_the_end(row):
    change(row, status=CompileStatus.CANCELING)
    age(row, hours=25)
    assert expire_compiles() == 1
    assert fresh(row).status == CompileStatus.CANCELED


def test_a_held_compile_does_not_expire_however_old_it_is(row):
    age(row, hours=48)
    hold(row)
    assert expire_compiles() == 0
    assert fresh(row).status == CompileStatus.QUEUED


def test_after_an_absence_a_holder_has_the_time_to_be_heard(row, monkeypatch):
    """The database was away for longer than a lease: whoever holds the compile may be waiting for it, too."""
    lease = leases.claim(row.id, owner="alive")
    assert lease is not None
    lapse(lease)
    absence, now, before = Absence(break_s=10), time.monotonic(), wake_ups_for(row.id)
    monkeypatch.setattr(upkeep, "absence", absence)
    absence.note_presence(now - 100)
    absence.note_presence(now)
    assert (wake_due_compiles(), wake_ups_for(row.id)) == (0, before)
    monkeypatch.setattr(upkeep, "absence", Absence(break_s=10))
    assert (wake_due_compiles(), wake_ups_for(row.id)) == (1, before + 1)
