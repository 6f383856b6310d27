"""Who pays for a compile that failed: nobody, when the failure was ours."""

import pytest

from backend.compiles.booking import Fenced
from backend.compiles.models import Compile
from backend.domain.errors import InvalidInput, OurError, PaymentRequired
from backend.domain.lifecycle import CompileStatus, StepName
from backend.rest.new_ids import new_uuid7
from backend.tenants.isolation import tenant_scope
from backend.usage import accounts, holds, invariants
from backend.usage.ledger import Fact
from backend.usage.models import BillingDue, LedgerTx
from tests.compile_factories import change, fresh, hold, make_compile
from tests.factories import make_tenant
from workers import pipeline, upkeep
from workers.step import spending
from workers.step.durable import Canceled
from workers.step.runner_wait import RunnerJobFailed
from workers.teachers.protocol import TeacherFailed

pytestmark = pytest.mark.django_db

COST = 600
THEIRS = {
    "provider": "openai_compatible",
    "model": "m",
    "base_url": "https://llm.example.com/v1",
    "price": {"input_usd_per_mtok": 1, "output_usd_per_mtok": 1},
}


def spent_compile(**changes: object) -> Compile:
    row = make_compile(make_tenant(), **changes)
    with hold(row).transaction() as fenced:
        fact = Fact(
            sku="runner.second",
            quantity=1,
            unit="second",
            amount_microusd=COST,
            price_version="test",
            source_key=f"{row.id}:x",
        )
        spending.capture(fenced, StepName.DISTILLATION, [fact])
    change(row, status=CompileStatus.RUNNING)
    return row


def credit_of(row: Compile, error: Exception) -> int:
    with tenant_scope(row.tenant_id):
        fenced = Fenced.around(Compile.objects.select_for_update().get(id=row.id))
        pipeline._cancel(fenced) if isinstance(error, Canceled) else pipeline._fail(fenced, error)
        account = accounts.account_of(row.tenant_id)
        credited = holds.credited_microusd(row.tenant_id, row.id)
        assert account.held_microusd == 0
        assert account.spent_microusd == COST - credited
        assert [line for line in invariants.violations(row.tenant_id) if not line.startswith("[5] compile")] == []
    return credited


@pytest.mark.parametrize(
    "error",
    [
        RunnerJobFailed("gone", code="runner_lost"),
        pipeline.Crashing(),
        OurError("x"),
        RuntimeError("a bug"),
        TeacherFailed("our demonstration teacher is away", code="teacher_unreachable"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_failure_of_ours_costs_nothing(error):
    row = spent_compile()
    assert credit_of(row, error) == COST
    with tenant_scope(row.tenant_id):
        reason = LedgerTx.objects.get(kind="credit_our_fault").reason
    assert reason == fresh(row).failure_code != ""


@pytest.mark.parametrize(
    "error",
    [InvalidInput("x", code="label_without_pairs"), PaymentRequired("x", code="budget_exhausted"), Canceled()],
    ids=lambda error: type(error).__name__,
)
def test_a_failure_of_the_customers_own_and_a_cancellation_cost_what_was_used(error):
    assert credit_of(spent_compile(), error) == 0


def test_a_teacher_of_the_customers_own_that_fails_is_no_failure_of_ours():
    row = spent_compile(teacher=THEIRS)
    assert credit_of(row, TeacherFailed("no answer", code="teacher_unreachable")) == 0


def test_a_compile_that_no_worker_took_for_a_day_is_credited():
    row = spent_compile()
    with tenant_scope(row.tenant_id):
        upkeep._expire(Fenced.around(Compile.objects.select_for_update().get(id=row.id)))
        assert holds.credited_microusd(row.tenant_id, row.id) == COST
    assert fresh(row).status == CompileStatus.EXPIRED


def test_upkeep_looks_at_accounts_that_are_due_and_forgets_those_of_erased_tenants():
    tenant, nobody = make_tenant(), new_uuid7()
    BillingDue.objects.filter(tenant_id=tenant.id).update(due_at="2026-01-01T00:00:00Z")
    BillingDue.objects.create(tenant_id=nobody, due_at="2026-01-01T00:00:00Z")
    assert upkeep.attend_accounts() >= 2
    with tenant_scope(tenant.id):
        assert BillingDue.objects.get(tenant_id=tenant.id).due_at == accounts.account_of(tenant.id).period_end
    assert not BillingDue.objects.filter(tenant_id=nobody).exists()
