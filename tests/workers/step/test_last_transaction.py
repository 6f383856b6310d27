"""The last transaction of a compile: its final step and its end are one effect, whatever happens beside it."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from backend.compiles import leases
from backend.compiles.lifecycle import transitions
from backend.compiles.models import Compile, CompileEvent, CompileLease
from backend.domain.errors import OurError
from backend.domain.lifecycle import STEPS, CompileStatus, StepName
from backend.tenants.isolation import tenant_scope
from tests.compile_factories import fresh, make_compile
from tests.factories import make_tenant
from workers import pipeline
from workers.step.durable import CompileRun
from workers.step.result import StepDone, finish_step

pytestmark = pytest.mark.usefixtures("committed_db")
ENDS = {StepName.GATE: CompileStatus.GATE_FAILED, StepName.PACKAGING: CompileStatus.SUCCEEDED}


class Killed(BaseException):
    """What nobody catches: the process is gone."""


@pytest.fixture
def row(committed_db: None) -> Compile:
    return make_compile(make_tenant())


def stage_of(name: StepName, *, ends: CompileStatus | None = None, then: Callable[[CompileRun], None] = lambda _: None):
    def stage(run: CompileRun) -> StepDone:
        done = StepDone(ends=ends)
        with run.transaction() as fenced:
            finish_step(run, fenced, name, done)
        then(run)
        return done

    return stage


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> dict[StepName, Any]:
    table: dict[StepName, Any] = {name: stage_of(name) for name in STEPS}
    table[StepName.PACKAGING] = stage_of(StepName.PACKAGING, ends=CompileStatus.SUCCEEDED)
    monkeypatch.setattr(pipeline, "STEP_FUNCTIONS", table)
    return table


def die(run: CompileRun) -> None:
    raise Killed


def take_over(row: Compile) -> None:
    """The dead worker's lease runs out, another one comes."""
    with connection.cursor() as cursor:
        past = "lease_until - interval '1 hour'"
        cursor.execute(f"UPDATE compiles_compilelease SET lease_until = {past} WHERE compile_id = %s", [row.id])
    pipeline.advance(row.id)


def cancel(row: Compile) -> None:
    with tenant_scope(row.tenant_id):
        transitions.cancel(row.tenant_id, row.id)


def types(row: Compile) -> list[str]:
    with tenant_scope(row.tenant_id):
        rows = CompileEvent.objects.filter(compile=row).order_by("seq")
        return [f"{e.type}/{e.data['step']}" if "step" in e.data else e.type for e in rows]


@pytest.mark.parametrize("last", ENDS)
def test_a_worker_that_dies_right_after_the_last_step_leaves_an_ended_compile(row, stages, last):
    stages[last] = stage_of(last, ends=ENDS[last], then=die)
    with pytest.raises(Killed):
        pipeline.advance(row.id)
    take_over(row)
    assert fresh(row).status == ENDS[last]
    assert CompileLease.objects.get(compile_id=row.id).due_at is None
    if last == StepName.GATE:
        assert "step.started/packaging" not in types(row), "what failed the gate is never packaged"


@pytest.mark.parametrize("last", ENDS)
def test_a_cancel_that_comes_before_the_last_commit_wins_and_leaves_no_effect_of_it(row, stages, last):
    finish = stage_of(last, ends=ENDS[last])

    def stage(run: CompileRun) -> StepDone:
        cancel(row)
        return finish(run)

    stages[last] = stage
    pipeline.advance(row.id)
    assert (fresh(row).status, row.failure_code) == (CompileStatus.CANCELED, "")
    assert f"step.succeeded/{last}" not in types(row)


def test_what_fails_while_the_customer_cancels_is_canceled_at_once(row, stages):
    def stage(run: CompileRun) -> StepDone:
        cancel(row)
        raise OurError("away")

    stages[StepName.SYNTHESIS] = stage
    pipeline.advance(row.id)
    assert fresh(row).status == CompileStatus.CANCELED
    assert leases.claim(row.id, owner="two") is None
