"""Webhook endpoints, events and deliveries; and the two halves of a Standard Webhooks signature (v1), for receivers
that check it and for `kolm webhooks listen` that makes it."""

import base64
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from .errors import KolmError
from .resource import Resource
from .rows import Json, Row, build

TOLERANCE_S = 300
PREFIX = "whsec_"


class BadSignature(KolmError):
    """The request was not signed with this secret, or its bytes or time were changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookEndpoint(Row):
    """`secret` is there in the answer that made or rolled it."""

    id: str
    url: str
    status: str
    events: Sequence[str] = ()
    description: str = ""
    signature: str = "v1"
    disabled_reason: str | None = None
    disabled_at: datetime | None = None
    failing_since: datetime | None = None
    last_success_at: datetime | None = None
    created_at: datetime | None = None
    secret: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookEvent(Row):
    """`body` is what endpoints are sent, byte for byte; `data` is what is in it."""

    id: str
    type: str
    body: str
    timestamp: datetime | None = None
    data: Json | None = None
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookDelivery(Row):
    """`log` (the attempts, newest first) and `body` are there where one delivery was asked for."""

    id: str
    status: str
    event: str
    endpoint: str
    type: str
    attempts: int = 0
    attempts_left: int = 0
    status_code: int | None = None
    error: str | None = None
    next_attempt_at: datetime | None = None
    created_at: datetime | None = None
    ended_at: datetime | None = None
    body: str | None = None
    log: Sequence[Json] = ()


class WebhookEndpoints(Resource):
    def list(self, *, limit: int | None = None) -> Iterator[WebhookEndpoint]:
        return self._pages(WebhookEndpoint, "/v1/webhook_endpoints", limit=limit)

    def get(self, id: str) -> WebhookEndpoint:
        return build(WebhookEndpoint, self._get(f"/v1/webhook_endpoints/{id}"))

    def create(self, url: str, *, events: Sequence[str] = ("*",), **more: Any) -> WebhookEndpoint:
        body = {"url": url, "events": list(events), **more}
        return build(WebhookEndpoint, self._post("/v1/webhook_endpoints", body))

    def update(self, id: str, **changes: Any) -> WebhookEndpoint:
        return build(WebhookEndpoint, self.transport.send("PATCH", f"/v1/webhook_endpoints/{id}", json=changes).json())

    def roll(self, id: str, **overlap: int) -> WebhookEndpoint:
        """A new secret; for a while (`overlap_s`) both sign."""
        return build(WebhookEndpoint, self._post(f"/v1/webhook_endpoints/{id}/roll", dict(overlap)))

    def reveal(self, id: str) -> WebhookEndpoint:
        return build(WebhookEndpoint, self._post(f"/v1/webhook_endpoints/{id}/reveal"))

    def enable(self, id: str) -> WebhookEndpoint:
        return build(WebhookEndpoint, self._post(f"/v1/webhook_endpoints/{id}/enable"))

    def disable(self, id: str) -> WebhookEndpoint:
        return build(WebhookEndpoint, self._post(f"/v1/webhook_endpoints/{id}/disable"))

    def test(self, id: str, *, type: str | None = None) -> WebhookDelivery:
        """Sent at once; the delivery as it went."""
        body = {} if type is None else {"type": type}
        return build(WebhookDelivery, self._post(f"/v1/webhook_endpoints/{id}/test", body))

    def replay_since(self, id: str, since: str) -> int:
        """Send again what failed since then; how many."""
        return int(self._post(f"/v1/webhook_endpoints/{id}/replay", {"since": since})["n_deliveries"])

    def delete(self, id: str) -> None:
        self.transport.send("DELETE", f"/v1/webhook_endpoints/{id}")


class WebhookEvents(Resource):
    def list(self, *, type: str | None = None, limit: int | None = None) -> Iterator[WebhookEvent]:
        return self._pages(WebhookEvent, "/v1/webhook_events", limit=limit, type=type)

    def feed(self, after: str | None = None) -> tuple[Sequence[WebhookEvent], str]:
        """(up to 100 events behind `after`, oldest first, and the cursor behind them). Without `after`: none, and the
        cursor from which to follow what comes."""
        page = self._get("/v1/webhook_events/feed", after=after)
        return [build(WebhookEvent, row) for row in page["data"]], page["next_cursor"]

    def get(self, id: str) -> WebhookEvent:
        return build(WebhookEvent, self._get(f"/v1/webhook_events/{id}"))


class WebhookDeliveries(Resource):
    def list(
        self, *, endpoint: str | None = None, status: str | None = None, limit: int | None = None
    ) -> Iterator[WebhookDelivery]:
        path = "/v1/webhook_deliveries"
        return self._pages(WebhookDelivery, path, limit=limit, endpoint=endpoint, status=status)

    def get(self, id: str) -> WebhookDelivery:
        return build(WebhookDelivery, self._get(f"/v1/webhook_deliveries/{id}"))

    def replay(self, id: str) -> WebhookDelivery:
        return build(WebhookDelivery, self._post(f"/v1/webhook_deliveries/{id}/replay"))


def new_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def sign(secret: str, *, id: str, timestamp: int, body: bytes) -> str:
    """`v1,…`: HMAC-SHA256 over `id.timestamp.body`."""
    signed = f"{id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(_key(secret), signed, hashlib.sha256).digest()).decode()


def verify(body: bytes, headers: Mapping[str, str], secret: str, *, now: float | None = None) -> Json:
    """The event in a webhook request, once its signature is right and its time within five minutes of ours. Raises
    BadSignature for anything else, however odd."""
    names = {name.lower(): value for name, value in headers.items()}
    try:
        id, stamp = names["webhook-id"], names["webhook-timestamp"]
        expected = sign(secret, id=id, timestamp=int(stamp), body=body).encode()
        offered = names["webhook-signature"].split(" ")
        age_s = abs((time.time() if now is None else now) - int(stamp))
    except (KeyError, ValueError, TypeError) as error:
        raise BadSignature(f"This is no signed webhook: {error}.", code="bad_signature") from error
    if not any(hmac.compare_digest(expected, each.encode()) for each in offered):
        raise BadSignature("No signature fits this secret and these bytes.", code="bad_signature")
    if age_s > TOLERANCE_S:
        raise BadSignature(f"The webhook was signed {age_s:.0f} s away from now.", code="bad_signature")
    try:
        event: Json = json.loads(body)
    except ValueError as error:
        raise BadSignature("The body is not JSON.", code="bad_signature") from error
    return event


def _key(secret: str) -> bytes:
    text = secret.removeprefix(PREFIX)
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
