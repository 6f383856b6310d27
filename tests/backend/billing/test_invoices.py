"""Closing a month without Stripe: half-open periods of UTC, the ledger's amounts, one invoice for each."""

import json
import os
import time
from datetime import timedelta
from itertools import pairwise

import pytest
from django.core.management import call_command
from django.test import Client

from backend.billing import cycle
from backend.billing.invoices import close_ended
from backend.billing.models import InvoiceLine
from backend.domain.ids import Prefix, encode_id
from backend.domain.money.ledger import ACCRUED, RECEIVABLE, ROUNDING
from backend.tenants.actors import SYSTEM
from backend.tenants.isolation import tenant_scope
from backend.usage.accounts import grant, set_plan
from backend.usage.models import LedgerLine, UsageFact
from backend.usage.reports import period_bill
from tests.backend.billing.billing_month import at, begin_month, incidents, invoices, new_tenant, use
from tests.factories import bearer, make_api_key

pytestmark = pytest.mark.usefixtures("committed_db")


def close(tenant, now):
    begin_month(tenant, now)
    with tenant_scope(tenant.id):
        return close_ended(tenant.id, now=now)


def balance(tenant, account: str) -> int:
    with tenant_scope(tenant.id):
        return sum(line.amount_microusd for line in LedgerLine.objects.filter(account=account))


def test_the_last_microsecond_of_a_month_is_in_it_and_the_first_of_the_next_is_not():
    tenant = new_tenant(now=at("2027-02-01T00:00"))
    end = at("2027-03-01T00:00")
    use(tenant, at("2027-02-28T23:59:59"), 10_000)
    use(tenant, end - timedelta(microseconds=1), 20_000)
    use(tenant, end, 40_000)
    (february,) = close(tenant, at("2027-03-01T00:01"))
    assert (february.period_start, february.period_end) == (at("2027-02-01T00:00"), end)
    assert february.usage_microusd == 30_000
    assert close(tenant, at("2027-03-31T23:59")) == []
    (march,) = close(tenant, at("2027-04-01T00:01"))
    assert march.usage_microusd == 40_000
    assert march.period_start == end


def test_every_fact_is_on_one_invoice_or_in_the_open_period():
    tenant = new_tenant(now=at("2027-02-01T00:00"))
    moments = [at("2027-02-01T00:00") + timedelta(days=day, seconds=day * 7_919 % 86_400) for day in range(80)]
    for i, moment in enumerate(moments):
        use(tenant, moment, 1_000 + i)
        if i % 9 == 0:
            close(tenant, moment)
    made = invoices(tenant)
    with tenant_scope(tenant.id):
        facts = list(UsageFact.objects.all())
    for fact in facts:
        on = [row for row in made if row.period_start <= fact.occurred_at < row.period_end]
        assert len(on) == (fact.occurred_at < made[-1].period_end)
    assert sum(row.usage_microusd for row in made) == sum(
        fact.amount_microusd for fact in facts if fact.occurred_at < made[-1].period_end
    )
    assert all(one.period_end == two.period_start for one, two in pairwise(made))


