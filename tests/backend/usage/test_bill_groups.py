"""The bill by compile and by deployment sums to the bill, to the micro-dollar, whatever was taken back."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backend.domain.lifecycle import StepName
from backend.rest.new_ids import new_uuid7
from backend.tenants.actors import SYSTEM
from backend.tenants.isolation import tenant_scope
from backend.usage import accounts, holds
from backend.usage.bill_groups import GroupKind, groups_of, invoiced_txs, period_txs, share_of
from backend.usage.ledger import Fact, record, reverse
from backend.usage.models import Billing, LedgerTx
from backend.usage.reports import LineKind, period_bill
from backend.usage.subjects import Subject
from tests.compile_factories import hold, make_compile, public_id
from tests.factories import bearer, make_api_key, make_tenant
from workers.step import spending

pytestmark = pytest.mark.usefixtures("committed_db")


def fact(key: str, amount: int, **changes) -> Fact:
    fields = {"sku": "runner.second", "quantity": 2, "unit": "second", "price_version": "test"} | changes
    return Fact(amount_microusd=amount, source_key=key, **fields)


def bill_and_groups(tenant):
    with tenant_scope(tenant.id):
        account = accounts.account_of(tenant.id)
        span = (account.period_start, account.period_end)
        bill = period_bill(tenant.id, *span)
        groups = groups_of(tenant.id, period_txs(tenant.id, *span))
        assert groups == groups_of(tenant.id, invoiced_txs(tenant.id, *span))
        return bill, groups


def sums_agree(bill, groups) -> bool:
    granted = bill.sum_of(LineKind.CREDIT_APPLIED)
    assert sum(group.subtotal_microusd for group in groups) + granted == bill.total_microusd
    assert sum(group.used_microusd for group in groups) == bill.usage_microusd
    return True


def test_compiles_and_deployments_are_groups_with_their_steps_and_what_was_taken_back():
    tenant = make_tenant()
    good, bad = make_compile(tenant), make_compile(tenant, name="broken")
    token = {"sku": "teacher.m.output_token", "unit": "token"}
    for row, amount in ((good, 700), (bad, 300)):
        with hold(row).transaction() as fenced:
            facts = [fact(f"{row.id}:t", amount, **token), fact(f"{row.id}:w", 9, billing=Billing.WASTE)]
            spending.capture(fenced, StepName.LABELING, [*facts, fact(f"{row.id}:s", 40)])
    deployment = new_uuid7()
    with tenant_scope(tenant.id):
        holds.credit_our_fault(tenant.id, bad.id, "internal_error")
        accounts.grant(tenant.id, kind="promo", amount_microusd=100, expires_at=None, source_key="g", actor=SYSTEM)
        subject = Subject(name="support", deployment_id=deployment)
        for key, amount in (("one", 150), ("two", 60)):
            record(tenant.id, [fact(key, amount)], compile_id=None, step="serve", subject=subject)
        reverse(LedgerTx.objects.order_by("booked_at", "id").last(), actor=SYSTEM, reason="typed_twice")
        record(tenant.id, [fact("loose", 21)], compile_id=None, step="run")
    bill, groups = bill_and_groups(tenant)
    assert sums_agree(bill, groups)
    found = {(group.kind, group.name): group for group in groups}
    assert set(found) == {
        (GroupKind.COMPILE, "router"),
        (GroupKind.COMPILE, "broken"),
        (GroupKind.DEPLOYMENT, "support"),
        (GroupKind.OTHER, ""),
    }
    assert found[GroupKind.COMPILE, "router"].subtotal_microusd == 740
    assert found[GroupKind.COMPILE, "broken"].subtotal_microusd == 0
    assert found[GroupKind.DEPLOYMENT, "support"].subtotal_microusd == 150
    assert [part.reason for part in found[GroupKind.DEPLOYMENT, "support"].parts if part.amount_microusd < 0] == [
        "typed_twice"
    ]
    assert sum(share_of(group, groups) for group in groups) == pytest.approx(1)


amounts = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5_000)), max_size=8)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(used=amounts, n_reversed=st.integers(0, 3), granted=st.integers(0, 6_000))
def test_groups_sum_to_the_bill_whatever_was_used_granted_and_reversed(used, n_reversed, granted):
    tenant = make_tenant()
    places = [Subject(), *(Subject(name=f"d{i}", deployment_id=new_uuid7()) for i in range(3))]
    with tenant_scope(tenant.id):
        if granted:
            accounts.grant(
                tenant.id, kind="promo", amount_microusd=granted, expires_at=None, source_key="g", actor=SYSTEM
            )
        for number, (place, amount) in enumerate(used):
            record(tenant.id, [fact(f"f{number}", amount)], compile_id=None, step="serve", subject=places[place])
        for tx in list(LedgerTx.objects.filter(kind="charge")[:n_reversed]):
            reverse(tx, actor=SYSTEM, reason="test")
    bill, groups = bill_and_groups(tenant)
    assert sums_agree(bill, groups)


def test_the_api_has_the_groups_and_the_forecast(client):
    tenant = make_tenant()
    secret = make_api_key(tenant)
    row = make_compile(tenant)
    with hold(row).transaction() as fenced:
        spending.capture(fenced, StepName.LABELING, [fact("a", 700)])
    body = client.get("/v1/bills/groups", headers=bearer(secret)).json()
    (group,) = body["groups"]
    assert (group["kind"], group["id"], group["name"]) == ("compile", public_id(row), "router")
    assert group["subtotal_microusd"] == body["total_microusd"] == 700
    assert group["parts"][0]["title"] == "Runner, seconds"
    none = client.get("/v1/bills/groups?month=2020-01", headers=bearer(secret)).json()
    assert (none["groups"], none["total_microusd"]) == ([], 0)
    assert client.get("/v1/bills/groups?month=soon", headers=bearer(secret)).status_code == 400
    forecast = client.get("/v1/bills/forecast", headers=bearer(secret)).json()
    assert (forecast["known"], forecast["so_far_microusd"]) == (False, 700)
    assert forecast["why"].startswith("too early to say")
