"""The catalog of what is sold at Stripe: a flat price per plan and one metered price per meter, under names of ours.
Making them again finds them; a changed price has another name, so it is a new price."""

from typing import Any

from backend.billing.models import CatalogEntry
from backend.billing.stripe.api import StripeRefused, ask
from backend.domain.errors import CustomerError
from backend.domain.money.ledger import Meter
from backend.domain.money.plans import CURRENCY, Plan, plans
from backend.rest.new_ids import new_uuid7

MICROUSD_IN_CENTS = "0.0001"


def event_name(meter: Meter) -> str:
    return f"kolm_{meter}"


def entry_of_plan(name: str) -> CatalogEntry:
    """Raises CustomerError before `manage.py stripe_setup`."""
    row = CatalogEntry.objects.filter(lookup_key=f"plan:{name}").first()
    if row is None:
        message = "This installation has a Stripe key and no prices yet: its operator runs `manage.py stripe_setup`."
        raise CustomerError(message, code="payments_not_configured")
    return row


def plan_of_price(price_id: str) -> str | None:
    """The plan whose price this is."""
    row = CatalogEntry.objects.filter(price_id=price_id, lookup_key__startswith="plan:").first()
    return None if row is None else row.lookup_key.removeprefix("plan:")


def meter_entries() -> dict[Meter, CatalogEntry]:
    rows = CatalogEntry.objects.filter(lookup_key__startswith="meter:")
    return {Meter(row.lookup_key.removeprefix("meter:")): row for row in rows}


def set_up() -> list[CatalogEntry]:
    """Make or find everything at Stripe, and keep the ids."""
    run = new_uuid7().hex
    rows = [_plan_entry(plan, run) for plan in plans() if plan.is_sold]
    rows += [_meter_entry(meter, run) for meter in Meter]
    for row in rows:
        CatalogEntry.objects.update_or_create(
            lookup_key=row.lookup_key,
            defaults={"product_id": row.product_id, "price_id": row.price_id, "meter_id": row.meter_id},
        )
    _portal(run)
    return rows


def _plan_entry(plan: Plan, run: str) -> CatalogEntry:
    product = _product(f"kolm_plan_{plan.name}", f"kolm {plan.title}", run)
    price = _price(
        f"kolm_{plan.name}_{plan.monthly_cents}_{CURRENCY}_month",
        {
            "product": product,
            "nickname": f"{plan.title} plan",
            "unit_amount": plan.monthly_cents,
            "recurring": {"interval": "month"},
        },
        run,
    )
    return CatalogEntry(lookup_key=f"plan:{plan.name}", product_id=product, price_id=price)


def _meter_entry(meter: Meter, run: str) -> CatalogEntry:
    product = _product(f"kolm_usage_{meter}", f"kolm usage: {meter}", run)
    meter_id = _meter(meter, run)
    price = _price(
        f"kolm_usage_{meter}_microusd",
        {
            "product": product,
            "nickname": f"Usage: {meter}",
            "unit_amount_decimal": MICROUSD_IN_CENTS,
            "recurring": {"interval": "month", "usage_type": "metered", "meter": meter_id},
        },
        run,
    )
    return CatalogEntry(lookup_key=f"meter:{meter}", product_id=product, price_id=price, meter_id=meter_id)


def _product(id: str, name: str, run: str) -> str:
    try:
        return str(ask(lambda api: api.v1.products.retrieve(id)).id)
    except StripeRefused as refused:
        if refused.status != 404:
            raise
    params: Any = {"id": id, "name": name}
    return str(ask(lambda api: api.v1.products.create(params, {"idempotency_key": f"{run}-{id}"})).id)


def _price(lookup_key: str, fields: dict[str, Any], run: str) -> str:
    wanted: Any = {"lookup_keys": [lookup_key], "active": True, "limit": 1}
    prices = ask(lambda api: api.v1.prices.list(wanted)).data
    if prices:
        return str(prices[0].id)
    params: Any = fields | {"lookup_key": lookup_key, "currency": CURRENCY}
    return str(ask(lambda api: api.v1.prices.create(params, {"idempotency_key": f"{run}-{lookup_key}"})).id)


def _meter(meter: Meter, run: str) -> str:
    query: Any = {"limit": 100, "status": "active"}
    for row in ask(lambda api: api.v1.billing.meters.list(query)).data:
        if row.event_name == event_name(meter):
            return str(row.id)
    params: Any = {
        "display_name": f"kolm {meter}, micro-USD",
        "event_name": event_name(meter),
        "default_aggregation": {"formula": "sum"},
        "event_time_window": "hour",  # the newest word for an hour replaces the one before
        "customer_mapping": {"type": "by_id", "event_payload_key": "stripe_customer_id"},
        "value_settings": {"event_payload_key": "value"},
    }
    key = f"{run}-meter-{meter}"
    return str(ask(lambda api: api.v1.billing.meters.create(params, {"idempotency_key": key})).id)


def _portal(run: str) -> None:
    """A portal where a plan is given up at the end of its period: so no hour of usage is left without an invoice."""
    query: Any = {"limit": 100}
    if any(row.active for row in ask(lambda api: api.v1.billing_portal.configurations.list(query)).data):
        return
    params: Any = {
        "features": {
            "invoice_history": {"enabled": True},
            "payment_method_update": {"enabled": True},
            "subscription_cancel": {"enabled": True, "mode": "at_period_end"},
        }
    }
    key = f"{run}-portal"
    ask(lambda api: api.v1.billing_portal.configurations.create(params, {"idempotency_key": key}))
