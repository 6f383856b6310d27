"""The bill that a finance person reads: names before ids, sums that add up, and no accounting words in the way."""

import re

import pytest

from backend.billing.models import Invoice
from backend.domain.ids import Prefix, encode_id
from backend.domain.roles import Role
from backend.rest.new_ids import new_uuid7
from backend.tenants.actors import SYSTEM
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import ApiKey
from backend.usage import accounts, budgets
from backend.usage.ledger import Fact, record
from backend.usage.models import BudgetScope, UsageFact
from backend.usage.subjects import Subject
from tests.backend.console.pages import get, logged_in, post
from tests.compile_factories import make_compile, public_id
from tests.factories import bearer, make_api_key, make_member, make_tenant

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def tenant(db):
    return make_tenant()


def fact(amount, key, **changes):
    fields = {"sku": "serving.completion_token", "quantity": 1_000, "unit": "token", "price_version": "2026-11-26"}
    return Fact(**fields | changes, amount_microusd=amount, source_key=key)


def use(tenant, amount, key, *, compile_id=None, step="serve", **subject):
    with tenant_scope(tenant.id):
        of = Subject(**subject) if subject else None
        record(tenant.id, [fact(amount, key)], compile_id=compile_id, step=step, subject=of)


def microusd(text):
    sign = -1 if text.startswith("−") else 1
    return sign * round(float(text.lstrip("−").lstrip("$").replace(",", "")) * 1_000_000)


def amounts_of(text):
    """The amounts of the bill's own rows, the total last."""
    table = text.split('<h2 id="bill">')[1].split("The same by kind of use")[0]
    rows = re.sub(r"<details.*?</details>", "", table, flags=re.DOTALL)
    return [microusd(one) for one in re.findall(r'class="num">(?:<strong>)?(−?\$[\d,.]+)', rows)]


def test_the_rows_add_up_to_the_total_that_is_shown(tenant):
    row = make_compile(tenant)
    use(tenant, 1_234_567, "a", compile_id=row.id, step="labeling")
    use(tenant, 333_333, "b", name="support", deployment_id=new_uuid7())
    use(tenant, 7, "c", name="")
    text = get(logged_in(tenant), "/app/bills")
    *parts, total = amounts_of(text)
    assert parts == [1_234_567, 333_333, 7]
    assert total == sum(parts)
    assert f'<a href="/app/compiles/{public_id(row)}">router</a>' in text
    assert "Outside of compiles and deployments" in text
    assert "78.7 %" in text


def test_credit_that_paid_is_a_row_between_the_sum_and_the_total(tenant):
    with tenant_scope(tenant.id):
        accounts.grant(tenant.id, kind="promo", amount_microusd=500, expires_at=None, source_key="g", actor=SYSTEM)
    use(tenant, 900, "a", name="support", deployment_id=new_uuid7())
    group, total_used, credit, total = amounts_of(get(logged_in(tenant), "/app/bills"))
    assert (group, total_used, credit, total) == (900, 900, -500, 400)


def test_many_groups_are_shown_as_far_as_a_page_goes_and_still_add_up(tenant):
    for i in range(60):
        use(tenant, 100 + i, f"k{i}", name=f"d{i}", deployment_id=new_uuid7())
    text = get(logged_in(tenant), "/app/bills")
    *parts, total = amounts_of(text)
    assert len(parts) == 41
    assert total == sum(parts) == sum(100 + i for i in range(60))
    assert "20 more, each smaller" in text


def test_names_are_escaped_wherever_they_stand(tenant):
    use(tenant, 900, "a", name=HOSTILE, deployment_id=new_uuid7())
    client = logged_in(tenant)
    for path in ("/app/bills", "/app/bills?by=deployment", "/app/bills/ledger"):
        text = get(client, path)
        assert HOSTILE not in text
    assert "&lt;script&gt;" in get(client, "/app/bills")


def test_the_ledger_keeps_accounts_and_keys_behind_details(tenant):
    use(tenant, 900, "a", name="support", deployment_id=new_uuid7())
    text = get(logged_in(tenant), "/app/bills/ledger")
    outside = re.sub(r"<details.*?</details>", "", text, flags=re.DOTALL)
    assert "revenue:serving" in text
    assert "revenue:serving" not in outside
    assert "charge:direct" in text
    assert "charge:direct" not in outside
    assert "support" in outside
    assert "$0.0009" in outside


def test_usage_is_grouped_and_filtered_by_a_tag(tenant):
    use(tenant, 900, "a", tags={"team": "search"})
    use(tenant, 100, "b", tags={"team": "ads"})
    client = logged_in(tenant)
    text = get(client, "/app/bills?by=tag:team")
    assert "Tag: team" in text
    assert text.index(">search</a>") < text.index(">ads</a>")
    filtered = get(client, "/app/bills?by=step&tag=team:search").split('<h2 id="drill">')[1]
    assert "$0.0009" in filtered
    assert "$0.0001" not in filtered
    for bad in ("?by=tag:x'y", "?tag=team:%3Cb%3E", "?by=tag:", "?tag=:"):
        get(client, f"/app/bills{bad}")
    file = b"".join(client.get("/app/bills/usage.csv?tag=team:ads").streaming_content).decode()
    assert file.count("\r\n") == 2


