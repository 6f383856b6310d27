"""The money pages: the month's bill, the file, the ledger, budgets, plans and invoices, on bookings made by the ledger
itself."""

import csv
import io
import re

import pytest
from django.utils import timezone

from backend.billing.models import Invoice, InvoiceLine
from backend.domain.ids import Prefix, encode_id
from backend.domain.roles import Role
from backend.tenants.actors import SYSTEM
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import ApiKey
from backend.usage import accounts, holds
from backend.usage.ledger import Fact, record
from backend.usage.models import Account, Billing, Budget, LedgerLine
from backend.usage.reports import inert
from tests.backend.console.pages import get, logged_in, plain, post
from tests.compile_factories import make_compile, public_id
from tests.factories import make_api_key, make_tenant

HOSTILE = '=HYPERLINK("http://x")<script>'


@pytest.fixture
def tenant(db):
    return make_tenant()


def fact(amount, *, sku="teacher.kolm-grammar-1.output_token", key="a", **changes):
    fields = {"sku": sku, "quantity": 1_000, "unit": "token", "amount_microusd": amount, "price_version": "2026-11-01"}
    return Fact(**fields, source_key=key, **changes)


def use(tenant, *facts, compile_id=None, step="synthesis", api_key_id=None):
    with tenant_scope(tenant.id):
        return record(tenant.id, facts, compile_id=compile_id, step=step, api_key_id=api_key_id)


def key_of(tenant):
    make_api_key(tenant, name="nightly")
    with tenant_scope(tenant.id):
        return ApiKey.objects.of_tenant(tenant.id).latest("created_at")


def test_an_unused_month_says_so_with_the_line_that_estimates(tenant):
    text = get(logged_in(tenant), "/app/bills")
    assert "Nothing was used" in text
    assert re.search(r"/v1/compiles/estimate .*-d ", text)
    assert ">$0</data>" in text


def test_the_bar_of_the_cap_counts_what_is_held(tenant):
    amounts = {"cap_microusd": 10_000_000, "spent_microusd": 2_000_000, "held_microusd": 5_000_000}
    with tenant_scope(tenant.id):
        Account.objects.filter(tenant_id=tenant.id).update(**amounts)
    text = get(logged_in(tenant), "/app/bills")
    assert '<progress max="100" value="70" aria-label="Spent and held of the cap">' in text
    assert "$3.00 left" in plain(text)


def test_the_bill_is_what_the_ledger_charged_and_waste_stands_beside_it(tenant):
    use(tenant, fact(1_234_567), fact(333, key="b", billing=Billing.WASTE))
    text = get(logged_in(tenant), "/app/bills")
    assert 'title="$1.234567">$1.23</data>' in text
    assert text.count('class="num">$1.234567</td>') >= 2  # what stands in a column adds up
    assert "carried by kolm" in text
    assert "$0.000333" in text


def test_usage_is_grouped_by_step_price_compile_key_and_day(tenant):
    row, key = make_compile(tenant), key_of(tenant)
    use(tenant, fact(5_000), compile_id=row.id, api_key_id=key.id)
    client = logged_in(tenant)
    assert "synthesis" in get(client, "/app/bills?by=step")
    assert "teacher.kolm-grammar-1.output_token" in get(client, "/app/bills?by=sku")
    by_compile = get(client, "/app/bills?by=compile")
    assert public_id(row) in by_compile
    assert ">router</a>" in by_compile
    assert "nightly" in get(client, "/app/bills?by=api_key")
    assert f"{timezone.now():%Y-%m-%d}" in get(client, "/app/bills?by=day")


def test_a_fault_of_ours_is_a_line_with_its_compile(tenant):
    row = make_compile(tenant)
    use(tenant, fact(70_000), compile_id=row.id)
    with tenant_scope(tenant.id):
        holds.credit_our_fault(tenant.id, row.id, "teacher_protocol")
    text = get(logged_in(tenant), "/app/bills")
    assert "failed by a fault of ours" in text
    assert public_id(row) in text
    assert "−$0.07" in text


def test_own_keys_show_what_the_provider_will_bill(tenant):
    use(tenant, fact(0, provider_microusd=4_200))
    text = get(logged_in(tenant), "/app/bills")
    assert "your provider will bill about this" in text
    assert "$0.0042" in text


