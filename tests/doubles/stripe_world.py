"""The state of the Stripe double: a test clock, objects by id, and the events that they make.

Each behaviour names the page of Stripe's documentation (docs.stripe.com) that it copies; words in quotation marks are
that page's, or the SDK's docstring's.
"""

import json
import random
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import stripe

API_VERSION = "2026-10-28.endive"
HOUR_S = 3_600
DAY_S = 24 * HOUR_S
GIVE_UP_S = 3 * DAY_S


@dataclass
class Delivery:
    event: dict[str, Any]
    due: int
    tries: int = 0


@dataclass
class World:
    """`send` takes the body and the signature of a webhook and gives the receiver's status."""

    now: int
    rng: random.Random
    secret: str
    send: Callable[[bytes, str], int] | None = None
    p_duplicate: float = 0.0
    jitter_s: int = 0
    has_outage: bool = False
    objects: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    deliveries: list[Delivery] = field(default_factory=list)
    n_sent: int = 0
    n_duplicates: int = 0
    _count: int = 0
    _run: str = field(default_factory=lambda: secrets.token_hex(6))  # ids of two doubles are never the same

    def new_id(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}_{self._run}{self._count:06d}"

    def add(self, prefix: str, kind: str, **values: Any) -> dict[str, Any]:
        row = {"id": values.pop("id", None) or self.new_id(prefix), "object": kind, "created": self.now}
        row |= {"livemode": False, **values}
        self.objects.setdefault(kind, {})[row["id"]] = row
        return row

    def all(self, kind: str) -> Iterator[dict[str, Any]]:
        yield from self.objects.get(kind, {}).values()

    def get(self, kind: str, id: str) -> dict[str, Any] | None:
        return self.objects.get(kind, {}).get(id)

    # --- webhooks ---------------------------------------------------------------------------------------------

    def emit(self, type: str, about: dict[str, Any]) -> dict[str, Any]:
        """Page "Webhooks", on snapshot events: the object as it was when the event was made, so it may be stale when
        it is read."""
        snapshot = json.loads(json.dumps(about))
        event = self.add("evt", "event", type=type, api_version=API_VERSION, data={"object": snapshot})
        event |= {"pending_webhooks": 1, "request": {"id": None, "idempotency_key": None}}
        # Page "Webhooks", on best practices: the order of events is not guaranteed.
        self.deliveries.append(Delivery(event, self.now + self.rng.randint(0, self.jitter_s)))
        # Ibid.: an endpoint may receive the same event more than once.
        if self.rng.random() < self.p_duplicate:
            self.n_duplicates += 1
            self.deliveries.append(Delivery(event, self.now + self.rng.randint(0, 2 * self.jitter_s + 60)))
        return event

    def deliver_due(self) -> int:
        """Send what is due, in any order. Returns how many the receiver took."""
        due = [delivery for delivery in self.deliveries if delivery.due <= self.now]
        self.rng.shuffle(due)
        return sum(self._deliver(delivery) for delivery in due)

    def _deliver(self, delivery: Delivery) -> bool:
        body = json.dumps(delivery.event)
        signature = stripe.WebhookSignature.generate_signature_header(body, self.secret, int(time.time()))
        status = 0 if self.has_outage or self.send is None else self.send(body.encode(), signature)
        if 200 <= status < 300:
            self.n_sent += 1
            self.deliveries.remove(delivery)
            about = delivery.event["data"]["object"]
            if delivery.event["type"] == "invoice.created":
                self.objects["invoice"][about["id"]].setdefault("_acknowledged_at", self.now)
            return True
        # Page "Webhooks", on retries: for up to three days, with an exponential back-off.
        delivery.tries += 1
        delivery.due = self.now + min(60 * 2**delivery.tries, 4 * HOUR_S)
        if self.now - delivery.event["created"] > GIVE_UP_S:
            self.deliveries.remove(delivery)
        return False


def page(rows: list[dict[str, Any]], url: str, query: dict[str, Any]) -> dict[str, Any]:
    """API reference, "Pagination": newest first, `limit` "can range between 1 and 100, and the default is 10"
    (`MeterListEventSummariesParams.limit`), `starting_after` is an id of the page before."""
    limit = int(query.get("limit", 10))
    after = query.get("starting_after")
    if after:
        rows = rows[next(i for i, row in enumerate(rows) if row["id"] == after) + 1 :]
    shown = [public(row) for row in rows[:limit]]
    return {"object": "list", "url": url, "data": shown, "has_more": len(rows) > limit}


def public(value: Any) -> Any:
    """Without what only the double keeps."""
    if isinstance(value, dict):
        return {key: public(below) for key, below in value.items() if not key.startswith("_")}
    return [public(below) for below in value] if isinstance(value, list) else value