def test_the_forecast_says_that_it_is_too_early(tenant):
    use(tenant, 900, "a")
    client = logged_in(tenant)
    assert "too early to say" in get(client, "/app/bills")
    assert "too early to say" in get(client, "/app/")
    assert "Forecast" not in get(client, "/app/bills?month=2025-01")


def test_budgets_say_who_gets_mail_and_when_the_last_was_sent(tenant):
    owner = make_member(tenant, Role.OWNER)
    client = logged_in(tenant, Role.VIEWER)
    client = logged_in(tenant, Role.BILLING)
    text = get(client, "/app/budgets")
    assert owner.email in text
    assert "50 %, 80 %, 100 %" in text
    assert "<dt>Last sent</dt><dd>never" in text
    with tenant_scope(tenant.id):
        budgets.create(
            tenant.id, scope=BudgetScope.TENANT, api_key_id=None, cap_microusd=1_000, is_hard=False, actor=SYSTEM
        )
    use(tenant, 900, "a")
    assert "at 80 % of" in get(client, "/app/budgets")


def test_tags_of_a_key_are_set_in_the_form_and_changed_later(tenant):
    client = logged_in(tenant)
    form = {"name": "ci", "preset": "ci", "expires": "30", "kind": "live", "tags": "team=search, env=ci"}
    assert client.post("/app/api_keys/create", form).status_code in (200, 302)
    with tenant_scope(tenant.id):
        row = ApiKey.objects.filter(name="ci").first()
    if row is None:  # a session of before asks for the password again
        make_api_key(tenant, name="ci")
        with tenant_scope(tenant.id):
            row = ApiKey.objects.get(name="ci")
    path = f"/app/api_keys/{encode_id(Prefix.API_KEY, row.id)}/tags"
    post(client, path, {"tags": "team=ads"})
    with tenant_scope(tenant.id):
        row.refresh_from_db()
    assert row.tags == {"team": "ads"}
    post(client, path, {"tags": "team"}, status=400)
    assert "team=ads" in get(client, "/app/api_keys")


def test_billing_details_are_changed_by_who_may_and_stand_on_the_page(tenant):
    form = {"name": "Ärger & Söhne", "address": "Weg 1\n8000 Zürich", "vat_id": "CHE-1"}
    post(logged_in(tenant, Role.BILLING), "/app/bills/details/change", form)
    text = get(logged_in(tenant), "/app/bills/details")
    assert "Ärger &amp; Söhne" in text
    assert "8000 Zürich" in text
    post(logged_in(tenant, Role.VIEWER), "/app/bills/details/change", form, status=403)


def test_an_invoice_is_downloaded_from_its_page_by_its_team_alone(tenant):
    use(tenant, 900, "a")
    with tenant_scope(tenant.id):
        start = UsageFact.objects.get().occurred_at.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        row = Invoice.objects.create(
            tenant_id=tenant.id,
            number="KOLM-X-0001",
            plan="pro",
            period_start=start.replace(year=start.year - 1),
            period_end=start,
            status="open",
        )
    path = f"/app/bills/invoices/{encode_id(Prefix.INVOICE, row.id)}"
    client = logged_in(tenant)
    assert f'href="{path}/pdf"' in get(client, path)
    answer = client.get(f"{path}/pdf")
    assert answer["Content-Type"] == "application/pdf"
    assert answer.content == client.get(f"{path}/pdf").content
    assert logged_in(make_tenant()).get(f"{path}/pdf").status_code == 404


def test_the_usage_in_detail_adds_up_as_it_is_shown(tenant):
    for i, amount in enumerate((1_234_567, 333_333, 18_918)):
        use(tenant, amount, f"k{i}", step=f"step{i}")
    drill = get(logged_in(tenant), "/app/bills?by=step").split('<h2 id="drill">')[1]
    rows = re.findall(r'<td class="num">1</td><td class="num">(\$[\d.,]+)</td>', drill)
    assert [microusd(row) for row in rows] == [1_234_567, 333_333, 18_918]


def test_an_amount_on_the_bill_page_is_the_apis_and_the_files(tenant, client):
    row = make_compile(tenant)
    use(tenant, 18_918, "a", compile_id=row.id, step="labeling")
    person, secret = logged_in(tenant), make_api_key(tenant)
    assert "$0.018918" in get(person, "/app/bills")
    groups = client.get("/v1/bills/groups", headers=bearer(secret)).json()
    assert [one["subtotal_microusd"] for one in groups["groups"]] == [18_918]
    file = b"".join(person.get("/app/bills/usage.csv").streaming_content).decode()
    assert ",18918," in file
