"""The client against the real web process: every typed resource, and what each class says the API answers."""

import json
import random
import subprocess
from collections.abc import Iterable
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpu_runners import kolm
from gpu_runners.kolm.rows import Row
from tests.acceptance.deployment import Customer
from tests.bench.event_streams_world import __name__ as WORLD
from tests.compile_factories import small_spec
from tests.web_stack import WebStack

pytestmark = [pytest.mark.timeout(180)]
# members that an answer has in some places only
SOMETIMES = {"secret", "spec", "log", "body", "lines"}


def checked(row: Any) -> Any:
    """Every member of the class is one that the API really answers."""
    found = row if isinstance(row, Row) else next(iter(row))
    unknown = {each.name for each in fields(found)} - {"raw"} - set(found.raw) - SOMETIMES
    assert not unknown, f"{type(found).__name__}: the API has no {unknown}"
    return row


def newest(rows: Iterable[Any]) -> Any:
    return checked(next(iter(rows)))


def test_a_compile_is_made_once_however_often_it_is_asked_for(client: kolm.Client) -> None:
    first = checked(client.compiles.create(small_spec(name="once"), idempotency_key="client-once"))
    again = client.compiles.create(small_spec(name="once"), idempotency_key="client-once")
    assert first.id == again.id
    assert (first.status, first.has_ended, first.budget_microusd) == ("queued", False, 1_000_000)
    assert isinstance(first.created_at, datetime)
    assert first.created_at.tzinfo is not None
    assert [row.id for row in client.compiles.list(name="once")] == [first.id]
    assert client.compiles.get(first.id).name == "once"
    checked(client.compiles.steps(first.id)[0])
    with pytest.raises(kolm.InvalidRequest) as refused:
        client.compiles.create(small_spec(name="other"), idempotency_key="client-once")
    assert refused.value.code == "idempotency_key_reuse"


def test_what_a_compile_would_cost_and_what_is_wrong_with_a_spec(client: kolm.Client) -> None:
    found = checked(client.compiles.estimate(small_spec()))
    assert found.within_budget
    assert found.total["expected_microusd"] > 0
    with pytest.raises(kolm.InvalidRequest, match="/task") as refused:
        client.compiles.create(small_spec(task=""))
    assert refused.value.code == "invalid_spec"
    assert refused.value.request_id


def test_examples_and_captures_as_tables_are_uploaded_and_named_in_the_spec(client: kolm.Client) -> None:
    gold = [{"message": f"message {i}", "intent": ("refund", "other")[i % 2]} for i in range(24)]
    spec = small_spec(name="tables", examples={"holdout": 0.5})
    renamed = [{"input": row["message"], "output": row["intent"]} for row in gold]
    row = client.compiles.create(spec, examples=renamed, captures=["where is it", "give it back"])
    found = client.compiles.get(row.id).spec
    assert found is not None
    uploads = {upload.id: checked(upload) for upload in client.uploads.list()}
    assert uploads[found["examples"]["upload"]].n_rows == 24
    assert uploads[found["captures"]["upload"]].purpose == "captures"
    again = client.uploads.create(gold, purpose="examples", columns={"message": "input", "intent": "output"})
    assert again.n_rows == 24


def test_cancel_and_wait(client: kolm.Client) -> None:
    row = client.compiles.create(small_spec(name="canceled"))
    client.compiles.cancel(row.id)
    seen: list[kolm.Event] = []
    ended = client.compiles.wait(row.id, on_event=seen.append)
    assert (ended.status, ended.has_ended, ended.has_succeeded) == ("canceled", True, False)
    assert [event.seq for event in seen] == list(range(1, ended.sequence + 1))


@pytest.mark.nightly
def test_events_survive_cuts_and_a_restart_of_the_web_process(stack: WebStack, tmp_path: Any) -> None:
    """The stream is cut by a restart while a writer goes on; the reader sees every number once."""
    world = stack.deployment.python("-m", WORLD, "make", "1", "1", stdout=subprocess.PIPE)
    out, _ = world.communicate(timeout=60)
    (tmp_path / "rows.json").write_bytes(out.splitlines()[-1])
    (row,) = json.loads((tmp_path / "rows.json").read_text())
    writer = stack.deployment.python("-m", WORLD, "write", str(tmp_path / "rows.json"), "12", "20")
    seen: list[int] = []
    try:
        with kolm.Client(row["key"], stack.deployment.url) as client:
            client.transport.rng = random.Random(1)
            for event in client.compiles.events(row["id"]):
                seen.append(event.seq)
                if event.seq == 40:
                    stack.restart_web()
                if event.type == "last":
                    break
    finally:
        writer.wait(timeout=60)
    assert seen == list(range(1, len(seen) + 1))
    assert len(seen) > 200


