"""/v1/webhook_endpoints, /v1/webhook_events and /v1/webhook_deliveries."""

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from standardwebhooks import Webhook

from backend.domain.ids import Prefix
from backend.rest.new_ids import new_id
from backend.tenants.actors import SYSTEM
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from backend.usage.accounts import set_plan
from backend.webhooks import claims, deliveries
from backend.webhooks.models import WebhookEndpoint
from backend.webhooks.sending import send
from tests.backend.test_outbound import HOSTILE_URLS
from tests.factories import bearer, make_api_key, make_tenant
from tests.webhook_factories import make_event
from tests.webhook_receiver import Answer, Receiver

pytestmark = pytest.mark.usefixtures("committed_db", "nothing_due")


class Api:
    def __init__(self, tenant: Tenant, **key: Any) -> None:
        self.tenant = tenant
        self.headers = bearer(make_api_key(tenant, **key))

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        data = b"" if body is None else json.dumps(body).encode()
        headers = self.headers | headers
        return Client().generic(method, path, data, content_type="application/json", headers=headers)

    def get(self, path: str) -> Any:
        answer = self.ask("GET", path)
        assert answer.status_code == 200, answer.content
        return answer.json()

    def post(self, path: str, body: Any = None, status: int = 200) -> Any:
        answer = self.ask("POST", path, {} if body is None else body)
        assert answer.status_code == status, answer.content
        return answer.json()


@pytest.fixture
def api() -> Api:
    return Api(make_tenant())


@pytest.fixture
def endpoint(api: Api, receiver: Receiver) -> dict[str, Any]:
    return api.post("/v1/webhook_endpoints", {"url": receiver.url}, 201)  # type: ignore[no-any-return]


def deliver() -> None:
    for claim in claims.take(100, per_tenant=100):
        message = deliveries.message_of(claim)
        if message is not None:
            deliveries.record(claim, message, send(message))


def test_an_endpoint_is_made_shown_changed_and_deleted(api: Api, endpoint: dict[str, Any], receiver: Receiver) -> None:
    assert endpoint["secret"].startswith("whsec_")
    assert (endpoint["events"], endpoint["status"], endpoint["signature"]) == (["*"], "enabled", "v1")
    path = f"/v1/webhook_endpoints/{endpoint['id']}"
    shown = api.get(path)
    assert "secret" not in shown
    assert api.get("/v1/webhook_endpoints")["data"] == [shown]
    changed = api.ask("PATCH", path, {"events": ["compile.*"], "description": "mine"}).json()
    assert (changed["events"], changed["description"], changed["url"]) == (["compile.*"], "mine", receiver.url)
    assert api.ask("DELETE", path).status_code == 200
    assert api.ask("GET", path).status_code == 404
    assert api.get("/v1/webhook_endpoints")["data"] == []


def test_the_secret_is_sealed_at_rest_and_shown_on_request_only(api: Api, endpoint: dict[str, Any]) -> None:
    with connection.cursor() as cursor, tenant_scope(api.tenant.id):
        cursor.execute("SELECT webhooks_webhookendpoint::text, encode(secret, 'escape') FROM webhooks_webhookendpoint")
        assert endpoint["secret"].removeprefix("whsec_") not in str(cursor.fetchall())
    revealed = api.post(f"/v1/webhook_endpoints/{endpoint['id']}/reveal")
    assert revealed["secret"] == endpoint["secret"]
    reader = Api(api.tenant, scopes=["webhooks:read"])
    assert reader.ask("POST", f"/v1/webhook_endpoints/{endpoint['id']}/reveal").status_code == 403
    assert "secret" not in reader.get(f"/v1/webhook_endpoints/{endpoint['id']}")


