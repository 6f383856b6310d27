"""Usage facts: written once, changed never."""

import pytest
from django.db import DatabaseError, connection, transaction

from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from backend.usage.ledger import Fact, UsageTotal, record, totals_of_compile
from backend.usage.models import Billing, UsageFact
from tests.compile_factories import make_compile, public_id
from tests.factories import bearer, make_api_key, make_tenant

pytestmark = pytest.mark.django_db


@pytest.fixture
def tenant() -> Tenant:
    return make_tenant()


def fact(key: str, *, amount: int = 5, sku: str = "runner.second", billing: Billing = Billing.CHARGE) -> Fact:
    return Fact(
        sku=sku,
        quantity=2,
        unit="second",
        amount_microusd=amount,
        price_version="2026-11-01",
        source_key=key,
        billing=billing,
    )


def test_recording_the_same_event_twice_is_recording_it_once(tenant):
    with tenant_scope(tenant.id):
        for amount in (5, 7):
            record(tenant.id, [fact("job:1", amount=amount), fact("job:2")], compile_id=None, step="run")
        assert sorted(UsageFact.objects.values_list("source_key", "amount_microusd")) == [("job:1", 5), ("job:2", 5)]


def test_two_tenants_may_have_events_of_the_same_name(tenant):
    for owner in (tenant, make_tenant()):
        with tenant_scope(owner.id):
            record(owner.id, [fact("job:1")], compile_id=None, step="run")
            assert UsageFact.objects.count() == 1


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE usage_usagefact SET amount_microusd = 0",
        "DELETE FROM usage_usagefact",
        "TRUNCATE usage_usagefact",
        "INSERT INTO usage_usagefact SELECT * FROM usage_usagefact ON CONFLICT (tenant_id, source_key)"
        " DO UPDATE SET amount_microusd = 0",
    ],
)
def test_the_database_itself_refuses_to_change_a_fact(tenant, sql):
    with tenant_scope(tenant.id):
        record(tenant.id, [fact("job:1")], compile_id=None, step="run")
        with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(sql)
        assert UsageFact.objects.get().amount_microusd == 5


def test_receipts_cannot_be_changed_either(tenant):
    from tests.compile_factories import make_receipts

    make_receipts(make_compile(tenant))
    for sql in ("UPDATE artifacts_receipt SET seq = 9", "DELETE FROM artifacts_receipt"):
        with (
            tenant_scope(tenant.id),
            pytest.raises(DatabaseError),
            transaction.atomic(),
            connection.cursor() as cursor,
        ):
            cursor.execute(sql)


def test_the_totals_of_a_compile_are_sums_by_step_sku_and_who_carries_them(tenant, client):
    row, other = make_compile(tenant), make_compile(tenant)
    with tenant_scope(tenant.id):
        facts = [fact("a"), fact("b"), fact("c", billing=Billing.WASTE, amount=3), fact("d", sku="embedding.token")]
        record(tenant.id, facts, compile_id=row.id, step="distillation")
        record(tenant.id, [fact("e", amount=1000)], compile_id=other.id, step="distillation")
        totals = totals_of_compile(tenant.id, row.id)

    def total(sku: str, billing: Billing, quantity: int, amount: int) -> UsageTotal:
        return UsageTotal(
            step="distillation", sku=sku, unit="second", billing=billing, quantity=quantity, amount_microusd=amount
        )

    assert totals == [
        total("embedding.token", Billing.CHARGE, 2, 5),
        total("runner.second", Billing.CHARGE, 4, 10),
        total("runner.second", Billing.WASTE, 2, 3),
    ]
    shown = client.get(f"/v1/compiles/{public_id(row)}/usage", headers=bearer(make_api_key(tenant))).json()["data"]
    assert [(t["sku"], t["billing"], t["amount_microusd"]) for t in shown] == [
        ("embedding.token", "charge", 5),
        ("runner.second", "charge", 10),
        ("runner.second", "waste", 3),
    ]
