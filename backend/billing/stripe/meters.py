"""Meters and billing credits at Stripe."""

from datetime import datetime
from decimal import Decimal
from typing import Any

from backend.billing.stripe.api import ask, metadata_of, time_of


def push_total(*, event_name: str, customer: str, hour: datetime, total: int, key: str) -> None:
    """Say what a meter's hour comes to. The newest word for an hour is the one that counts, so this may be repeated."""
    params: Any = {
        "event_name": event_name,
        "identifier": key,
        "timestamp": int(hour.timestamp()),
        "payload": {"stripe_customer_id": customer, "value": str(total)},
    }
    ask(lambda api: api.v1.billing.meter_events.create(params, {"idempotency_key": key}))


def hourly_totals(*, meter_id: str, customer: str, start: datetime, end: datetime) -> dict[datetime, Decimal]:
    """Return what Stripe has for each hour of [start, end), whole hours; hours without usage may be missing."""
    params: dict[str, Any] = {
        "customer": customer,
        "start_time": int(start.timestamp()),
        "end_time": int(end.timestamp()),
        "value_grouping_window": "hour",
        "limit": 100,
    }
    totals: dict[datetime, Decimal] = {}
    while True:
        page = _summaries(meter_id, params)
        totals |= {time_of(row.start_time): Decimal(str(row.aggregated_value)) for row in page.data}
        if not page.has_more:
            return totals
        params["starting_after"] = page.data[-1].id


def _summaries(meter_id: str, params: Any) -> Any:
    return ask(lambda api: api.v1.billing.meters.event_summaries.list(meter_id, params))


def grant_credit(*, customer: str, cents: int, name: str, invoice: str, key: str) -> None:
    """Billing credits for the invoice that is about to become final. Looks first whether they are there."""
    if cents <= 0 or invoice in _invoices_with_credit(customer):
        return
    params: Any = {
        "customer": customer,
        "name": name[:100],
        "category": "promotional",
        "amount": {"type": "monetary", "monetary": {"currency": "usd", "value": cents}},
        "applicability_config": {"scope": {"price_type": "metered"}},
        "metadata": {"invoice": invoice},
    }
    ask(lambda api: api.v1.billing.credit_grants.create(params, {"idempotency_key": key}))


def _invoices_with_credit(customer: str) -> set[str]:
    """The invoices of ours that credits were granted for."""
    params: Any = {"customer": customer, "limit": 100}
    rows = ask(lambda api: api.v1.billing.credit_grants.list(params)).data
    return {str(metadata_of(row).get("invoice", "")) for row in rows if not row.voided_at}
