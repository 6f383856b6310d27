"""Buying a plan through Stripe, giving it up, and a month's invoice."""

import pytest

from backend.domain.errors import Conflict
from tests.backend.billing.billing_month import (
    advance,
    at,
    buy,
    incidents,
    invoices,
    new_tenant,
    now_of,
    plan_of,
    subscription,
    use,
    work,
)


def test_a_paid_plan_becomes_active_and_the_month_is_invoiced_as_the_ledger_has_it(stripe_double):
    tenant = new_tenant(now=now_of(stripe_double))
    buy(stripe_double, tenant, "pro")
    assert plan_of(tenant) == "free", "nothing is believed before Stripe was asked"
    advance(stripe_double, at("2027-02-03T12:00"), tenant)
    assert plan_of(tenant) == "pro"
    assert subscription(tenant).metered_from == at("2027-02-03T11:00")
    (plan_invoice,) = invoices(tenant)
    assert (plan_invoice.kind, plan_invoice.status) == ("plan", "paid")
    assert 4_400 < plan_invoice.total_cents < 4_900, "the rest of February"

    use(tenant, at("2027-02-03T12:30"), 1_234_567)
    use(tenant, at("2027-02-10T23:59:59"), 2_000_001, "serving")
    use(tenant, at("2027-02-28T23:59:59.999999"), 333_333, "gpu_compile")
    advance(stripe_double, at("2027-03-01T06:00"), tenant)
    (invoice,) = invoices(tenant, kind="usage", billed_by="stripe")
    assert (invoice.period_start, invoice.period_end) == (at("2027-02-03T11:00"), at("2027-03-01T00:00"))
    assert invoice.usage_microusd == 1_234_567 + 2_000_001 + 333_333
    assert invoice.subtotal_cents == 123 + 200 + 33 + 4_900
    remote = stripe_double.world.objects["invoice"][invoice.stripe_invoice_id]
    assert (remote["total"], remote["status"]) == (invoice.total_cents, "paid")
    work(stripe_double, tenant)
    assert invoices(tenant, kind="usage", billed_by="stripe")[0].status == "paid"
    assert incidents(tenant) == []


def test_a_second_checkout_is_refused_while_there_is_a_subscription(stripe_double):
    tenant = new_tenant(now=now_of(stripe_double))
    buy(stripe_double, tenant)
    advance(stripe_double, at("2027-02-03T12:00"), tenant)
    with pytest.raises(Conflict, match="portal"):
        buy(stripe_double, tenant, "team")
