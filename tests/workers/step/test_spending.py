"""Settling: whatever is booked, the budget holds, and what it cannot carry is ours."""

from dataclasses import replace
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backend.compiles import leases
from backend.compiles.booking import Fenced
from backend.compiles.models import Compile, StepRun
from backend.domain.errors import PaymentRequired
from backend.domain.lifecycle import StepName
from backend.domain.money.pricing import price_book
from backend.tenants.isolation import tenant_scope
from backend.usage.ledger import Fact
from backend.usage.models import Billing, UsageFact
from tests.compile_factories import change, fresh, hold, make_compile, make_teacher_key, public_id
from tests.factories import make_tenant
from tests.workers.pipeline_helpers import check_money
from workers.step.spending import capture, left_of, left_to_bill, reserve

pytestmark = pytest.mark.django_db

STEP = StepName.SYNTHESIS
BUDGET = 1_000


@pytest.fixture
def row() -> Compile:
    compile = make_compile(make_tenant())
    change(compile, budget_microusd=BUDGET)
    return compile


def fact(amount: int, *, billing: Billing = Billing.CHARGE) -> Fact:
    return Fact(
        sku="runner.second",
        quantity=1,
        unit="second",
        amount_microusd=amount,
        price_version="test",
        source_key=f"test:{uuid4()}",
        billing=billing,
    )


def test_what_exceeds_the_budget_becomes_waste(row):
    with hold(row).transaction() as fenced:
        capture(fenced, STEP, [fact(600), fact(600), fact(400)])
    fresh(row)
    assert (row.spent_microusd, row.waste_microusd) == (1_000, 600)
    with tenant_scope(row.tenant_id):
        booked = {(f.amount_microusd, f.billing) for f in UsageFact.objects.filter(compile_id=row.id)}
        step = StepRun.objects.get(compile=row, name=STEP)
    assert booked == {(600, "charge"), (600, "waste"), (400, "charge")}
    assert (step.spent_microusd, step.waste_microusd) == (1_000, 600)


def test_of_a_runners_time_the_seconds_beyond_a_smaller_hold_are_waste():
    """A hold is smaller than the budget where the customer's own key pays the teacher."""
    tenant = make_tenant()
    teacher = {"provider": "openai_compatible", "base_url": "https://llm.example.com/v1", "model": "m-1"}
    teacher |= {
        "api_key": public_id(make_teacher_key(tenant)),
        "price": {"input_usd_per_mtok": 1, "output_usd_per_mtok": 1},
    }
    row = make_compile(tenant, teacher=teacher, budget={"usd": 10})
    run = hold(row)
    with run.transaction() as fenced:
        held = fenced.unbooked.hold_left
        n = 2 * held // 150
        assert 150 < held < n * 150 < row.budget_microusd
        seconds = replace(fact(150 * n), quantity=n, source_key="runner:1", price_version=price_book().version)
        for _ in range(2):
            capture(fenced, StepName.DISTILLATION, [seconds])
        assert left_to_bill(fenced) == held % 150
        assert left_of(fenced.compile) > held
    fresh(row)
    charged = held // 150 * 150
    assert (row.spent_microusd, row.waste_microusd) == (charged, 150 * n - charged)
    with tenant_scope(tenant.id):
        booked = {f.source_key: (f.quantity, f.billing) for f in UsageFact.objects.filter(compile_id=row.id)}
    assert booked == {"runner:1": (held // 150, "charge"), "runner:1:beyond": (n - held // 150, "waste")}
    check_money(row)


def test_what_a_transaction_uses_is_its_own_until_it_ends(row):
    """No other copy of the compile's row knows of it, and it is booked once, at the end."""
    run = hold(row)
    with run.transaction() as fenced:
        before = fenced.unbooked.hold_left
        capture(fenced, STEP, [known := fact(600)])
        capture(fenced, STEP, [known])
        assert [one.fact.source_key for one in fenced.unbooked.facts] == [known.source_key]
        assert fenced.unbooked.hold_left == before - 600
        assert Fenced.around(fenced.compile).unbooked.facts == []
        assert not UsageFact.objects.filter(compile_id=row.id).exists()
    with tenant_scope(row.tenant_id):
        assert UsageFact.objects.filter(compile_id=row.id).count() == 1
    with run.transaction() as fenced:
        assert (fenced.unbooked.facts, fenced.unbooked.hold_left) == ([], before - 600)


def test_money_set_aside_for_others_is_not_spent(row):
    with hold(row).transaction() as fenced:
        reserve(fenced.compile, 700)
        capture(fenced, STEP, [fact(400)])
    fresh(row)
    assert (row.spent_microusd, row.waste_microusd, row.reserved_microusd) == (0, 400, 700)


def test_a_reservation_is_given_back_with_its_settlement(row):
    run = hold(row)
    with run.transaction() as fenced:
        reserve(fenced.compile, 700)
    with run.transaction() as fenced:
        capture(fenced, STEP, [fact(250)], reserved_microusd=700)
        reserve(fenced.compile, 750)
        with pytest.raises(PaymentRequired, match=r"\$0.000001 .* \$0 left"):
            reserve(fenced.compile, 1)


@pytest.mark.nightly
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(st.integers(0, 600), st.integers(0, 900), st.sampled_from(list(Billing))), min_size=1, max_size=8
    )
)
def test_no_history_of_reserving_and_settling_overspends(row, history):
    """(set aside, really cost, who was to carry it): the totals are the ledger's sums after every step."""
    change(row, spent_microusd=0, waste_microusd=0, reserved_microusd=0)
    run = hold(row)
    spent = wasted = 0
    for aside, cost, billing in history:
        with run.transaction() as fenced:
            try:
                reserve(fenced.compile, aside)
            except PaymentRequired:
                assert aside > BUDGET - fenced.compile.spent_microusd
                continue
            capture(fenced, STEP, [fact(cost, billing=billing)], reserved_microusd=aside)
        fresh(row)
        assert sorted([row.spent_microusd - spent, row.waste_microusd - wasted]) == [0, cost]
        spent, wasted = row.spent_microusd, row.waste_microusd
        assert spent <= BUDGET
        assert row.reserved_microusd == 0
    with run.transaction():
        leases.release(run.lease, due_in_s=0)
