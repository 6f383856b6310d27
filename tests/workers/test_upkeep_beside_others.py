"""Upkeep beside others: what changes between its look and its lock, and faults that must not stop the rest."""

from typing import Any

import pytest
from django.db import OperationalError, connection

from backend.compiles import leases
from backend.compiles.models import Compile, CompileLease, Outbox, TeacherCall
from backend.domain.jobs.runner_jobs import RunnerJobKind
from backend.domain.lifecycle import CompileStatus, StepName
from backend.runner_jobs import leases as job_leases
from backend.runner_jobs.leases import Offer, offer
from backend.runner_jobs.models import RunnerJob, RunnerJobStatus
from backend.tenants.isolation import tenant_scope
from tests.compile_factories import fresh, hold, make_compile
from tests.factories import make_tenant
from tests.workers.calls import EchoTeacher, plan, price
from tests.workers.pipeline_helpers import check_money
from workers import upkeep
from workers.step.teacher_calls import call_batch

pytestmark = pytest.mark.usefixtures("committed_db")


@pytest.fixture
def row(committed_db: None) -> Compile:
    CompileLease.objects.update(due_at=None)
    Outbox.objects.all().delete()
    return make_compile(make_tenant())


def age(row: Compile, column: str, hours: float) -> None:
    with connection.cursor() as cursor:
        past = f"UPDATE compiles_compilelease SET {column} = now() - make_interval(secs => %s) WHERE compile_id = %s"
        cursor.execute(past, [hours * 3600, row.id])


def test_a_compile_that_worked_for_more_than_a_day_and_lost_its_worker_is_taken_over_not_expired(row):
    hold(row)
    age(row, "due_at", 30)
    age(row, "lease_until", 0.01)
    assert upkeep.expire_compiles() == 0
    assert fresh(row).status == CompileStatus.QUEUED
    assert leases.claim(row.id, owner="two") is not None


def test_a_compile_that_somebody_took_after_the_look_is_not_expired(row, monkeypatch):
    age(row, "due_at", 30)
    real = upkeep._execute

    def execute(sql: str, params: list[Any]) -> list[tuple[Any, ...]]:
        found = real(sql, params)
        if not taken and "FOR UPDATE" not in sql:
            taken.append(leases.claim(row.id, owner="quick"))
        return found

    taken: list[Any] = []
    monkeypatch.setattr(upkeep, "_execute", execute)
    upkeep.expire_compiles()
    assert fresh(row).status == CompileStatus.QUEUED
    assert leases.heartbeat(taken[0]) is False, "its holder still has it"


def test_calls_in_flight_of_a_compile_that_expires_are_written_off(row):
    class Killed(BaseException):
        pass

    def die(*_: Any) -> Any:
        raise Killed

    run = hold(row)
    with pytest.raises(Killed):
        call_batch(run, StepName.LABELING, EchoTeacher(die), price(), [plan("a")], lambda *_: None)
    age(row, "due_at", 30)
    age(row, "lease_until", 29)
    assert upkeep.expire_compiles() == 1
    assert (fresh(row).status, row.reserved_microusd) == (CompileStatus.EXPIRED, 0)
    assert row.waste_microusd > 0
    with tenant_scope(row.tenant_id):
        assert TeacherCall.objects.get(compile=row).state == "wasted"
    check_money(row)


@pytest.mark.parametrize("fault", [OperationalError("lock timeout"), KeyError("a bug")])
@pytest.mark.parametrize("broken", ["wake_due_compiles", "relay_outbox", "expire_compiles"])
def test_a_part_of_upkeep_that_fails_does_not_stop_the_others(row, monkeypatch, fault, broken):
    def fail() -> None:
        raise fault

    ran: list[str] = []
    for name in ("wake_due_compiles", "relay_outbox", "expire_compiles"):
        monkeypatch.setattr(upkeep, name, fail if name == broken else lambda name=name: ran.append(name))
    upkeep.tick()
    assert len(ran) == 2


def test_a_job_that_cannot_be_ended_now_does_not_keep_the_others_waiting(row, monkeypatch):
    RunnerJob.objects.all().delete()
    jobs = []
    for _ in range(2):
        with tenant_scope(row.tenant_id):
            jobs.append(offer(row.tenant_id, Offer(kind=RunnerJobKind.DISTILL, payload={}, inputs=())))
        job_leases.claim("r", [RunnerJobKind.DISTILL])
    RunnerJob.objects.update(lease_until=jobs[0].created_at)
    real = job_leases._expire

    def expire(job_id: Any) -> None:
        if job_id == jobs[0].id:
            raise OperationalError("canceling statement due to lock timeout")
        real(job_id)

    monkeypatch.setattr(job_leases, "_expire", expire)
    job_leases.expire_leases()
    states = [RunnerJob.objects.get(id=job.id).status for job in jobs]
    assert states == [RunnerJobStatus.LEASED, RunnerJobStatus.QUEUED]
