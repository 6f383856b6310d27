"""Meters, their events and summaries, and billing credits, as the Stripe double has them."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from tests.doubles.stripe_params import Refused
from tests.doubles.stripe_world import DAY_S, HOUR_S, World

WINDOW_S = {"hour": HOUR_S, "day": DAY_S}


@dataclass
class MeterEvent:
    customer: str
    timestamp: int
    value: int
    received: int
    order: int


@dataclass
class Meters:
    """`lag_s`: page "Record usage for billing": "Stripe processes meter events asynchronously, so aggregated usage in
    meter event summaries and on upcoming invoices might not immediately reflect recently received meter events." """

    world: World
    lag_s: int = 120
    events: dict[str, list[MeterEvent]] = field(default_factory=lambda: defaultdict(list))
    identifiers: dict[str, int] = field(default_factory=dict)
    n_received: int = 0

    def create(self, given: dict[str, Any]) -> dict[str, Any]:
        # Page "Configure meters": "You can only use an event name with a single meter."
        if any(meter["event_name"] == given["event_name"] for meter in self.world.all("billing.meter")):
            raise Refused(f"A meter with event_name {given['event_name']} already exists.", param="event_name")
        given.setdefault("event_time_window", None)
        given.setdefault("customer_mapping", {"event_payload_key": "stripe_customer_id", "type": "by_id"})
        given.setdefault("value_settings", {"event_payload_key": "value"})
        return self.world.add("mtr", "billing.meter", status="active", updated=self.world.now, **given)

    def record(self, given: dict[str, Any]) -> dict[str, Any]:
        now = self.world.now
        meter = self._by_name(given["event_name"])
        identifier = given.get("identifier") or self.world.new_id("mevt")
        timestamp = given.get("timestamp", now)
        # `MeterEventCreateParams.timestamp`: "Must be within the past 35 calendar days or up to 5 minutes in the
        # future."
        if timestamp < now - 35 * DAY_S:
            raise Refused("The timestamp is too far in the past.", code="timestamp_too_far_in_past", param="timestamp")
        if timestamp > now + 300:
            raise Refused("The timestamp is in the future.", code="timestamp_in_future", param="timestamp")
        # `MeterEventCreateParams.identifier`: "Stripe enforces uniqueness within a rolling period of at least 24
        # hours."
        if now - self.identifiers.get(identifier, -DAY_S - 1) <= DAY_S:
            raise Refused(f"An event already exists with identifier {identifier}.", code="duplicate_meter_event")
        value = given["payload"].get(meter["value_settings"]["event_payload_key"], "")
        # Page "Configure meters": "You can also fix incorrectly recorded usage data by recording negative
        # quantities."
        if not value.lstrip("-").isdigit():
            raise Refused("The value must be a whole number.", code="meter_event_invalid_value", param="payload")
        self.identifiers[identifier] = now
        customer = given["payload"].get(meter["customer_mapping"]["event_payload_key"], "")
        self.n_received += 1
        self.events[meter["id"]].append(MeterEvent(customer, timestamp, int(value), now, self.n_received))
        shown = {"object": "billing.meter_event", "event_name": given["event_name"], "identifier": identifier}
        return shown | {"created": now, "livemode": False, "payload": given["payload"], "timestamp": timestamp}

    def _by_name(self, name: str) -> dict[str, Any]:
        for meter in self.world.all("billing.meter"):
            if meter["event_name"] == name and meter["status"] == "active":
                return meter
        raise Refused(f"No active meter found for event name {name}.", code="no_meter_found", param="event_name")

    def total(self, meter_id: str, customer: str, start: int, end: int, *, seen_by: int | None = None) -> int:
        """The meter's aggregate over [start, end); `seen_by` leaves out what was received later."""
        meter = self.world.objects["billing.meter"][meter_id]
        mine = [e for e in self.events[meter_id] if e.customer == customer and start <= e.timestamp < end]
        mine = [e for e in mine if seen_by is None or e.received <= seen_by]
        window = WINDOW_S.get(meter["event_time_window"] or "")
        if window:
            # Page "Record usage": "A newer event sent within the same hourly or daily window overwrites the previous
            # one. The hour and day boundaries are based on the meter event timestamp in UTC."
            newest: dict[int, MeterEvent] = {}
            for event in sorted(mine, key=lambda e: e.order):
                newest[event.timestamp // window] = event
            mine = list(newest.values())
        return self._aggregate(meter["default_aggregation"]["formula"], mine)

    @staticmethod
    def _aggregate(formula: str, events: list[MeterEvent]) -> int:
        """Page "Record usage": Sum is "the sum of all usage values", Count "the count of all usage", Last "the most
        recent usage record for the billing period. If you don't report usage, the bill is based on a usage quantity of
        0"."""
        if formula == "count":
            return len(events)
        if formula == "last":
            return max(events, key=lambda e: (e.timestamp, e.order)).value if events else 0
        return sum(e.value for e in events)

    def summaries(self, meter_id: str, query: dict[str, Any]) -> list[dict[str, Any]]:
        if meter_id not in self.world.objects.get("billing.meter", {}):
            raise Refused(f"No such meter: '{meter_id}'", status=404, code="resource_missing", param="id")
        start, end = query["start_time"], query["end_time"]
        window = query.get("value_grouping_window")
        # `MeterListEventSummariesParams`: "Must be aligned with minute boundaries"; "For hourly granularity, start and
        # end times must align with hour boundaries".
        step = WINDOW_S.get(window, end - start)
        aligned = WINDOW_S.get(window, 60)
        if start % aligned or end % aligned or start >= end:
            raise Refused("start_time and end_time must align with the grouping window.", param="start_time")
        seen_by = self.world.now - self.lag_s
        hours = {
            e.timestamp // step * step if window else start
            for e in self.events[meter_id]
            if e.customer == query["customer"] and start <= e.timestamp < end and e.received <= seen_by
        }
        rows = []
        for at in sorted(hours, reverse=True):
            value = self.total(meter_id, query["customer"], at, at + step, seen_by=seen_by)
            row = {"id": f"mtrsum_{meter_id}_{at}", "object": "billing.meter_event_summary", "meter": meter_id}
            rows.append(row | {"aggregated_value": value, "start_time": at, "end_time": at + step, "livemode": False})
        return rows

    # --- billing credits --------------------------------------------------------------------------------------

    def grant(self, given: dict[str, Any]) -> dict[str, Any]:
        monetary = given["amount"].get("monetary")
        if not monetary or int(monetary["value"]) <= 0:
            # `CreditGrantCreateParamsAmountMonetary.value`: "A positive integer representing the amount of the credit
            # grant."
            raise Refused("amount[monetary][value] must be positive", param="amount[monetary][value]")
        given = {"priority": 50, "expires_at": None, "effective_at": self.world.now, "metadata": {}} | given
        kept = {"_left": int(monetary["value"]), "voided_at": None, "updated": self.world.now}
        return self.world.add("credgr", "billing.credit_grant", **(kept | given))

    def apply_credits(self, customer: str, cents: int) -> int:
        """What grants take off so many cents of metered lines. Page "Set up billing credits": "After the invoice
        finalizes, Stripe automatically applies all applicable billing credits."; `CreditGrantCreateParams.priority`:
        "The highest priority is 0 and the lowest is 100."; `expires_at`: "If not specified, the billing credits don't
        expire." """
        grants = [g for g in self.world.all("billing.credit_grant") if g["customer"] == customer and g["_left"] > 0]
        grants = [g for g in grants if g["expires_at"] is None or g["expires_at"] > self.world.now]
        taken = 0
        for grant in sorted(grants, key=lambda g: (g["priority"], g["expires_at"] or 1 << 60, g["created"])):
            part = min(grant["_left"], cents - taken)
            grant["_left"] -= part
            taken += part
        return taken