def test_keys_are_made_shown_once_and_revoked(client: kolm.Client, stack: WebStack) -> None:
    until = datetime.now(UTC) + timedelta(days=1)
    made = checked(client.api_keys.create("ci", scopes=["compiles:read"], live=False, expires_at=until))
    assert made.secret is not None
    assert made.secret not in repr(made)
    with kolm.Client(made.secret, stack.deployment.url) as other:
        assert next(iter(other.compiles.list()), None) is not None
        with pytest.raises(kolm.Forbidden):
            other.compiles.create(small_spec())
        assert client.api_keys.revoke(made.id).revoked_at is not None
        with pytest.raises(kolm.Unauthenticated):
            other.compiles.get("cmp_x")
    assert client.api_keys.get(made.id).secret is None


def test_money(client: kolm.Client) -> None:
    account = checked(client.account.get())
    assert account.period_start < account.period_end
    assert checked(client.bills.current()).total_microusd == 0
    assert list(checked(client.bills.groups()).groups) == []
    assert client.bills.groups("2020-01").total_microusd == 0
    assert checked(client.bills.forecast()).known is False
    assert client.invoices.change_details(name="Acme GmbH").name == "Acme GmbH"
    assert checked(client.invoices.details()).name == "Acme GmbH"
    assert list(client.usage.by("tag:team", tag="team:search")) == []
    assert list(client.usage.by("sku")) == []
    assert client.usage.csv().startswith("occurred_at,")
    made = checked(client.budgets.create(cap_microusd=5_000_000))
    assert client.budgets.update(made.id, cap_microusd=6_000_000, hard_stop=False).cap_microusd == 6_000_000
    assert newest(client.budgets.list()).id == made.id
    client.budgets.delete(made.id)
    with pytest.raises(kolm.NotFound):
        client.budgets.get(made.id)
    row = client.compiles.create(small_spec(name="billed"))
    assert checked(client.bills.of_compile(row.id)).compile == row.id
    client.compiles.cancel(row.id)
    assert list(client.invoices.list()) == []
    assert [checked(plan).name for plan in client.plans.list() if plan.is_current] == [account.plan]


def test_webhook_endpoints_and_the_feed(client: kolm.Client) -> None:
    _, cursor = client.webhook_events.feed()
    made = checked(client.webhook_endpoints.create("http://127.0.0.1:9/hook", events=["compile.*"]))
    assert made.secret is not None
    assert made.secret.startswith("whsec_")
    assert newest(client.webhook_endpoints.list()).secret is None
    assert client.webhook_endpoints.roll(made.id).secret != made.secret
    assert client.webhook_endpoints.disable(made.id).status == "disabled"
    client.webhook_endpoints.enable(made.id)
    row = client.compiles.create(small_spec(name="told"))
    events, later = client.webhook_events.feed(cursor)
    assert [event.type for event in events] == ["compile.queued"]
    assert checked(events[0]).id == later
    assert row.id in events[0].body
    delivery = newest(client.webhook_deliveries.list(endpoint=made.id))
    assert (delivery.event, delivery.type) == (later, "compile.queued")
    client.webhook_endpoints.delete(made.id)
    client.compiles.cancel(row.id)


@pytest.mark.nightly
def test_what_the_plan_does_not_allow_is_an_error_of_its_own(stack: WebStack) -> None:
    with stack.deployment.customer("Small") as small, kolm.Client(small.key, stack.deployment.url) as client:
        arguments = ("manage.py", "set_plan", client.tenant.get().id, "free")
        assert stack.deployment.python(*arguments, stdout=subprocess.DEVNULL).wait(timeout=60) == 0
        for name in ("one", "two"):
            client.compiles.create(small_spec(name=name))
        with pytest.raises(kolm.PaymentRequired) as refused:
            client.compiles.create(small_spec(name="three"))
        assert refused.value.code == "entitlement_reached"


def test_who_one_is(client: kolm.Client, customer: Customer) -> None:
    assert checked(client.tenant.get()).name == "Acme"
    assert list(client.members.list()) == []


def test_teacher_keys(client: kolm.Client) -> None:
    made = checked(client.teacher_keys.create("mine", "sk-teacher-0123456789"))
    assert newest(client.teacher_keys.list()).last4 == made.last4 == "6789"
    client.teacher_keys.delete(made.id)
