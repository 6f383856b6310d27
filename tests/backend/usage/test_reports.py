"""Bills, budgets and reports: every figure is a sum of the same facts, wherever it is shown."""

import csv
import io
from datetime import timedelta
from typing import Any

import pytest
from django.core import mail
from django.core.management import call_command
from django.db import connection
from django.db.models import DateTimeField, Value

from backend.domain.drafts.vocabulary import Saving
from backend.domain.ids import Prefix, encode_id
from backend.domain.lifecycle import StepName
from backend.domain.money.pricing import price_book, price_books
from backend.domain.roles import Role
from backend.tenants.actors import SYSTEM
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import ApiKey, Tenant
from backend.usage import accounts, budgets, invariants
from backend.usage.ledger import Fact, record
from backend.usage.models import Billing, BudgetNotice, PriceBookRow
from backend.usage.publishing import publish
from backend.usage.reports import LineKind, csv_rows, period_bill, usage_by
from backend.usage.savings import note_saving
from backend.webhooks.models import WebhookEvent
from tests.compile_factories import hold, make_compile, public_id
from tests.factories import bearer, make_api_key, make_member, make_tenant
from workers.step import spending

pytestmark = pytest.mark.usefixtures("committed_db")


def fact(key: str, amount: int, **changes: Any) -> Fact:
    fields = {"sku": "runner.millisecond", "quantity": 1, "unit": "millisecond", "price_version": "test"} | changes
    return Fact(amount_microusd=amount, source_key=key, **fields)


def used(tenant: Tenant, *facts: Fact, step: str = "run", api_key_id: Any = None) -> int:
    with tenant_scope(tenant.id):
        return record(tenant.id, facts, compile_id=None, step=step, api_key_id=api_key_id)


def violations(tenant: Tenant) -> list[str]:
    with tenant_scope(tenant.id):
        return list(invariants.violations(tenant.id))


def test_the_bill_of_a_period_has_a_line_a_meter_and_says_what_kolm_carries_and_what_drafts_saved(client):
    tenant = make_tenant()
    secret = make_api_key(tenant)
    row = make_compile(tenant)
    with hold(row).transaction() as fenced:
        tokens = {"unit": "token", "sku": "teacher.m.output_token"}
        spending.capture(
            fenced,
            StepName.LABELING,
            [
                fact(f"{row.id}:t", 700, **tokens),
                fact(f"{row.id}:g", 40, sku="runner.second", unit="second"),
                fact(f"{row.id}:w", 9, billing=Billing.WASTE, **tokens),
            ],
        )
        saving = Saving(avoided=100, verification=30, embedding=5)
        note_saving(
            tenant.id, row.id, step="synthesis", source_key=f"drafts:{row.id}:0", saving=saving, price_version="v"
        )
    used(tenant, fact("run:1", 12))
    bill = client.get("/v1/bills/current", headers=bearer(secret)).json()
    lines = {(line["kind"], line["meter"]): line["amount_microusd"] for line in bill["lines"]}
    assert lines == {
        ("usage", "teacher"): 700,
        ("usage", "gpu_compile"): 40,
        ("usage", "serving"): 12,
        ("waste", "teacher"): 9,
        ("draft_savings", ""): 65,
    }
    assert (bill["total_microusd"], bill["waste_microusd"]) == (752, 9)
    assert bill["draft_savings"] == {"avoided_microusd": 100, "verification_microusd": 35, "net_microusd": 65}
    own = client.get(f"/v1/compiles/{public_id(row)}/bill", headers=bearer(secret)).json()
    assert (own["compile"], own["total_microusd"], own["draft_savings"]["net_microusd"]) == (public_id(row), 740, 65)
    assert violations(tenant) == []


