"""From an event to a receiver and back into the log, with the sender's own loop and a real receiver."""

import json
import time
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from standardwebhooks import Webhook

from backend.domain.ids import Prefix, encode_id
from backend.domain.webhooks.schedule import JITTER, WAITS_S
from backend.domain.webhooks.signing import verify
from backend.tenants.actors import SYSTEM
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from backend.webhooks import claims, deliveries, endpoints
from backend.webhooks.models import DeliveryDue, DeliveryStatus, WebhookAttempt, WebhookDelivery
from backend.webhooks.sending import send
from tests.factories import make_tenant
from tests.webhook_factories import (
    deliveries_of,
    eventually,
    make_endpoint,
    make_endpoint_with_secret,
    make_event,
    pass_time,
    sending,
)
from tests.webhook_receiver import Answer, Receiver

pytestmark = pytest.mark.usefixtures("committed_db", "nothing_due")


def attempts_of(tenant: Tenant) -> list[WebhookAttempt]:
    with tenant_scope(tenant.id):
        return list(WebhookAttempt.objects.of_tenant(tenant.id).order_by("created_at", "number"))


def deliver_due(tenant: Tenant) -> int:
    """What is due of this tenant, as the sender does it, one after the other."""
    n = 0
    for claim in claims.take(1000, per_tenant=1000):
        assert claim.tenant_id == tenant.id, "another test left something behind"
        message = deliveries.message_of(claim)
        if message is not None:
            deliveries.record(claim, message, send(message))
        n += 1
    return n


def test_an_event_arrives_signed_and_is_in_the_log(receiver: Receiver) -> None:
    tenant = make_tenant()
    _, secret = make_endpoint_with_secret(tenant, receiver.url)
    with sending():
        event = make_event(tenant, name="router")
        eventually(lambda: deliveries_of(tenant)[0].status == DeliveryStatus.SUCCEEDED)
    (received,) = receiver.got
    body = Webhook(secret).verify(received.body, received.headers)
    assert body["type"] == "compile.succeeded"
    assert body["data"]["object"]["name"] == "router"
    assert received.headers["webhook-id"] == encode_id(Prefix.WEBHOOK_EVENT, event.id)
    (attempt,) = attempts_of(tenant)
    assert (attempt.number, attempt.status_code, attempt.response_head, attempt.error) == (1, 200, "ok", "")
    assert secret not in json.dumps(attempt.request_headers)
    assert not DeliveryDue.objects.filter(tenant_id=tenant.id).exists()


@pytest.mark.nightly
def test_it_arrives_within_a_second_or_two_though_the_sender_was_asleep(receiver: Receiver) -> None:
    tenant = make_tenant()
    make_endpoint(tenant, receiver.url)
    with sending():
        time.sleep(1.5)
        started = time.monotonic()
        make_event(tenant)
        eventually(lambda: receiver.got)
    assert receiver.got[0].at - started < 2.0


def test_an_endpoint_gets_what_it_asked_for_and_no_other_tenants_events(receiver: Receiver) -> None:
    ours, theirs = make_tenant(), make_tenant()
    make_endpoint(ours, receiver.url + "/artifacts", events=("artifact.*",))
    make_endpoint(ours, receiver.url + "/all")
    make_endpoint(theirs, receiver.url + "/theirs", events=("compile.failed",))
    make_event(ours, "compile.failed")
    make_event(ours, "artifact.revoked")
    for claim in claims.take(100, per_tenant=100):
        message = deliveries.message_of(claim)
        assert message is not None
        deliveries.record(claim, message, send(message))
    got = sorted((received.path, json.loads(received.body)["type"]) for received in receiver.got)
    assert got == [
        ("/hook/all", "artifact.revoked"),
        ("/hook/all", "compile.failed"),
        ("/hook/artifacts", "artifact.revoked"),
    ]


