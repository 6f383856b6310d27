"""What Stripe sends: believed with its signature alone, kept before it is done, done once, in any order."""

import json
import time

import pytest
import stripe
from django.test import Client

from backend.billing import stripe_events
from backend.billing.models import StripeEvent, SubscriptionStatus
from backend.rest.new_ids import new_uuid7
from tests.backend.billing.billing_month import (
    advance,
    at,
    buy,
    incidents,
    new_tenant,
    now_of,
    plan_of,
    subscription,
    work,
)
from tests.backend.billing.conftest import SECRET
from tests.doubles.stripe_server import StripeDouble

PATH = "/v1/stripe/webhook"


def body_of(id: str, object_id: str = "sub_nobody") -> str:
    about = {"id": object_id, "object": "subscription", "status": "active"}
    event = {"id": id, "object": "event", "type": "customer.subscription.updated", "data": {"object": about}}
    return json.dumps(event)


def send(body: str, *, secret: str = SECRET, at_s: int | None = None, signature: str | None = None) -> int:
    signed = stripe.WebhookSignature.generate_signature_header(body, secret, at_s or int(time.time()))
    headers = {"Stripe-Signature": signed if signature is None else signature}
    return Client().post(PATH, body, content_type="application/json", headers=headers).status_code


def keep_events(double: StripeDouble) -> None:
    """Delivered and not done yet; `invoice.created` would be done before it is answered."""
    deliveries = double.world.deliveries
    deliveries[:] = [each for each in deliveries if each.event["type"] != "invoice.created"]
    double.world.deliver_due()


def test_a_forged_a_stale_and_a_missing_signature_are_refused_and_nothing_is_kept(stripe_double):
    body = body_of(f"evt_{new_uuid7()}")
    stamp = int(time.time())
    assert send(body, secret="whsec_somebody_else") == 400
    assert send(body, at_s=stamp - 301) == 400
    assert send(body, signature="") == 400
    assert send(body, signature=f"t={stamp},v1={'0' * 64}") == 400
    good = stripe.WebhookSignature.generate_signature_header(body, SECRET, stamp)
    assert send(body + " ", signature=good) == 400, "signed for other bytes"
    assert send("not json at all") == 400
    assert send(json.dumps([1, 2])) == 400
    assert not StripeEvent.objects.filter(event_id=json.loads(body)["id"]).exists()


def test_other_methods_and_large_bodies_are_refused(stripe_double):
    assert Client().get(PATH).status_code == 405
    body = body_of("evt_" + "x" * 300_000)
    assert send(body) == 413


def test_without_a_key_the_address_says_so(db, settings):
    settings.KOLM_STRIPE_KEY = ""
    answer = Client().post(PATH, "{}", content_type="application/json")
    assert (answer.status_code, answer.json()["code"]) == (501, "payments_not_configured")


def test_an_event_that_is_sent_three_times_is_kept_once_and_done_once(stripe_double):
    id = f"evt_{new_uuid7()}"
    assert [send(body_of(id)) for _ in range(3)] == [200, 200, 200]
    row = StripeEvent.objects.get(event_id=id)
    assert (row.status, row.n_deliveries, row.object_id) == ("received", 3, "sub_nobody")
    asked = len(stripe_double.requests)
    stripe_events.process_due()
    row.refresh_from_db()
    assert row.status == "failed", "there is no such subscription"
    n_asked = len(stripe_double.requests)
    assert n_asked > asked
    assert send(body_of(id)) == 200, "a replay years later is answered"
    stripe_events.process_due()
    assert len(stripe_double.requests) == n_asked, "and not done again"


def test_events_in_the_opposite_order_give_the_same_plan(stripe_double):
    tenant = new_tenant(now=now_of(stripe_double))
    buy(stripe_double, tenant)
    stripe_double.world.deliveries.reverse()
    for delivery in stripe_double.world.deliveries:
        delivery.event["data"]["object"]["status"] = "canceled"  # what it says is not believed
    advance(stripe_double, at("2027-02-03T12:00"), tenant)
    assert plan_of(tenant) == "pro"


@pytest.mark.nightly
def test_an_event_survives_stripe_being_away(stripe_double):
    tenant = new_tenant(now=now_of(stripe_double))
    buy(stripe_double, tenant)
    keep_events(stripe_double)
    stripe_double.world.has_outage = True
    work(stripe_double, tenant)
    assert plan_of(tenant) == "free"
    stripe_double.world.has_outage = False
    work(stripe_double, tenant)
    assert plan_of(tenant) == "pro"


@pytest.mark.nightly
def test_giving_a_plan_up_ends_it_with_the_month_and_a_failed_payment_with_the_period(stripe_double):
    leaver, debtor = (new_tenant(now=now_of(stripe_double)) for _ in range(2))
    remote = {tenant.id: buy(stripe_double, tenant) for tenant in (leaver, debtor)}
    advance(stripe_double, at("2027-02-04T00:00"), leaver, debtor)
    subscriptions = stripe_double.world.objects["subscription"]
    subscriptions[remote[leaver.id]]["cancel_at_period_end"] = True
    stripe_double.world.emit("customer.subscription.updated", subscriptions[remote[leaver.id]])
    customer = subscriptions[remote[debtor.id]]["customer"]
    stripe_double.world.objects["customer"][customer]["_declines"] = True

    advance(stripe_double, at("2027-02-28T18:00"), leaver, debtor, step_h=48)
    assert (plan_of(leaver), subscription(leaver).is_ending) == ("pro", True)
    advance(stripe_double, at("2027-03-02T00:00"), leaver, debtor)
    assert (plan_of(leaver), subscription(leaver).status) == ("free", SubscriptionStatus.ENDED)
    assert subscription(leaver).metered_until == at("2027-03-01T00:00")
    assert (plan_of(debtor), subscription(debtor).status) == ("pro", SubscriptionStatus.PAST_DUE)
    advance(stripe_double, at("2027-04-01T12:00"), leaver, debtor, step_h=72)
    assert plan_of(debtor) == "free"
    assert incidents(leaver) == incidents(debtor) == []


def test_a_crash_between_keeping_and_doing_loses_nothing(stripe_double, monkeypatch):
    tenant = new_tenant(now=now_of(stripe_double))
    buy(stripe_double, tenant)
    keep_events(stripe_double)

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(stripe_events, "_handle", crash)
        with pytest.raises(KeyboardInterrupt):
            stripe_events.process_due()
    work(stripe_double, tenant)
    assert plan_of(tenant) == "pro"