def test_usage_is_grouped_as_asked_and_each_grouping_sums_to_the_same(client):
    tenant = make_tenant()
    secret = make_api_key(tenant, name="one")
    with tenant_scope(tenant.id):
        key_id = ApiKey.objects.get().id
    used(tenant, fact("a", 5), fact("b", 7, billing=Billing.WASTE), api_key_id=key_id)
    used(tenant, fact("c", 11, sku="embedding.token", unit="token"), step="select")
    sums = {}
    for group in ("day", "step", "sku", "api_key", "compile"):
        body = client.get(f"/v1/usage?group_by={group}", headers=bearer(secret)).json()
        sums[group] = (body["charged_microusd"], body["waste_microusd"])
    assert set(sums.values()) == {(16, 7)}
    by_step = client.get("/v1/usage?group_by=step", headers=bearer(secret)).json()["data"]
    assert [(row["key"], row["charged_microusd"]) for row in by_step] == [("select", 11), ("run", 5)]
    by_key = client.get("/v1/usage?group_by=api_key", headers=bearer(secret)).json()["data"]
    assert {row["key"][:4] for row in by_key} == {"", "key_"}
    for query in ("from=yesterday", "from=2026-11-02&to=2026-11-01", "group_by=weather", "form=2026-11-01"):
        assert client.get(f"/v1/usage?{query}", headers=bearer(secret)).status_code in (400, 422), query


def test_the_csv_has_every_fact_in_order_whatever_its_length_and_no_formula(client, monkeypatch):
    tenant = make_tenant()
    secret = make_api_key(tenant)
    monkeypatch.setattr("backend.usage.reports.CSV_CHUNK", 3)
    for i in range(8):
        used(tenant, fact(f"f{i}", i + 1, sku="=cmd|' /C calc'!A0"))
    answer = client.get("/v1/usage.csv", headers=bearer(secret))
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(b"".join(answer.streaming_content).decode())))
    assert [int(row["amount_microusd"]) for row in rows] == list(range(1, 9))
    assert {row["sku"] for row in rows} == {"'=cmd|' /C calc'!A0"}
    with tenant_scope(tenant.id):
        start = accounts.account_of(tenant.id).period_start
    assert len(list(csv_rows(tenant.id, start, start + timedelta(days=40)))) == 9


def test_a_budget_tells_of_50_80_and_100_percent_once_each_by_webhook_and_mail():
    tenant = make_tenant()
    make_member(tenant, Role.BILLING, "billing@example.com")
    make_member(tenant, Role.VIEWER, "viewer@example.com")
    with tenant_scope(tenant.id):
        budgets.create(tenant.id, scope="tenant", api_key_id=None, cap_microusd=100, is_hard=False, actor=SYSTEM)
    mail.outbox.clear()
    for i, amount in enumerate((49, 1, 1, 30, 0, 40, 40)):
        used(tenant, fact(f"f{i}", amount))
    with tenant_scope(tenant.id):
        told = list(BudgetNotice.objects.order_by("created_at", "percent").values_list("percent", "spent_microusd"))
        types = list(WebhookEvent.objects.order_by("created_at", "id").values_list("type", flat=True))
    assert told == [(50, 50), (80, 81), (100, 121)]
    assert types == ["budget.threshold", "budget.threshold", "budget.reached"]
    assert [email.to for email in mail.outbox] == [["billing@example.com"]] * 3
    assert [email.subject[:12] for email in mail.outbox] == ["[kolm] 50 % ", "[kolm] 80 % ", "[kolm] 100 %"]
    assert violations(tenant) == []


def test_a_budget_begins_anew_with_the_month_and_counts_what_was_used_before_it_was_made(monkeypatch):
    tenant = make_tenant()
    used(tenant, fact("before", 30))
    with tenant_scope(tenant.id):
        row = budgets.create(tenant.id, scope="tenant", api_key_id=None, cap_microusd=40, is_hard=True, actor=SYSTEM)
        assert row.spent_microusd == 30
        now = accounts.account_of(tenant.id).now
    assert used(tenant, fact("too much", 20)) == 0
    monkeypatch.setattr(accounts, "clock", lambda: Value(now + timedelta(days=32), output_field=DateTimeField()))
    assert used(tenant, fact("next month", 20)) == 20
    with tenant_scope(tenant.id):
        row.refresh_from_db()
        account = accounts.account_of(tenant.id)
        bill = period_bill(tenant.id, account.period_start, account.period_end)
    assert (row.spent_microusd, account.spent_microusd, bill.usage_microusd) == (20, 20, 20)
    assert violations(tenant) == []


