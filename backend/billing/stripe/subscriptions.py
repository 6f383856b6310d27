"""Customers, checkout, the portal and subscriptions at Stripe, as our own values."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings

from backend.billing.stripe.api import ask, id_of, metadata_of, time_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSubscription:
    """A subscription as Stripe has it now. `flat` is its licensed item: exactly one, or None."""

    id: str
    customer: str
    status: str
    tenant: str
    plan: str
    price_id: str
    unit_amount: int | None
    currency: str
    interval: str
    quantity: int
    metered_price_ids: frozenset[str]
    start: datetime
    period_start: datetime
    period_end: datetime
    is_ending: bool
    ended_at: datetime | None


def subscription(id: str) -> RemoteSubscription:
    got = ask(lambda api: api.v1.subscriptions.retrieve(id))
    items = list(got["items"]["data"])
    flat = [item for item in items if item.price.recurring and item.price.recurring.usage_type == "licensed"]
    one = flat[0] if len(flat) == 1 else None
    first = one or items[0]
    metadata = metadata_of(got)
    return RemoteSubscription(
        id=got.id,
        customer=id_of(got.customer),
        status=str(got.status),
        tenant=str(metadata.get("tenant", "")),
        plan=str(metadata.get("plan", "")),
        price_id=one.price.id if one else "",
        unit_amount=one.price.unit_amount if one else None,
        currency=str(one.price.currency) if one else "",
        interval=f"{one.price.recurring.interval_count} {one.price.recurring.interval}" if one else "",
        quantity=int(one.quantity or 0) if one else 0,
        metered_price_ids=frozenset(item.price.id for item in items if item is not one),
        start=time_of(got.start_date),
        period_start=time_of(first.current_period_start),
        period_end=time_of(first.current_period_end),
        is_ending=bool(got.cancel_at_period_end or got.cancel_at),
        ended_at=time_of(got.ended_at) if got.ended_at else None,
    )


def make_customer(*, tenant: str, name: str, key: str) -> str:
    params: Any = {"name": name[:256], "metadata": {"tenant": tenant}}
    return str(ask(lambda api: api.v1.customers.create(params, {"idempotency_key": key})).id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """An order, which a checkout sells: a plan's flat price and every meter's."""

    tenant: str
    customer: str
    plan: str
    price_id: str
    metered_price_ids: tuple[str, ...]
    billing_from: datetime  # the first of the next month
    success_url: str
    cancel_url: str


def start_checkout(order: Order, *, key: str) -> str:
    """The address of Stripe's page that takes the payment."""
    named = {"tenant": order.tenant, "plan": order.plan, "price": order.price_id}
    params: Any = {
        "mode": "subscription",
        "customer": order.customer,
        "client_reference_id": order.tenant,
        "metadata": named,
        "line_items": [{"price": order.price_id, "quantity": 1}, *({"price": id} for id in order.metered_price_ids)],
        "subscription_data": {"metadata": named, "billing_cycle_anchor": int(order.billing_from.timestamp())},
        "automatic_tax": {"enabled": settings.KOLM_STRIPE_TAX},
        "success_url": order.success_url,
        "cancel_url": order.cancel_url,
    }
    if settings.KOLM_STRIPE_TAX:
        params |= {"billing_address_collection": "required", "customer_update": {"address": "auto"}}
    return str(ask(lambda api: api.v1.checkout.sessions.create(params, {"idempotency_key": key})).url)


def open_portal(*, customer: str, return_url: str, key: str) -> str:
    params: Any = {"customer": customer, "return_url": return_url}
    return str(ask(lambda api: api.v1.billing_portal.sessions.create(params, {"idempotency_key": key})).url)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteCheckout:
    id: str
    status: str
    tenant: str
    subscription: str
    customer: str


def checkout_session(id: str) -> RemoteCheckout:
    got = ask(lambda api: api.v1.checkout.sessions.retrieve(id))
    return RemoteCheckout(
        id=got.id,
        status=str(got.status),
        tenant=str(got.client_reference_id or ""),
        subscription=id_of(got.subscription),
        customer=id_of(got.customer),
    )
