"""The webhook pages against a real receiver on loopback: made, tested, replayed, rolled, disabled, deleted."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from standardwebhooks import Webhook

from backend.domain.ids import Prefix, encode_id
from backend.domain.roles import Role
from backend.domain.webhooks.events import EventType
from backend.tenants.isolation import tenant_scope
from backend.webhooks import claims, deliveries
from backend.webhooks.models import DeliveryDue, WebhookEndpoint
from backend.webhooks.sending import send
from tests.backend.console.pages import get, logged_in, post
from tests.factories import make_tenant
from tests.webhook_factories import deliveries_of, make_endpoint, make_event
from tests.webhook_receiver import Answer, Receiver, receiving

pytestmark = pytest.mark.usefixtures("committed_db")

SECRET = re.compile(r"whsec_[A-Za-z0-9+/]{43}=")
HOSTILE = b"<script>alert(1)</script>"


@pytest.fixture
def receiver(settings: Any) -> Iterator[Receiver]:
    with receiving() as receiver:
        settings.KOLM_ALLOW_PRIVATE_WEBHOOKS = (receiver.origin,)
        yield receiver


@pytest.fixture
def tenant(committed_db: None) -> Any:
    DeliveryDue.objects.all().delete()  # one queue for all tenants
    return make_tenant()


def path_of(row):
    return f"/app/webhooks/{encode_id(Prefix.WEBHOOK_ENDPOINT, row.id)}"


def endpoint_of(tenant):
    with tenant_scope(tenant.id):
        return WebhookEndpoint.objects.of_tenant(tenant.id).latest("created_at")


def deliver_due():
    for claim in claims.take(100, per_tenant=100):
        message = deliveries.message_of(claim)
        if message is not None:
            deliveries.record(claim, message, send(message))


def test_without_endpoints_the_page_has_the_line_that_makes_one(tenant):
    text = get(logged_in(tenant), "/app/webhooks")
    assert "No endpoints yet" in text
    assert "/v1/webhook_endpoints" in text
    for type in EventType:
        assert type.value in text


def test_a_new_endpoint_shows_its_secret_once_with_how_to_verify(tenant, receiver):
    client = logged_in(tenant)
    form = {"url": receiver.url, "events": ["compile.*", "invoice.finalized"], "description": "ours"}
    answer = post(client, "/app/webhooks/create", form, status=200)
    text = answer.content.decode()
    assert len(set(SECRET.findall(text.replace("&quot;", '"')))) == 1
    assert "standardwebhooks" in text
    assert answer["Cache-Control"] == "no-store"
    assert not SECRET.search(get(client, path_of(endpoint_of(tenant))))
    assert "ours" in get(client, "/app/webhooks")


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"url": "http://169.254.169.254/latest"}, 422),
        ({"url": "http://10.0.0.1/x"}, 422),
        ({"url": "file:///etc/passwd"}, 422),
        ({"url": ""}, 422),
        ({"events": []}, 422),
        ({"events": ["compile.exploded"]}, 422),
    ],
)
def test_a_url_that_is_not_called_from_here_makes_nothing(tenant, change, status):
    form = {"url": "https://example.com/hook", "events": ["*"]} | change
    post(logged_in(tenant), "/app/webhooks/create", form, status=status)
    with tenant_scope(tenant.id):
        assert not WebhookEndpoint.objects.of_tenant(tenant.id).exists()


def test_a_test_send_is_signed_and_its_answer_is_shown_as_text(tenant, receiver):
    client = logged_in(tenant)
    text = post(client, "/app/webhooks/create", {"url": receiver.url, "events": ["*"]}, status=200).content.decode()
    (secret,) = set(SECRET.findall(text))
    receiver.answer = lambda received: Answer(status=500, body=HOSTILE)
    shown = post(client, f"{path_of(endpoint_of(tenant))}/test", status=200).content.decode()
    (received,) = receiver.got
    assert Webhook(secret).verify(received.body, received.headers)["type"] == "webhook.test"
    assert "500" in shown
    assert HOSTILE.decode() not in shown
    assert "&lt;script&gt;" in shown


def test_the_log_is_filtered_and_an_attempt_has_headers_body_and_latency(tenant, receiver):
    row = make_endpoint(tenant, receiver.url)
    receiver.answer = lambda received: Answer(status=503, body=HOSTILE)
    make_event(tenant, name="router")
    deliver_due()
    client, path = logged_in(tenant), path_of(row)
    text = get(client, f"{path}?status=pending&type=compile.succeeded")
    assert text.count("data-row") == 1
    assert "data-row" not in get(client, f"{path}?status=succeeded")
    (one,) = deliveries_of(tenant)
    detail = get(client, f"/app/webhooks/deliveries/{encode_id(Prefix.WEBHOOK_DELIVERY, one.id)}")
    assert "webhook-id" in detail
    assert "503" in detail
    assert HOSTILE.decode() not in detail
    assert "&lt;script&gt;" in detail
    assert " ms ·" in detail


def test_what_failed_is_sent_again_one_or_all(tenant, receiver):
    row = make_endpoint(tenant, receiver.url)
    receiver.answer = lambda received: Answer(status=410)
    make_event(tenant)
    deliver_due()
    client, path = logged_in(tenant), path_of(row)
    assert "410 Gone" in get(client, path)
    receiver.answer = lambda received: Answer()
    post(client, f"{path}/enable", {"enabled": "1"})
    (one,) = deliveries_of(tenant)
    post(client, f"/app/webhooks/deliveries/{encode_id(Prefix.WEBHOOK_DELIVERY, one.id)}/replay")
    deliver_due()
    assert deliveries_of(tenant)[0].status == "succeeded"
    post(client, f"{path}/replay_failed", {"since": "2026-01-01T00:00"})
    assert "No delivery has failed since then" in get(client, path)
    post(client, f"{path}/replay_failed", {"since": "yesterday"}, status=400)


def test_a_roll_shows_the_new_secret_and_both_sign_for_the_overlap(tenant, receiver):
    row = make_endpoint(tenant, receiver.url)
    client, path = logged_in(tenant), path_of(row)
    text = post(client, f"{path}/roll", {"overlap": "3600"}, status=200).content.decode()
    assert SECRET.search(text)
    assert "together with the previous secret until" in get(client, path)
    make_event(tenant)
    deliver_due()
    assert len(receiver.got[0].headers["webhook-signature"].split()) == 2
    post(client, f"{path}/roll", {"overlap": "1"}, status=400)


def test_it_is_changed_disabled_and_deleted(tenant, receiver):
    row = make_endpoint(tenant, receiver.url)
    client, path = logged_in(tenant), path_of(row)
    post(client, f"{path}/update", {"url": receiver.url, "events": ["compile.failed"], "description": "<b>new</b>"})
    assert "&lt;b&gt;new" in get(client, path)
    post(client, f"{path}/enable", {"enabled": "0"})
    make_event(tenant, "compile.failed")
    assert deliveries_of(tenant) == []
    post(client, f"{path}/delete")
    assert "No endpoints yet" in get(client, "/app/webhooks")
    assert "Deleted" in get(client, path)
    post(client, f"{path}/test", status=404)


@pytest.mark.parametrize("role", [Role.VIEWER, Role.BILLING])
def test_who_may_not_have_webhooks_sees_none(tenant, receiver, role):
    row = make_endpoint(tenant, receiver.url)
    client = logged_in(tenant, role)
    get(client, "/app/webhooks", status=403)
    get(client, path_of(row), status=403)
    post(client, f"{path_of(row)}/delete", status=403)


def test_another_tenants_endpoint_and_deliveries_are_not_there(tenant, receiver):
    theirs = make_tenant("Other")
    row = make_endpoint(theirs, receiver.url)
    make_event(theirs)
    (one,) = deliveries_of(theirs)
    client = logged_in(tenant)
    get(client, path_of(row), status=404)
    for verb in ("update", "roll", "enable", "delete", "test"):
        post(client, f"{path_of(row)}/{verb}", {"url": receiver.url, "events": ["*"]}, status=404)
    post(client, f"{path_of(row)}/replay_failed", {"since": "2026-01-01T00:00"}, status=404)
    path = f"/app/webhooks/deliveries/{encode_id(Prefix.WEBHOOK_DELIVERY, one.id)}"
    get(client, path, status=404)
    post(client, f"{path}/replay", status=404)


def test_sixty_deliveries_stay_within_the_limits(tenant, receiver):
    row = make_endpoint(tenant, receiver.url)
    for i in range(60):
        make_event(tenant, name=f"router {i}")
    text = get(logged_in(tenant), path_of(row))
    assert "1–25 of 60" in text
    get(logged_in(tenant), "/app/webhooks")
    DeliveryDue.objects.filter(tenant_id=tenant.id).delete()
