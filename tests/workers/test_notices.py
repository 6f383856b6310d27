"""A compile that ends always notifies: every way to every end, walked as the workers walk it."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from backend.artifacts.publishing import publish
from backend.artifacts.revoking import revoke
from backend.compiles.lifecycle import transitions
from backend.compiles.models import Compile, CompileLease
from backend.domain.errors import CustomerError, OurError
from backend.domain.ids import Prefix, encode_id
from backend.domain.lifecycle import MOVES, STEPS, TERMINAL, CompileStatus, StepName
from backend.domain.webhooks.events import entry
from backend.tenants.actors import SYSTEM
from backend.tenants.isolation import tenant_scope
from backend.webhooks.models import DeliveryDue, WebhookDelivery, WebhookEvent
from tests.compile_factories import change, fresh, make_artifact, make_compile, make_receipts, public_id
from tests.factories import make_tenant
from tests.webhook_factories import make_endpoint
from workers import pipeline
from workers.step.durable import CompileRun
from workers.step.result import StepDone, finish_step
from workers.upkeep import expire_compiles

pytestmark = pytest.mark.usefixtures("committed_db")


@pytest.fixture
def row(settings: Any) -> Compile:
    settings.KOLM_ALLOW_PRIVATE_WEBHOOKS = ("http://127.0.0.1:9",)
    CompileLease.objects.update(due_at=None)
    tenant = make_tenant()
    make_endpoint(tenant, "http://127.0.0.1:9/hook", events=("compile.*", "artifact.*"))
    return make_compile(tenant)


def told(row: Compile) -> list[dict[str, Any]]:
    """The bodies so far. Each has its delivery, due."""
    with tenant_scope(row.tenant_id):
        events = list(WebhookEvent.objects.order_by("id"))
        due = set(DeliveryDue.objects.filter(tenant_id=row.tenant_id).values_list("delivery_id", flat=True))
        deliveries = list(WebhookDelivery.objects.all())
        assert {delivery.event_id for delivery in deliveries} == {event.id for event in events}
        assert {delivery.id for delivery in deliveries} == due
        return [json.loads(bytes(event.body)) for event in events]


def types(row: Compile) -> list[str]:
    return [body["type"] for body in told(row)]


def stage(name: StepName, act: Callable[[], CompileStatus | None]) -> Callable[[CompileRun], StepDone]:
    def run_stage(run: CompileRun) -> StepDone:
        done = StepDone(ends=act())
        with run.transaction() as fenced:
            finish_step(run, fenced, name, done)
        return done

    return run_stage


def walk_with(monkeypatch: pytest.MonkeyPatch, row: Compile, at: StepName, act: Callable[[], Any]) -> None:
    """Walk with stand-ins for the stages: each finishes at once, the last with success, and `act` is what happens in
    one of them."""
    table = {name: stage(name, act if name == at else lambda: None) for name in STEPS[:-1]}
    table[STEPS[-1]] = stage(STEPS[-1], act if at == STEPS[-1] else lambda: CompileStatus.SUCCEEDED)
    monkeypatch.setattr(pipeline, "STEP_FUNCTIONS", table)
    pipeline.advance(row.id)


def throw(error: Exception) -> Callable[[], Any]:
    def act() -> None:
        raise error

    return act


def test_success_is_told_with_every_step_on_the_way(row, monkeypatch):
    walk_with(monkeypatch, row, StepName.PACKAGING, lambda: CompileStatus.SUCCEEDED)
    assert types(row) == [
        "compile.queued",
        "compile.started",
        *["compile.progress"] * len(STEPS),
        "compile.succeeded",
    ]
    bodies = told(row)
    progress = [body["data"]["object"]["progress"] for body in bodies if body["type"] == "compile.progress"]
    assert progress == [
        {"step": name.value, "steps_done": n, "steps_total": len(STEPS)} for n, name in enumerate(STEPS, start=1)
    ]
    sequences = [body["data"]["object"]["sequence"] for body in bodies]
    assert sequences == sorted(sequences)
    last = bodies[-1]["data"]["object"]
    assert (last["id"], last["status"]) == (public_id(row), "succeeded")
    assert last["ended_at"] is not None


def test_a_failed_gate_is_told(row, monkeypatch):
    walk_with(monkeypatch, row, StepName.GATE, lambda: CompileStatus.GATE_FAILED)
    assert types(row)[-1] == "compile.gate_failed"


def test_a_fault_of_the_customers_is_told_with_code_and_step(row, monkeypatch):
    walk_with(monkeypatch, row, StepName.SYNTHESIS, throw(CustomerError("Mend the prompt.", code="bad_prompt")))
    last = told(row)[-1]
    assert last["type"] == "compile.failed"
    assert last["data"]["object"]["failure"] == {
        "code": "bad_prompt",
        "message": "Mend the prompt.",
        "step": "synthesis",
    }


@pytest.mark.parametrize("error", [OurError("Away.", code="away"), ValueError("a bug")])
def test_a_fault_of_ours_is_told_after_the_last_try_and_not_before(row, monkeypatch, error):
    for _ in range(pipeline.MAX_ATTEMPTS):
        assert "compile.failed" not in types(row)
        with connection.cursor() as cursor:
            cursor.execute("UPDATE compiles_compilelease SET due_at = now() WHERE compile_id = %s", [row.id])
        walk_with(monkeypatch, row, StepName.SLICING, throw(error))
    assert types(row)[-1] == "compile.failed"
    assert fresh(row).status == CompileStatus.FAILED


def test_a_cancel_in_the_queue_is_told_at_once(row):
    with tenant_scope(row.tenant_id):
        transitions.cancel(row.tenant_id, row.id)
    assert types(row) == ["compile.queued", "compile.canceled"]


def test_a_cancel_under_way_is_told_when_the_worker_has_let_go(row, monkeypatch):
    def cancel() -> None:
        with tenant_scope(row.tenant_id):
            transitions.cancel(row.tenant_id, row.id)

    walk_with(monkeypatch, row, StepName.SELECTION, cancel)
    assert types(row)[-1] == "compile.canceled"
    assert types(row).count("compile.canceled") == 1


def test_a_compile_that_nobody_took_for_a_day_is_told_as_failed_with_status_expired(row):
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE compiles_compilelease SET due_at = now() - interval '25 hours' WHERE compile_id = %s", [row.id]
        )
    assert expire_compiles() == 1
    last = told(row)[-1]
    assert (last["type"], last["data"]["object"]["status"]) == ("compile.failed", "expired")


def test_one_that_was_being_canceled_when_all_workers_went_is_told_as_canceled(row):
    change(row, status=CompileStatus.CANCELING)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE compiles_compilelease SET due_at = now() - interval '25 hours' WHERE compile_id = %s", [row.id]
        )
    assert expire_compiles() == 1
    assert types(row)[-1] == "compile.canceled"


def test_a_resumed_compile_is_told_as_queued_again(row):
    with tenant_scope(row.tenant_id):
        transitions.cancel(row.tenant_id, row.id)
        transitions.resume(row.tenant_id, row.id, budget_microusd=None)
    assert types(row) == ["compile.queued", "compile.canceled", "compile.queued"]


@pytest.mark.parametrize(
    ("now", "to"), [(now, to) for now, moves in MOVES.items() for to in sorted(moves) if to in TERMINAL]
)
def test_every_move_to_an_end_writes_exactly_one_event_of_it(row, now, to):
    change(row, status=now)
    with tenant_scope(row.tenant_id):
        transitions.move(transitions.locked_compile(row.tenant_id, row.id), to)
    assert len(types(row)) == 2
    assert told(row)[-1]["data"]["object"]["status"] == to


def test_an_ending_that_is_rolled_back_tells_nothing(row):
    with tenant_scope(row.tenant_id):
        from django.db import transaction

        transitions.cancel(row.tenant_id, row.id)
        transaction.set_rollback(True)
    assert types(row) == ["compile.queued"]


def test_publishing_and_revoking_are_told(row):
    make_receipts(row)
    artifact = make_artifact(row)
    from backend.blobs import get_blob

    data = get_blob(row.tenant_id, artifact.sha256)
    with tenant_scope(row.tenant_id):
        artifact.delete()
        Compile.objects.filter(id=row.id).update(k_score_ppm=912_345)
        published = publish(transitions.locked_compile(row.tenant_id, row.id).compile, data, artifact.sha256)
    revoke(row.tenant_id, published.id, reason="wrong labels", actor=SYSTEM)
    revoke(row.tenant_id, published.id, reason="again", actor=SYSTEM)
    assert types(row)[-2:] == ["artifact.published", "artifact.revoked"]
    shown = told(row)[-1]["data"]["object"]
    assert shown["id"] == encode_id(Prefix.ARTIFACT, published.id)
    assert shown["revoked_reason"] == "wrong labels"


@pytest.mark.parametrize("type", ["compile.queued", "compile.progress", "artifact.published", "artifact.revoked"])
def test_what_is_told_has_the_fields_of_the_catalogues_example(row, monkeypatch, type):
    if type == "compile.progress":
        walk_with(monkeypatch, row, StepName.PACKAGING, lambda: CompileStatus.SUCCEEDED)
    elif type != "compile.queued":
        test_publishing_and_revoking_are_told(row)
    body = next(body for body in told(row) if body["type"] == type)
    assert list(body) == ["type", "timestamp", "data"]
    assert set(body["data"]["object"]) == set(entry(type).object)