def test_a_clock_that_changes_for_summer_changes_no_period():
    """DST is a matter of the process's zone; a worker may stand anywhere."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "America/New_York"  # 2027-03-14 has 23 hours there, 2027-11-07 has 25
    time.tzset()
    try:
        tenant = new_tenant(now=at("2027-03-01T00:00"))
        for hour in range(24):
            use(tenant, at("2027-03-14T00:30") + timedelta(hours=hour), 10_000)
        use(tenant, at("2027-04-01T00:30"), 999)  # still March in New York
        (march,) = close(tenant, at("2027-04-01T01:00"))
    finally:
        os.environ.pop("TZ")
        if before is not None:
            os.environ["TZ"] = before
        time.tzset()
    assert march.usage_microusd == 240_000
    assert march.period_end == at("2027-04-01T00:00")


def test_closing_again_and_again_makes_one_invoice_and_moves_the_accrued_once():
    tenant = new_tenant(now=at("2027-02-01T00:00"))
    use(tenant, at("2027-02-10T10:00"), 1_234_567)
    use(tenant, at("2027-02-11T10:00"), 5_001, "serving")
    (invoice,) = close(tenant, at("2027-03-01T00:01"))
    for _ in range(3):
        assert close(tenant, at("2027-03-01T05:00")) == []
    assert [line.amount_cents for line in lines_of(tenant)] == [123, 1]
    assert invoice.total_cents == 124
    assert balance(tenant, ACCRUED) == 0
    assert balance(tenant, RECEIVABLE) == 1_240_000
    assert balance(tenant, ROUNDING) == 1_239_568 - 1_240_000
    assert invoice.rounding_microusd == 1_240_000 - 1_239_568
    assert incidents(tenant) == []


def lines_of(tenant):
    with tenant_scope(tenant.id):
        return list(InvoiceLine.objects.order_by("position"))


def test_an_invoice_agrees_with_the_bill_that_the_customer_saw():
    tenant = new_tenant(now=at("2027-02-01T00:00"))
    begin_month(tenant, at("2027-02-01T00:00"))
    with tenant_scope(tenant.id):
        grant(tenant.id, kind="promo", amount_microusd=400_000, expires_at=None, source_key="g", actor=SYSTEM)
    use(tenant, at("2027-02-10T10:00"), 1_000_001)
    use(tenant, at("2027-02-20T10:00"), 333_333, "gpu_compile")
    (invoice,) = close(tenant, at("2027-03-01T00:01"))
    with tenant_scope(tenant.id):
        bill = period_bill(tenant.id, invoice.period_start, invoice.period_end)
    assert bill.usage_microusd == invoice.usage_microusd
    assert invoice.grants_microusd == 400_000
    assert invoice.total_cents * 10_000 - bill.total_microusd == invoice.rounding_microusd
    assert abs(invoice.rounding_microusd) <= 5_000 * 3


def test_a_month_without_anything_has_no_invoice_and_a_plan_set_by_hand_is_in_arrears():
    tenant = new_tenant(now=at("2027-02-01T00:00"))
    assert close(tenant, at("2027-03-01T00:01")) == []
    with tenant_scope(tenant.id):
        set_plan(tenant.id, "pro", actor=SYSTEM)
    (first, second) = close(tenant, at("2027-04-01T00:01"))
    assert (first.period_start, second.period_end) == (at("2027-02-01T00:00"), at("2027-04-01T00:00"))
    assert {row.total_cents for row in (first, second)} == {4_900}


def test_the_api_lists_an_invoice_with_its_lines_and_the_operator_books_its_payment(capsys):
    tenant = new_tenant(now=at("2027-02-01T00:00"))
    use(tenant, at("2027-02-10T10:00"), 1_234_567)
    begin_month(tenant, at("2027-03-01T00:00"))
    cycle.run_cycle(tenant.id, now=at("2027-03-01T00:02"))
    headers = bearer(make_api_key(tenant))
    (row,) = Client().get("/v1/invoices", headers=headers).json()["data"]
    assert (row["status"], row["total_microusd"], row["billed_by"]) == ("open", 1_230_000, "kolm")
    whole = Client().get(f"/v1/invoices/{row['id']}", headers=headers).json()
    (line,) = whole.pop("lines")
    assert whole == row
    assert (line["meter"], line["amount_microusd"], line["invoiced_microusd"]) == ("teacher", 1_234_567, 1_230_000)
    call_command("invoice_paid", encode_id(Prefix.TENANT, tenant.id), row["id"], "--json")
    assert json.loads(capsys.readouterr().out)["status"] == "paid"
    assert balance(tenant, RECEIVABLE) == 0


def test_plans_are_shown_and_not_sold_without_stripe(settings):
    settings.KOLM_STRIPE_KEY = ""
    tenant = new_tenant(now=at("2027-02-01T00:00"))
    headers = bearer(make_api_key(tenant))
    plans = Client().get("/v1/plans", headers=headers).json()["data"]
    assert [(plan["name"], plan["is_current"], plan["is_sold_here"]) for plan in plans] == [
        ("free", True, False),
        ("pro", False, False),
        ("team", False, False),
        ("enterprise", False, False),
    ]
    for path, body in (("checkout", {"plan": "pro"}), ("portal", {})):
        answer = Client().post(f"/v1/billing/{path}", body, content_type="application/json", headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (501, "payments_not_configured")


def test_the_api_gives_stripes_pages(stripe_double):
    tenant = new_tenant(now=at("2027-02-03T10:20"))
    headers = bearer(make_api_key(tenant))

    def post(path: str, body: dict[str, str]):
        return Client().post(f"/v1/billing/{path}", body, content_type="application/json", headers=headers)

    assert (post("portal", {}).status_code, post("portal", {}).json()["code"]) == (409, "no_subscription")
    answer = post("checkout", {"plan": "pro"})
    assert answer.status_code == 201, answer.content
    assert answer.json()["url"].startswith("https://checkout.stripe.com/")
    assert post("portal", {}).json()["url"].startswith("https://billing.stripe.com/")
    assert post("checkout", {"plan": "enterprise"}).status_code == 400