def test_what_is_done_to_an_endpoint_is_in_the_audit_log(api: Api, endpoint: dict[str, Any]) -> None:
    from backend.tenants.models import AuditEntry

    path = f"/v1/webhook_endpoints/{endpoint['id']}"
    for verb in ("reveal", "roll", "disable", "enable"):
        api.post(f"{path}/{verb}")
    api.ask("PATCH", path, {"description": "x"})
    api.ask("DELETE", path)
    with tenant_scope(api.tenant.id):
        entries = list(AuditEntry.objects.filter(target=endpoint["id"]).order_by("seq"))
    verbs = ["created", "secret_revealed", "secret_rolled", "disabled", "enabled", "changed", "deleted"]
    assert [entry.action for entry in entries] == [f"webhook_endpoint.{verb}" for verb in verbs]
    assert {entry.actor_kind for entry in entries} == {"api_key"}
    assert endpoint["secret"] not in str([entry.data for entry in entries])


@pytest.mark.parametrize("url", HOSTILE_URLS)
def test_an_endpoint_at_a_hostile_url_is_refused(api: Api, url: str) -> None:
    answer = api.ask("POST", "/v1/webhook_endpoints", {"url": url})
    assert answer.status_code == 400, answer.content
    body = answer.json()
    assert body["code"] in ("address_not_allowed", "invalid_request")
    assert body["errors"][0]["pointer"] == "/url"
    assert api.get("/v1/webhook_endpoints")["data"] == []


def test_an_endpoint_cannot_be_moved_to_a_private_address(
    api: Api, endpoint: dict[str, Any], receiver: Receiver
) -> None:
    path = f"/v1/webhook_endpoints/{endpoint['id']}"
    assert api.ask("PATCH", path, {"url": "https://169.254.169.254/"}).status_code == 400
    assert api.get(path)["url"] == receiver.url


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"url": 5},
        {"url": "https://example.com/x", "events": []},
        {"url": "https://example.com/x", "events": ["compile.exploded"]},
        {"url": "https://example.com/x", "signature": "v2"},
        {"url": "https://example.com/x", "secret": "whsec_mine"},
        {"url": "https://example.com/" + "x" * 2000},
        [],
    ],
)
def test_a_malformed_endpoint_is_refused(api: Api, body: Any) -> None:
    assert api.ask("POST", "/v1/webhook_endpoints", body).status_code == 400


def test_the_plan_limits_how_many_there_are(api: Api, receiver: Receiver) -> None:
    from backend.domain.money.plans import plan

    with tenant_scope(api.tenant.id):
        set_plan(api.tenant.id, "free", actor=SYSTEM)
    most = plan("free").webhook_endpoints
    assert most is not None
    for number in range(most):
        api.post("/v1/webhook_endpoints", {"url": f"{receiver.url}/{number}"}, 201)
    refused = api.ask("POST", "/v1/webhook_endpoints", {"url": receiver.url})
    assert (refused.status_code, refused.json()["code"]) == (402, "entitlement_reached")
    gone = api.get("/v1/webhook_endpoints")["data"][0]["id"]
    api.ask("DELETE", f"/v1/webhook_endpoints/{gone}")
    api.post("/v1/webhook_endpoints", {"url": receiver.url}, 201)


def test_a_repeated_creation_under_one_key_makes_one(api: Api, receiver: Receiver) -> None:
    body = {"url": receiver.url}
    first, second = (api.ask("POST", "/v1/webhook_endpoints", body, **{"Idempotency-Key": "k"}) for _ in range(2))
    assert first.json() == second.json()
    assert len(api.get("/v1/webhook_endpoints")["data"]) == 1


def test_a_test_send_arrives_signed_and_answers_with_the_delivery(
    api: Api, endpoint: dict[str, Any], receiver: Receiver
) -> None:
    sent = api.post(f"/v1/webhook_endpoints/{endpoint['id']}/test")
    (received,) = receiver.got
    body = Webhook(endpoint["secret"]).verify(received.body, received.headers)
    assert (body["type"], body["data"]["test"]) == ("webhook.test", True)
    assert (sent["status"], sent["test"], sent["attempts"], sent["status_code"]) == ("succeeded", True, 1, 200)
    assert sent["log"][0]["response"]["body"] == "ok"
    assert sent["body"].encode() == received.body
    assert sent["event"] == received.headers["webhook-id"]
    assert api.get(f"/v1/webhook_deliveries/{sent['id']}") == sent