def test_a_rolled_back_change_leaves_no_event_and_no_delivery(receiver: Receiver) -> None:
    tenant = make_tenant()
    make_endpoint(tenant, receiver.url)
    with transaction.atomic():
        make_event(tenant)
        transaction.set_rollback(True)
    assert deliveries_of(tenant) == []
    assert not DeliveryDue.objects.filter(tenant_id=tenant.id).exists()


def test_a_receiver_that_fails_for_days_is_tried_ten_times_on_schedule_and_then_in_the_log_as_failed(
    receiver: Receiver,
) -> None:
    tenant = make_tenant()
    _, secret = make_endpoint_with_secret(tenant, receiver.url)
    receiver.answer = lambda received: Answer(status=500, body=b"not today")
    make_event(tenant)
    waits = []
    for number in range(1, 11):
        assert deliver_due(tenant) == 1
        assert deliver_due(tenant) == 0, "not before its time"
        (row,) = deliveries_of(tenant)
        assert row.attempts == number
        if number < 10:
            assert row.next_at is not None
            waited = row.next_at - attempts_of(tenant)[-1].created_at
            waits.append(waited.total_seconds())
            pass_time(tenant, waited + timedelta(seconds=1))
    assert row.status == DeliveryStatus.FAILED
    for waited_s, planned in zip(waits, WAITS_S[1:], strict=True):
        assert planned * (1 - JITTER) - 1 <= waited_s <= planned * (1 + JITTER) + 1
    assert [attempt.status_code for attempt in attempts_of(tenant)] == [500] * 10
    assert len({received.headers["webhook-id"] for received in receiver.got}) == 1
    assert len({received.body for received in receiver.got}) == 1
    for received in receiver.got:
        Webhook(secret).verify(received.body, received.headers)
    assert not DeliveryDue.objects.exists()


def test_an_endpoint_that_fails_for_more_than_five_days_is_disabled_and_the_others_are_told(receiver: Receiver) -> None:
    tenant = make_tenant()
    broken = make_endpoint(tenant, receiver.url + "/broken", events=("compile.*",))
    make_endpoint(tenant, receiver.url + "/well", events=("webhook_endpoint.*",))
    receiver.answer = lambda received: Answer(status=500 if "broken" in received.path else 200)
    days = 0
    while broken.status == "enabled":
        assert days < 7
        make_event(tenant)
        for _ in range(4):
            deliver_due(tenant)
            pass_time(tenant, timedelta(hours=6))
        days += 1
        with tenant_scope(tenant.id):
            broken.refresh_from_db()
    assert days == 6
    assert broken.disabled_reason == "failing"
    deliver_due(tenant)
    told = json.loads(receiver.got[-1].body)
    assert told["type"] == "webhook_endpoint.disabled"
    assert told["data"]["object"]["id"] == encode_id(Prefix.WEBHOOK_ENDPOINT, broken.id)
    left = {row.status for row in deliveries_of(tenant) if row.endpoint_id == broken.id}
    assert left == {DeliveryStatus.CANCELED, DeliveryStatus.FAILED}  # failed: the first day's, after ten tries
    n_before = len(receiver.got)
    make_event(tenant)
    assert deliver_due(tenant) == 0
    assert len(receiver.got) == n_before


def test_one_success_ends_the_count(receiver: Receiver) -> None:
    tenant = make_tenant()
    endpoint = make_endpoint(tenant, receiver.url)
    for status in (500, 500, 200):
        receiver.answer = lambda received, status=status: Answer(status=status)  # type: ignore[misc]
        make_event(tenant)
        deliver_due(tenant)
        pass_time(tenant, timedelta(days=3))
    with tenant_scope(tenant.id):
        endpoint.refresh_from_db()
    assert (endpoint.status, endpoint.failing_since, endpoint.clock_since) == ("enabled", None, None)