def test_a_month_that_is_none_is_refused_and_another_is_empty(tenant):
    use(tenant, fact(1_000_000))
    client = logged_in(tenant)
    get(client, "/app/bills?month=eleven", status=400)
    assert "$1.00" not in get(client, "/app/bills?month=2025-01").split("Spend cap")[0]


def test_the_file_has_every_fact_and_no_cell_that_a_spreadsheet_runs(tenant):
    use(tenant, fact(7, sku=HOSTILE, key="-1+1"), fact(8, key="plain"))
    answer = logged_in(tenant).get("/app/bills/usage.csv")
    rows = list(csv.reader(io.StringIO(b"".join(answer.streaming_content).decode())))
    assert answer["Content-Type"].startswith("text/csv")
    assert len(rows) == 3
    assert not [cell for row in rows for cell in row if cell.startswith(("=", "+", "-", "@"))]
    assert {row[7] for row in rows[1:]} == {"7", "8"}


@pytest.mark.parametrize("cell", ["=1", "+1", "-1", "@x", "\t=1", "\r=1", "\n=1", "  =1", "＝1"])
def test_a_cell_that_begins_like_a_formula_is_made_inert(cell):
    assert inert(cell) == f"'{cell}"


def test_the_ledger_shows_every_line_and_its_sums_come_to_nothing(tenant):
    row = make_compile(tenant)
    use(tenant, fact(500), compile_id=row.id)
    text = get(logged_in(tenant), "/app/bills/ledger")
    with tenant_scope(tenant.id):
        lines = list(LedgerLine.objects.of_tenant(tenant.id).select_related("tx"))
    assert lines
    for line in lines:
        assert line.account in text
        assert line.tx.key in text
        assert f"{abs(line.amount_microusd):,}" in text
    assert re.search(r"Total</th><td class=\"num\"><strong>0</strong>", text)
    assert public_id(row) in text
    assert "revenue:teacher" in get(logged_in(tenant), "/app/bills/ledger?kind=charge")


def test_fifty_bookings_stay_within_the_limits(tenant):
    row = make_compile(tenant)
    for i in range(50):
        use(tenant, fact(100 + i, key=f"k{i}"), compile_id=row.id)
    client = logged_in(tenant)
    get(client, "/app/bills")
    text = get(client, "/app/bills/ledger")
    assert "1–20 of" in text


def test_a_budget_is_made_shown_with_its_use_changed_and_deleted(tenant):
    key = key_of(tenant)
    use(tenant, fact(6_000_000), api_key_id=key.id)
    client = logged_in(tenant)
    post(client, "/app/budgets/create", {"whose": encode_id(Prefix.API_KEY, key.id), "usd": "10", "stop": "hard"})
    post(client, "/app/budgets/create", {"whose": "tenant", "usd": "20.50", "stop": "soft"})
    text = get(client, "/app/budgets")
    assert 'value="60"' in text
    assert "50 %</span>" in text
    assert "$20.50" in text
    with tenant_scope(tenant.id):
        row = Budget.objects.of_tenant(tenant.id).get(api_key_id=key.id)
    path = f"/app/budgets/{encode_id(Prefix.BUDGET, row.id)}"
    post(client, f"{path}/change", {"usd": "12", "stop": "soft"})
    assert 'value="50"' in get(client, "/app/budgets")
    post(client, f"{path}/delete")
    assert "nightly" not in get(client, "/app/budgets").split("New budget")[0]


@pytest.mark.parametrize("usd", ["", "ten", "-1", "0", "NaN", "1e99", "0.0000001"])
def test_an_amount_that_is_none_makes_no_budget(tenant, usd):
    post(logged_in(tenant), "/app/budgets/create", {"whose": "tenant", "usd": usd}, status=400)
    with tenant_scope(tenant.id):
        assert not Budget.objects.of_tenant(tenant.id).exists()