@pytest.mark.parametrize("type", ["compile.succeeded", "invoice.finalized"])
def test_a_test_send_can_be_of_any_type_and_says_that_it_is_one(
    api: Api, endpoint: dict[str, Any], receiver: Receiver, type: str
) -> None:
    api.post(f"/v1/webhook_endpoints/{endpoint['id']}/test", {"type": type})
    body = json.loads(receiver.got[0].body)
    assert (body["type"], body["data"]["test"]) == (type, True)


def test_a_test_send_that_fails_is_not_tried_again_and_leaves_the_endpoint_as_it_was(
    api: Api, endpoint: dict[str, Any], receiver: Receiver
) -> None:
    receiver.answer = lambda received: Answer(status=410, body=b"no such hook")
    sent = api.post(f"/v1/webhook_endpoints/{endpoint['id']}/test")
    assert (sent["status"], sent["error"], sent["attempts_left"]) == ("failed", "gone", 0)
    assert sent["log"][0]["response"]["body"] == "no such hook"
    assert api.get(f"/v1/webhook_endpoints/{endpoint['id']}")["status"] == "enabled"


def test_a_disabled_endpoint_can_be_tested_before_it_is_enabled(
    api: Api, endpoint: dict[str, Any], receiver: Receiver
) -> None:
    api.post(f"/v1/webhook_endpoints/{endpoint['id']}/disable")
    assert api.post(f"/v1/webhook_endpoints/{endpoint['id']}/test")["status"] == "succeeded"


@pytest.mark.nightly
def test_a_receiver_that_hangs_costs_a_test_send_ten_seconds_and_no_transaction(
    api: Api, endpoint: dict[str, Any], receiver: Receiver
) -> None:
    open_transactions: list[int] = []

    def look(received: object) -> Answer:
        # from the receiver's own thread and connection, while the request waits
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%%'", [])
            open_transactions.append(cursor.fetchone()[0])
        connection.close()
        return Answer(hold_s=30)

    receiver.answer = look
    started = time.monotonic()
    sent = api.post(f"/v1/webhook_endpoints/{endpoint['id']}/test")
    assert 9.5 < time.monotonic() - started < 12
    assert (sent["status"], sent["error"]) == ("failed", "timeout")
    assert open_transactions == [0]
    receiver.over.set()


def test_the_log_is_listed_filtered_and_shows_every_attempt(
    api: Api, endpoint: dict[str, Any], receiver: Receiver
) -> None:
    receiver.answer = lambda received: Answer(status=500, body=b"<b>oops</b>", headers={"x-secret": "no"})
    make_event(api.tenant, number=1)
    deliver()
    receiver.answer = lambda received: Answer()
    make_event(api.tenant, number=2)
    deliver()
    newest, oldest = api.get("/v1/webhook_deliveries")["data"]
    assert (newest["status"], oldest["status"], oldest["attempts_left"]) == ("succeeded", "pending", 9)
    assert oldest["next_attempt_at"] is not None
    for query, expected in [
        ("status=succeeded", [newest]),
        ("status=pending", [oldest]),
        ("status=failed", []),
        (f"endpoint={endpoint['id']}", [newest, oldest]),
        (f"endpoint={new_id(Prefix.WEBHOOK_ENDPOINT)}", []),
        (f"event={oldest['event']}", [oldest]),
    ]:
        assert api.get(f"/v1/webhook_deliveries?{query}")["data"] == expected, query
    assert api.ask("GET", "/v1/webhook_deliveries?status=lost").status_code == 400
    detail = api.get(f"/v1/webhook_deliveries/{oldest['id']}")
    (attempt,) = detail["log"]
    assert attempt["response"]["body"] == "<b>oops</b>"
    assert "x-secret" not in attempt["response"]["headers"]
    assert set(attempt["request_headers"]) == {
        "webhook-id",
        "webhook-timestamp",
        "webhook-signature",
        "content-type",
        "user-agent",
    }
    assert attempt["error"] == "http_error"
    assert attempt["latency_ms"] >= 0
    assert json.loads(detail["body"])["data"]["object"]["number"] == 1
    Webhook(endpoint["secret"]).verify(detail["body"], attempt["request_headers"])


