"""A plan is active only when the price's id, its amount and its currency are those of our table."""

from dataclasses import replace

import pytest

from backend.billing import catalog
from backend.billing.activation import fault_of
from backend.billing.catalog import entry_of_plan
from backend.billing.models import Incident
from backend.billing.stripe import subscriptions
from tests.backend.billing.billing_month import advance, at, buy, incidents, new_tenant, now_of, plan_of, subscription
from tests.profiles import one_in


@pytest.fixture
def bought(stripe_double):
    tenant = new_tenant(now=now_of(stripe_double))
    return subscriptions.subscription(buy(stripe_double, tenant))


def test_what_was_sold_as_it_stands_in_the_table_is_right(bought):
    assert fault_of(bought) == ""


@pytest.mark.parametrize(
    "changes",
    one_in(
        4,
        [
            {"unit_amount": 4_899},
            {"unit_amount": None},
            {"unit_amount": 1},
            {"currency": "eur"},
            {"currency": ""},
            {"interval": "1 year"},
            {"quantity": 0},
            {"quantity": 2},
            {"price_id": "price_of_somebody"},
            {"price_id": ""},
            {"plan": "team"},
            {"plan": ""},
            {"metered_price_ids": frozenset()},
        ],
    ),
)
def test_whatever_is_different_gives_no_plan(bought, changes):
    assert fault_of(replace(bought, **changes)) != ""


def test_the_price_of_one_plan_never_gives_another(bought):
    team = entry_of_plan("team").price_id
    assert fault_of(replace(bought, price_id=team)) != ""
    assert fault_of(replace(bought, price_id=team, plan="team")) != "", "pro's amount"
    assert fault_of(replace(bought, price_id=team, plan="team", unit_amount=29_900)) == ""


def test_a_payment_that_fits_no_plan_opens_an_incident_and_changes_nothing(stripe_double):
    """kolm's own: start Enterprise, pay any amount, get Enterprise."""
    tenant = new_tenant(now=now_of(stripe_double))
    product = stripe_double.billing.product({"name": "cheap"})
    cheap = stripe_double.billing.price(
        {"product": product["id"], "unit_amount": 100, "currency": "usd", "recurring": {"interval": "month"}}
    )
    buy(stripe_double, tenant, "team", price_id=cheap["id"])
    advance(stripe_double, at("2027-02-03T12:00"), tenant)
    assert plan_of(tenant) == "free"
    assert subscription(tenant).status == "refused"
    assert "payment_fits_no_plan" in incidents(tenant)


def test_a_changed_amount_under_our_own_price_id_gives_no_plan(stripe_double):
    tenant = new_tenant(now=now_of(stripe_double))
    stripe_double.world.objects["price"][entry_of_plan("pro").price_id]["unit_amount"] = 900
    buy(stripe_double, tenant, "pro")
    advance(stripe_double, at("2027-02-03T12:00"), tenant)
    assert plan_of(tenant) == "free"
    assert "payment_fits_no_plan" in incidents(tenant)


def test_a_subscription_of_somebody_elses_customer_is_nobodys(stripe_double):
    ours, theirs = (new_tenant(now=now_of(stripe_double)) for _ in range(2))
    id = buy(stripe_double, ours)
    victim = stripe_double.world.objects["subscription"][id]
    victim["metadata"]["tenant"] = "ten_01m80gsn8xfqdr5pxrcgfwk7qx"
    advance(stripe_double, at("2027-02-03T12:00"), ours, theirs)
    assert (plan_of(ours), plan_of(theirs)) == ("free", "free")
    assert Incident.objects.filter(kind="subscription_of_nobody", subject=id).exists()


def test_setting_up_twice_finds_what_is_there(stripe_double):
    before = {row.lookup_key: row.price_id for row in catalog.set_up()}
    n_made = len(list(stripe_double.world.all("price")))
    assert {row.lookup_key: row.price_id for row in catalog.set_up()} == before
    assert len(list(stripe_double.world.all("price"))) == n_made == 7
    assert {meter["event_time_window"] for meter in stripe_double.world.all("billing.meter")} == {"hour"}