def test_gone_disables_at_once_and_cancels_what_is_pending(receiver: Receiver) -> None:
    tenant = make_tenant()
    endpoint = make_endpoint(tenant, receiver.url)
    receiver.answer = lambda received: Answer(status=500)
    make_event(tenant)
    deliver_due(tenant)
    receiver.answer = lambda received: Answer(status=410)
    make_event(tenant)
    deliver_due(tenant)
    with tenant_scope(tenant.id):
        endpoint.refresh_from_db()
    assert (endpoint.status, endpoint.disabled_reason) == ("disabled", "gone")
    first, second = deliveries_of(tenant)
    assert (first.status, second.status, second.error) == ("canceled", "failed", "gone")
    assert not DeliveryDue.objects.filter(tenant_id=tenant.id).exists()


@pytest.mark.parametrize(("status", "header"), [(429, "600"), (503, "600"), (503, "999999999")])
def test_retry_after_puts_the_next_attempt_off_within_a_day(receiver: Receiver, status: int, header: str) -> None:
    tenant = make_tenant()
    make_endpoint(tenant, receiver.url)
    receiver.answer = lambda received: Answer(status=status, headers={"retry-after": header})
    make_event(tenant)
    deliver_due(tenant)
    (row,) = deliveries_of(tenant)
    assert row.next_at is not None
    waited = (row.next_at - attempts_of(tenant)[0].created_at).total_seconds()
    assert abs(waited - min(int(header), 86_400)) < 2