def test_one_is_replayed_and_one_that_is_pending_is_not(api: Api, endpoint: dict[str, Any], receiver: Receiver) -> None:
    make_event(api.tenant)
    (row,) = api.get("/v1/webhook_deliveries")["data"]
    refused = api.ask("POST", f"/v1/webhook_deliveries/{row['id']}/replay")
    assert (refused.status_code, refused.json()["code"]) == (409, "delivery_pending")
    deliver()
    again = api.post(f"/v1/webhook_deliveries/{row['id']}/replay", status=202)
    assert (again["status"], again["attempts_left"]) == ("pending", 10)
    deliver()
    assert len({received.headers["webhook-id"] for received in receiver.got}) == 1
    assert len(receiver.got) == 2
    api.post(f"/v1/webhook_endpoints/{endpoint['id']}/disable")
    refused = api.ask("POST", f"/v1/webhook_deliveries/{row['id']}/replay")
    assert (refused.status_code, refused.json()["code"]) == (409, "endpoint_disabled")


def test_all_since_then_are_replayed_once_a_minute(api: Api, endpoint: dict[str, Any], receiver: Receiver) -> None:
    make_event(api.tenant)
    path = f"/v1/webhook_endpoints/{endpoint['id']}"
    api.post(f"{path}/disable")
    api.post(f"{path}/enable")
    since = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    assert api.post(f"{path}/replay", {"since": since}, 202)["n_deliveries"] == 1
    again = api.ask("POST", f"{path}/replay", {"since": since})
    assert (again.status_code, again.json()["code"]) == (429, "rate_limited")
    assert 1 <= int(again["Retry-After"]) <= 60
    deliver()
    assert len(receiver.got) == 1


def test_events_are_listed_whether_an_endpoint_wanted_them_or_not(api: Api) -> None:
    make_event(api.tenant, "compile.failed", name="x")
    make_event(api.tenant, "artifact.revoked")
    both = api.get("/v1/webhook_events")["data"]
    assert [row["type"] for row in both] == ["artifact.revoked", "compile.failed"]
    (one,) = api.get("/v1/webhook_events?type=compile.failed")["data"]
    assert one["data"] == {"object": {"object": "compile", "name": "x"}}
    assert json.loads(one["body"]) == {"type": one["type"], "timestamp": one["timestamp"], "data": one["data"]}
    assert api.get(f"/v1/webhook_events/{one['id']}") == one


@pytest.mark.parametrize("overlap_s", [-1, 604_801, "x"])
def test_an_overlap_beyond_seven_days_is_refused(api: Api, endpoint: dict[str, Any], overlap_s: Any) -> None:
    answer = api.ask("POST", f"/v1/webhook_endpoints/{endpoint['id']}/roll", {"overlap_s": overlap_s})
    assert answer.status_code == 400


def test_without_an_overlap_the_old_secret_ends_at_once(api: Api, endpoint: dict[str, Any], receiver: Receiver) -> None:
    rolled = api.post(f"/v1/webhook_endpoints/{endpoint['id']}/roll", {"overlap_s": 0})
    assert rolled["secret"] != endpoint["secret"]
    assert rolled["old_secret_until"] is None
    api.post(f"/v1/webhook_endpoints/{endpoint['id']}/test")
    (received,) = receiver.got
    assert " " not in received.headers["webhook-signature"]
    Webhook(rolled["secret"]).verify(received.body, received.headers)


def test_another_tenants_endpoint_is_not_there(api: Api, endpoint: dict[str, Any]) -> None:
    other = Api(make_tenant())
    path = f"/v1/webhook_endpoints/{endpoint['id']}"
    for method, address in [("GET", path), ("PATCH", path), ("DELETE", path)]:
        assert other.ask(method, address, {}).status_code == 404
    for verb in ("roll", "reveal", "enable", "disable", "test", "replay"):
        assert other.ask("POST", f"{path}/{verb}", {}).status_code == 404
    with tenant_scope(api.tenant.id):
        assert WebhookEndpoint.objects.get().deleted_at is None