def test_the_spend_cap_goes_as_far_as_the_plan_allows(tenant):
    client = logged_in(tenant)
    with tenant_scope(tenant.id):
        accounts.set_plan(tenant.id, "free", actor=SYSTEM)
    post(client, "/app/budgets/cap", {"usd": "5"})
    with tenant_scope(tenant.id):
        assert accounts.account_of(tenant.id).cap_microusd == 5_000_000
    post(client, "/app/budgets/cap", {"usd": "9999"}, status=402)
    with tenant_scope(tenant.id):
        accounts.set_plan(tenant.id, "pro", actor=SYSTEM)
    post(client, "/app/budgets/cap", {"usd": "none"})
    with tenant_scope(tenant.id):
        assert accounts.account_of(tenant.id).cap_microusd is None


def test_without_stripe_the_plans_are_shown_and_what_is_missing_is_said(tenant, settings):
    settings.KOLM_STRIPE_KEY = ""
    client = logged_in(tenant)
    text = get(client, "/app/plan")
    assert "KOLM_STRIPE_KEY" in text
    assert "$49.00" in text
    assert "Audit log export" in text
    assert "Retention" not in text
    assert "Single sign-on" not in text
    assert "Choose Pro" not in text
    assert post(client, "/app/plan/checkout", {"plan": "pro"})["Location"] == "/app/plan"


def test_with_stripe_there_are_buttons_for_those_who_may_pay(tenant, settings):
    settings.KOLM_STRIPE_KEY = "sk_test_x"
    assert "Choose Pro" in get(logged_in(tenant), "/app/plan")
    assert "Choose Pro" not in get(logged_in(tenant, Role.DEVELOPER), "/app/plan")


def test_coming_back_from_stripe_says_what_happens_next(tenant):
    client = logged_in(tenant)
    answer = client.get("/app/bills/?checkout=done")
    assert answer["Location"] == "/app/plan?checkout=done"
    assert "Stripe received your order" in get(client, answer["Location"])


def make_invoice(tenant):
    with tenant_scope(tenant.id):
        start, end = accounts.month_of(timezone.now())
        row = Invoice.objects.create(
            tenant_id=tenant.id,
            number="KOLM-2026-11-0001",
            plan="pro",
            period_start=start,
            period_end=end,
            status="open",
            usage_microusd=1_234_567,
            subtotal_cents=5_023,
            total_cents=5_023,
        )
        for i, (words, microusd, cents) in enumerate([("Pro plan", 49_000_000, 4_900), ("Teacher", 1_234_567, 123)]):
            InvoiceLine.objects.create(
                tenant_id=tenant.id,
                invoice=row,
                position=i,
                kind="usage",
                description=words,
                amount_microusd=microusd,
                amount_cents=cents,
                rounding_microusd=cents * 10_000 - microusd,
            )
        return encode_id(Prefix.INVOICE, row.id)


def test_an_invoice_has_its_lines_rounded_once_and_a_total(tenant):
    path = f"/app/bills/invoices/{make_invoice(tenant)}"
    text = get(logged_in(tenant, Role.BILLING), path)
    assert "$50.23" in text
    assert "$1.234567" in text
    assert "−$0.004567" in text
    assert "KOLM-2026-11-0001" in get(logged_in(tenant), "/app/bills")


def test_viewers_see_no_money_and_developers_change_none(tenant):
    invoice = make_invoice(tenant)
    viewer, developer = logged_in(tenant, Role.VIEWER), logged_in(tenant, Role.DEVELOPER)
    paths = ("bills", "bills/ledger", "budgets", "plan", "bills/usage.csv", f"bills/invoices/{invoice}")
    for path in paths:
        assert viewer.get(f"/app/{path}").status_code == 403
        assert developer.get(f"/app/{path}").status_code == 200
    post(developer, "/app/budgets/create", {"whose": "tenant", "usd": "1"}, status=403)
    post(developer, "/app/budgets/cap", {"usd": "1"}, status=403)
    post(developer, "/app/plan/checkout", {"plan": "pro"}, status=403)


def test_another_tenants_money_is_not_there(tenant):
    other = make_tenant("Other")
    invoice, key = make_invoice(other), key_of(other)
    use(other, fact(777_777))
    client = logged_in(tenant)
    get(client, f"/app/bills/invoices/{invoice}", status=404)
    assert "$0.777777" not in get(client, "/app/bills")
    post(client, "/app/budgets/create", {"whose": encode_id(Prefix.API_KEY, key.id), "usd": "1"}, status=404)
    post(client, "/app/budgets/bud_nonsense/delete", status=404)