def test_a_redirect_to_a_metadata_address_is_a_failure_and_not_followed(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    from backend.outbound import sockets

    opened: list[str] = []
    connect = sockets._connect
    monkeypatch.setattr(sockets, "_connect", lambda to, port: opened.append(f"http://{to}:{port}") or connect(to, port))
    tenant = make_tenant()
    make_endpoint(tenant, receiver.url)
    away = {"location": "http://169.254.169.254/latest/meta-data/"}
    receiver.answer = lambda received: Answer(status=307, headers=away)
    make_event(tenant)
    deliver_due(tenant)
    (row,) = deliveries_of(tenant)
    assert (row.status, row.error, row.status_code) == ("pending", "redirect", 307)
    assert opened == [receiver.origin]


def test_a_huge_answer_is_cut_and_what_was_said_first_is_kept(receiver: Receiver) -> None:
    tenant = make_tenant()
    make_endpoint(tenant, receiver.url)
    receiver.answer = lambda received: Answer(body=b"\x00hello\xff" + b"x" * 10_000_000)
    make_event(tenant)
    deliver_due(tenant)
    (attempt,) = attempts_of(tenant)
    assert deliveries_of(tenant)[0].status == DeliveryStatus.SUCCEEDED
    assert attempt.response_is_cut
    assert attempt.response_bytes < 200_000
    assert len(attempt.response_head) == 2048
    assert attempt.response_head.startswith("\ufffdhello\ufffdx")


@pytest.mark.nightly
def test_hanging_and_dripping_receivers_are_cut_at_fifteen_seconds(receiver: Receiver) -> None:
    tenant = make_tenant()
    make_endpoint(tenant, receiver.url + "/hang")
    make_endpoint(tenant, receiver.url + "/drip")
    receiver.answer = lambda received: (
        Answer(hold_s=60) if "hang" in received.path else Answer(body=b"x" * 1000, drip_s=0.2)
    )
    with sending():
        make_event(tenant)
        eventually(lambda: all(row.attempts for row in deliveries_of(tenant)), within_s=30)
        receiver.over.set()
    for attempt in attempts_of(tenant)[:2]:
        assert attempt.error == "timeout"
        assert 14_500 < attempt.latency_ms < 17_000


def test_nobody_listening_is_a_failure_with_its_reason(settings: Any) -> None:
    settings.KOLM_ALLOW_PRIVATE_WEBHOOKS = ("http://127.0.0.1:1",)
    tenant = make_tenant()
    make_endpoint(tenant, "http://127.0.0.1:1/hook")
    make_event(tenant)
    deliver_due(tenant)
    (row,) = deliveries_of(tenant)
    assert (row.error, row.status_code) == ("connect_failed", None)


def test_an_origin_that_is_no_longer_allowed_is_not_called(receiver: Receiver, settings: Any) -> None:
    tenant = make_tenant()
    make_endpoint(tenant, receiver.url)
    make_event(tenant)
    settings.KOLM_ALLOW_PRIVATE_WEBHOOKS = ()
    deliver_due(tenant)
    assert deliveries_of(tenant)[0].error == "address_not_allowed"
    assert receiver.got == []


def test_a_deleted_endpoints_pending_deliveries_are_canceled_and_its_secret_is_gone(receiver: Receiver) -> None:
    tenant = make_tenant()
    endpoint = make_endpoint(tenant, receiver.url)
    make_event(tenant)
    endpoints.delete(tenant.id, endpoint.id, actor=SYSTEM)
    assert deliver_due(tenant) == 0
    (row,) = deliveries_of(tenant)
    assert (row.status, row.attempts) == (DeliveryStatus.CANCELED, 0)
    assert bytes(row.endpoint.secret) == b""
    assert receiver.got == []


def test_an_endpoint_deleted_between_claim_and_send_gets_nothing(receiver: Receiver) -> None:
    tenant = make_tenant()
    endpoint = make_endpoint(tenant, receiver.url)
    make_event(tenant)
    (claim,) = claims.take(10, per_tenant=10)
    endpoints.delete(tenant.id, endpoint.id, actor=SYSTEM)
    assert deliveries.message_of(claim) is None
    assert deliveries_of(tenant)[0].status == DeliveryStatus.CANCELED


def test_an_endpoint_deleted_while_a_request_is_out_stays_canceled_and_the_attempt_is_in_the_log(
    receiver: Receiver,
) -> None:
    tenant = make_tenant()
    endpoint = make_endpoint(tenant, receiver.url)
    make_event(tenant)
    (claim,) = claims.take(10, per_tenant=10)
    message = deliveries.message_of(claim)
    assert message is not None
    outcome = send(message)
    endpoints.delete(tenant.id, endpoint.id, actor=SYSTEM)
    deliveries.record(claim, message, outcome)
    (row,) = deliveries_of(tenant)
    assert (row.status, row.attempts) == (DeliveryStatus.CANCELED, 1)
    assert attempts_of(tenant)[0].status_code == 200


def test_an_event_written_beside_a_deletion_is_canceled_when_its_turn_comes(receiver: Receiver) -> None:
    """The event's transaction saw the endpoint enabled; the deletion saw no pending delivery."""
    tenant = make_tenant()
    endpoint = make_endpoint(tenant, receiver.url)
    endpoints.delete(tenant.id, endpoint.id, actor=SYSTEM)
    event = make_event(tenant)
    with tenant_scope(tenant.id):
        from backend.webhooks.emit import deliver

        deliver(event, [endpoint])
    deliver_due(tenant)
    assert deliveries_of(tenant)[0].status == DeliveryStatus.CANCELED
    assert receiver.got == []


def test_while_a_secret_is_rolled_both_sign_and_afterwards_the_new_one_alone(receiver: Receiver) -> None:
    tenant = make_tenant()
    endpoint, old = make_endpoint_with_secret(tenant, receiver.url)
    _, new = endpoints.roll(tenant.id, endpoint.id, overlap_s=3600, actor=SYSTEM)
    make_event(tenant)
    deliver_due(tenant)
    pass_time(tenant, timedelta(hours=2))
    make_event(tenant)
    deliver_due(tenant)
    during, after = receiver.got
    for secret in (old, new):
        Webhook(secret).verify(during.body, during.headers)
    Webhook(new).verify(after.body, after.headers)
    with pytest.raises(Exception, match="No matching signature"):
        Webhook(old).verify(after.body, after.headers)


def test_an_ed25519_endpoint_is_signed_for_its_public_key(receiver: Receiver) -> None:
    from backend.webhooks.secrets import receiver_secrets

    tenant = make_tenant()
    _, secret = make_endpoint_with_secret(tenant, receiver.url, signature="v1a")
    public = receiver_secrets(secret)["public_key"]
    assert public is not None
    assert receiver_secrets(secret)["secret"] is None
    make_event(tenant)
    deliver_due(tenant)
    (received,) = receiver.got
    assert received.headers["webhook-signature"].startswith("v1a,")
    verify(public, received.headers, received.body, now=int(time.time()))


def test_a_replay_has_the_same_id_and_body_and_a_new_timestamp(receiver: Receiver) -> None:
    tenant = make_tenant()
    _, secret = make_endpoint_with_secret(tenant, receiver.url)
    make_event(tenant)
    deliver_due(tenant)
    (row,) = deliveries_of(tenant)
    time.sleep(1.1)
    deliveries.replay(tenant.id, row.id)
    deliver_due(tenant)
    first, second = receiver.got
    assert first.body == second.body
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.headers["webhook-timestamp"] < second.headers["webhook-timestamp"]
    Webhook(secret).verify(second.body, second.headers)
    (row,) = deliveries_of(tenant)
    assert (row.status, row.attempts, row.tries) == (DeliveryStatus.SUCCEEDED, 2, 1)


def test_all_that_failed_since_then_is_replayed_and_nothing_else(receiver: Receiver) -> None:
    from django.utils import timezone

    tenant = make_tenant()
    endpoint = make_endpoint(tenant, receiver.url)
    for number, status in enumerate((410, 200)):
        receiver.answer = lambda received, status=status: Answer(status=status)  # type: ignore[misc]
        endpoints.set_enabled(tenant.id, endpoint.id, enabled=True, actor=SYSTEM)
        make_event(tenant, number=number)
        deliver_due(tenant)
    pass_time(tenant, timedelta(days=2))
    receiver.answer = lambda received: Answer(status=410)
    make_event(tenant, number=2)
    deliver_due(tenant)
    endpoints.set_enabled(tenant.id, endpoint.id, enabled=True, actor=SYSTEM)
    receiver.answer = lambda received: Answer()
    receiver.got.clear()
    assert deliveries.replay_failed(tenant.id, endpoint.id, timezone.now() - timedelta(days=1)) == 1
    deliver_due(tenant)
    assert [json.loads(received.body)["data"]["object"]["number"] for received in receiver.got] == [2]
    pass_time(tenant, timedelta(minutes=2))
    assert deliveries.replay_failed(tenant.id, endpoint.id, timezone.now() - timedelta(days=9)) == 1
    deliver_due(tenant)
    assert [json.loads(received.body)["data"]["object"]["number"] for received in receiver.got] == [2, 0]


def test_a_sender_that_dies_after_sending_sends_again_under_the_same_id(receiver: Receiver) -> None:
    tenant = make_tenant()
    make_endpoint(tenant, receiver.url)
    make_event(tenant)
    (claim,) = claims.take(10, per_tenant=10)
    message = deliveries.message_of(claim)
    assert message is not None
    outcome = send(message)  # and then the power goes
    assert claims.take(10, per_tenant=10) == [], "a claim holds"
    pass_time(tenant, timedelta(seconds=claims.LEASE_S + 1))
    deliver_due(tenant)
    assert [received.headers["webhook-id"] for received in receiver.got] == [message.id] * 2
    deliveries.record(claim, message, outcome)  # it was only asleep, and comes back
    (row,) = deliveries_of(tenant)
    assert (row.status, row.attempts, row.tries) == (DeliveryStatus.SUCCEEDED, 2, 1)


def test_what_is_older_than_its_retention_is_swept(receiver: Receiver) -> None:
    from backend.webhooks.models import WebhookEvent
    from backend.webhooks.retention import forget_webhooks

    tenant = make_tenant()
    make_endpoint(tenant, receiver.url)
    for days in (70, 31, 0):
        make_event(tenant, days=days)
        deliver_due(tenant)
        pass_time(tenant, timedelta(days=days))
    forget_webhooks(always=True)
    with tenant_scope(tenant.id):
        assert WebhookEvent.objects.count() == 2  # 101 days old, 31 and 0
        assert WebhookDelivery.objects.count() == WebhookAttempt.objects.count() == 1