def test_budgets_are_made_changed_and_taken_away_over_the_api(client):
    tenant = make_tenant()
    secret = make_api_key(tenant)
    headers = bearer(secret)
    with tenant_scope(tenant.id):
        key = ApiKey.objects.get()
    body = {"scope": "api_key", "api_key": public_id_of_key(key), "cap_microusd": 500}
    made = client.post("/v1/budgets", body, content_type="application/json", headers=headers)
    assert (made.status_code, made.json()["hard_stop"]) == (201, True)
    again = client.post("/v1/budgets", body, content_type="application/json", headers=headers)
    assert (again.status_code, again.json()["code"]) == (409, "budget_exists")
    address = made["Location"]
    changed = client.patch(address, {"hard_stop": False}, content_type="application/json", headers=headers).json()
    assert (changed["cap_microusd"], changed["hard_stop"]) == (500, False)
    assert [row["id"] for row in client.get("/v1/budgets", headers=headers).json()["data"]] == [changed["id"]]
    wrong = {"scope": "tenant", "api_key": public_id_of_key(key), "cap_microusd": 500}
    assert client.post("/v1/budgets", wrong, content_type="application/json", headers=headers).status_code in (400, 422)
    assert client.delete(address, headers=headers).status_code == 200
    assert client.get(address, headers=headers).status_code == 404


def public_id_of_key(key: ApiKey) -> str:
    return encode_id(Prefix.API_KEY, key.id)


def test_the_free_plans_cap_cannot_be_raised(client):
    tenant = make_tenant(plan="free")
    headers = bearer(make_api_key(tenant))
    answer = client.patch("/v1/account", {"cap_microusd": 26_000_000}, content_type="application/json", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (402, "entitlement_reached")


def test_an_amount_is_the_price_in_force_and_pricing_the_month_again_gives_the_same_bill():
    """Invariant 10: from quantities and published prices alone, to the micro-dollar."""
    tenant = make_tenant()
    price = price_book().prices["runner.second"]
    for i in range(1, 8):
        amount = round(i * price.usd_per_unit * 1_000_000)
        used(
            tenant,
            fact(f"r{i}", amount, sku="runner.second", unit="second", quantity=i, price_version=price_book().version),
            step="distillation",
        )
    with tenant_scope(tenant.id), connection.cursor() as cursor:
        cursor.execute(
            "SELECT sum(round(f.quantity * p.usd_per_unit * 1000000)) FROM usage_usagefact f"
            " JOIN usage_pricebookrow p ON p.version = f.price_version AND p.sku = f.sku"
        )
        (again,) = cursor.fetchone()
        account = accounts.account_of(tenant.id)
        bill = period_bill(tenant.id, account.period_start, account.period_end)
        days = usage_by(tenant.id, "day", account.period_start, account.period_end)
    assert bill.sum_of(LineKind.USAGE) == again == sum(day.charged_microusd for day in days)
    assert violations(tenant) == []
    used(tenant, fact("wrong", 900, sku="runner.second", unit="second", price_version=price_book().version))
    assert any(line.startswith("[10]") for line in violations(tenant))


def test_the_published_prices_are_the_books_and_publishing_again_changes_nothing():
    before = PriceBookRow.objects.count()
    assert before == sum(len(book.prices) for book in price_books())
    with pytest.raises(Exception, match="permission denied"):
        publish()  # the default is the owner's to write; the prices were there
    assert PriceBookRow.objects.count() == before
    assert list(invariants.installation_violations()) == []


def test_the_check_is_a_command_that_fails_with_one_line_a_violation(capsys):
    tenant = make_tenant()
    used(tenant, fact("fine", 3))
    id = encode_id(Prefix.TENANT, tenant.id)
    call_command("ledger_check", tenant=tenant.id)
    assert "in order" in capsys.readouterr().out
    used(tenant, fact("wrong", 900, sku="runner.second", unit="second", price_version=price_book().version))
    with pytest.raises(SystemExit) as ended:
        call_command("ledger_check", tenant=tenant.id)
    assert ended.value.code == 1
    assert f"{id} [10]" in capsys.readouterr().out


def test_credit_and_plans_are_given_by_hand(capsys):
    tenant = make_tenant(plan="free")
    for _ in range(2):
        call_command("grant_credit", encode_id(Prefix.TENANT, tenant.id), "5", key="welcome")
    call_command("set_plan", encode_id(Prefix.TENANT, tenant.id), "pro", "--cap-usd", "300")
    with tenant_scope(tenant.id):
        account = accounts.account_of(tenant.id)
    assert (account.credit_microusd, account.plan, account.cap_microusd) == (5_000_000, "pro", 300_000_000)
    assert violations(tenant) == []
