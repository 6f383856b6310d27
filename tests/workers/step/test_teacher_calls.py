"""Teacher calls: written down before they are made, saved once, repeated at most a batch, never above the budget."""

import threading
from dataclasses import replace
from typing import Any

import pytest
from django.db import IntegrityError, OperationalError, connection, transaction
from django.db.models import Sum

from backend.compiles import leases
from backend.compiles.leases import LeaseLost
from backend.compiles.lifecycle import transitions
from backend.compiles.models import Compile, StepRun, TeacherCall
from backend.domain.errors import PaymentRequired
from backend.domain.lifecycle import CompileStatus, StepName
from backend.domain.money.pricing import price_book, teacher_price
from backend.domain.spec.parsing import DeclaredPrice
from backend.tenants.isolation import tenant_scope
from backend.usage.models import Billing, UsageFact
from tests.compile_factories import change, fresh, hold, lapse, make_compile
from tests.factories import make_tenant
from tests.workers.calls import MODEL, USAGE, EchoTeacher, answered, plan, price
from workers import pipeline
from workers.step.durable import Canceled, CompileRun
from workers.step.teacher_calls import MadeCall, PlannedCall, call_batch, worst_cost
from workers.teachers.protocol import Completion, CompletionRequest, TeacherCanceled, TeacherFailed, Usage

pytestmark = pytest.mark.usefixtures("committed_db")

STEP = StepName.SYNTHESIS
COST = price().cost_microusd(input_tokens=USAGE.input_tokens, output_tokens=USAGE.output_tokens)
BATCH = [plan("a"), plan("b"), plan("c")]


class Crash(BaseException):
    """The process died here."""


@pytest.fixture
def row() -> Compile:
    return make_compile(make_tenant())


class Saved:
    """What a stage makes of a batch: the order and the texts of the answers."""

    def __init__(self, *, dies: bool = False) -> None:
        self.batches: list[list[tuple[str, str]]] = []
        self._dies = dies

    def __call__(self, compile: Compile, calls: list[MadeCall]) -> None:
        self.batches.append([(call.key, call.choices[0]["text"]) for call in calls])
        if self._dies:
            raise Crash


def batch(run: CompileRun, teacher: Any, save: Saved, plans: list[PlannedCall] = BATCH) -> None:
    call_batch(run, STEP, teacher, price(), plans, save)


def taken_over(run: CompileRun, row: Compile) -> CompileRun:
    """The next holder, after the first one's lease ran out."""
    lapse(run.lease)
    return hold(row, owner="two")


def journal(row: Compile) -> list[tuple[str, int, str]]:
    with tenant_scope(row.tenant_id):
        calls = TeacherCall.objects.filter(compile=row).order_by("key", "attempt")
        return [(call.key, call.attempt, call.state) for call in calls]


def booked(row: Compile, billing: Billing) -> int:
    with tenant_scope(row.tenant_id):
        facts = UsageFact.objects.filter(compile_id=row.id, billing=billing)
        return facts.aggregate(n=Sum("amount_microusd"))["n"] or 0


def is_balanced(row: Compile) -> bool:
    """The compile's totals, its step's and the ledger's say the same, and nothing is set aside any more."""
    fresh(row)
    with tenant_scope(row.tenant_id):
        step = StepRun.objects.get(compile=row, name=STEP)
    return (
        row.reserved_microusd == 0
        and row.spent_microusd == step.spent_microusd == booked(row, Billing.CHARGE)
        and row.waste_microusd == step.waste_microusd == booked(row, Billing.WASTE)
    )


def test_answers_are_saved_in_the_order_of_the_plan_and_paid_by_their_usage(row):
    teacher, save = EchoTeacher(), Saved()
    batch(hold(row), teacher, save)
    assert save.batches == [[(key, f"question {key}") for key in "abc"]]
    assert journal(row) == [(key, 1, "applied") for key in "abc"]
    assert is_balanced(row)
    assert row.spent_microusd == 3 * COST


def test_a_call_is_written_down_and_its_money_set_aside_before_it_is_made(row):
    seen: list[tuple[list[tuple[str, int, str]], int]] = []

    def look(request: CompletionRequest, cancelled: Any) -> Completion:
        try:
            seen.append((journal(row), fresh(Compile(tenant_id=row.tenant_id, id=row.id)).reserved_microusd))
        finally:
            connection.close()
        return answered(request)

    batch(hold(row), EchoTeacher(look), Saved())
    assert len(seen) == 3
    for calls, reserved in seen:
        assert calls == [(key, 1, "started") for key in "abc"]
        assert reserved == sum(worst_cost(price(), each.request) for each in BATCH)
    assert is_balanced(row)


def test_the_same_batch_asked_for_again_costs_nothing_and_saves_nothing(row):
    teacher, save, run = EchoTeacher(), Saved(), hold(row)
    for _ in range(3):
        batch(run, teacher, save)
    batch(taken_over(run, row), teacher, save)
    assert (len(save.batches), set(teacher.asked.values())) == (1, {1})
    assert row.version < fresh(row).version
    assert row.spent_microusd == 3 * COST


def test_a_crash_while_the_teacher_answers_books_the_batch_to_waste_and_repeats_it_once(row):
    def die(request: CompletionRequest, cancelled: Any) -> Completion:
        raise Crash

    first, teacher, save = hold(row), EchoTeacher(), Saved()
    batch(first, teacher, save, [plan("before")])
    with pytest.raises(Crash):
        batch(first, EchoTeacher(die), save)
    assert journal(row) == [("a", 1, "started"), ("b", 1, "started"), ("before", 1, "applied"), ("c", 1, "started")]
    second = taken_over(first, row)
    for plans in ([plan("before")], BATCH):
        batch(second, teacher, save, plans)
    assert teacher.asked == {"question before": 1} | {f"question {key}": 1 for key in "abc"}
    lost = [(key, 1, "wasted") for key in "abc"]
    assert journal(row) == sorted([*lost, *[(key, 2, "applied") for key in "abc"], ("before", 1, "applied")])
    assert is_balanced(row)
    assert row.spent_microusd == 4 * COST
    assert row.waste_microusd == sum(worst_cost(price(), each.request) for each in BATCH)


def test_a_crash_while_the_answers_are_saved_keeps_none_of_them_half(row):
    first, teacher = hold(row), EchoTeacher()
    with pytest.raises(Crash):
        batch(first, teacher, Saved(dies=True))
    assert booked(row, Billing.CHARGE) == 0
    save = Saved()
    batch(taken_over(first, row), teacher, save)
    assert len(save.batches) == 1
    assert is_balanced(row)
    assert row.spent_microusd == 3 * COST


def test_a_holder_that_slept_past_its_lease_saves_nothing_and_is_paid_for_once(row):
    """The zombie: its calls come back after another has taken over and made them again."""
    run, save, teacher = hold(row), Saved(), EchoTeacher()
    taking_over = threading.Lock()
    other: list[CompileRun] = []

    def sleep(request: CompletionRequest, cancelled: Any) -> Completion:
        with taking_over:
            if not other:
                try:
                    other.append(taken_over(run, row))
                    batch(other[0], teacher, save)
                finally:
                    connection.close()
        return answered(request)

    with pytest.raises(LeaseLost):
        batch(run, EchoTeacher(sleep), save)
    assert len(save.batches) == 1
    assert is_balanced(row)
    assert row.spent_microusd == 3 * COST


def test_when_one_call_fails_the_others_are_kept_and_asked_once(row):
    fails = True

    def moody(request: CompletionRequest, cancelled: Any) -> Completion:
        if fails and "question b" in request.messages[-1].content:
            raise TeacherFailed("overloaded", code="teacher_rate_limited")
        return answered(request)

    run, save, teacher = hold(row), Saved(), EchoTeacher(moody)
    with pytest.raises(TeacherFailed, match="overloaded"):
        batch(run, teacher, save)
    assert journal(row) == [("a", 1, "succeeded"), ("b", 1, "failed"), ("c", 1, "succeeded")]
    assert save.batches == []
    assert is_balanced(row)
    assert row.spent_microusd == 2 * COST
    fails = False
    batch(run, teacher, save)
    assert save.batches == [[(key, f"question {key}") for key in "abc"]]
    assert teacher.asked == {"question a": 1, "question b": 2, "question c": 1}
    assert is_balanced(row)
    assert row.spent_microusd == 3 * COST


@pytest.mark.parametrize("error", [TeacherFailed("half", code="teacher_protocol", usage=USAGE), TeacherCanceled(USAGE)])
def test_what_a_call_without_an_answer_was_billed_is_ours(row, error):
    def billed(request: CompletionRequest, cancelled: Any) -> Completion:
        raise error

    run = hold(row)
    run.stop.is_canceled = isinstance(error, TeacherCanceled)
    with pytest.raises((TeacherFailed, Canceled)):
        batch(run, EchoTeacher(billed), Saved(), [plan("a")])
    assert is_balanced(row)
    assert (row.spent_microusd, row.waste_microusd) == (0, COST)


def test_what_the_tries_before_an_answer_were_billed_is_ours(row):
    def second_try(request: CompletionRequest, cancelled: Any) -> Completion:
        return replace(answered(request), wasted=USAGE, n_attempts=2)

    batch(hold(row), EchoTeacher(second_try), Saved(), [plan("a")])
    assert is_balanced(row)
    assert (row.spent_microusd, row.waste_microusd) == (COST, COST)


def test_a_canceled_call_gives_its_money_back(row):
    run = hold(row)

    def cancel(request: CompletionRequest, cancelled: Any) -> Completion:
        run.stop.is_canceled = True
        assert cancelled()
        raise TeacherCanceled

    with pytest.raises(Canceled):
        batch(run, EchoTeacher(cancel), Saved())
    assert {state for _, _, state in journal(row)} == {"canceled"}
    assert is_balanced(row)
    assert row.spent_microusd == 0


def test_a_teacher_that_claims_more_than_a_call_can_cost_is_paid_the_most_it_can(row):
    greedy = Usage(input_tokens=9_000_000, output_tokens=9_000_000, disputed=True)

    def claim(request: CompletionRequest, cancelled: Any) -> Completion:
        return Completion(choices=answered(request).choices, usage=greedy)

    batch(hold(row), EchoTeacher(claim), Saved(), [plan("a")])
    assert is_balanced(row)
    assert row.spent_microusd == worst_cost(price(), plan("a").request)
    with tenant_scope(row.tenant_id):
        assert TeacherCall.objects.get(compile=row).usage_flags == ["disputed"]
        assert all(fact.is_estimated for fact in UsageFact.objects.filter(compile_id=row.id))


def test_cached_and_written_input_is_booked_apart_at_its_own_price(row):
    declared = {
        "input_usd_per_mtok": 10,
        "output_usd_per_mtok": 40,
        "cached_input_usd_per_mtok": 1,
        "cache_write_usd_per_mtok": 12.5,
    }
    dear = teacher_price(price_book(), MODEL, DeclaredPrice.model_validate(declared))
    usage = Usage(input_tokens=26, output_tokens=10, cached_tokens=10, cache_write_tokens=4)

    def cached(request: CompletionRequest, cancelled: Any) -> Completion:
        return Completion(choices=answered(request).choices, usage=usage)

    call_batch(hold(row), STEP, EchoTeacher(cached), dear, [plan("a")], Saved())
    assert is_balanced(row)
    with tenant_scope(row.tenant_id):
        facts = UsageFact.objects.filter(compile_id=row.id).values_list("sku", "quantity", "amount_microusd")
        assert {(sku.rsplit(".")[-1], quantity, amount) for sku, quantity, amount in facts} == {
            ("input_token", 12, 120),
            ("cached_input_token", 10, 10),
            ("cache_write_token", 4, 50),
            ("output_token", 10, 400),
        }


def test_a_batch_that_the_budget_cannot_carry_is_not_begun(row):
    worst = sum(worst_cost(price(), each.request) for each in BATCH)
    teacher = EchoTeacher()
    change(row, budget_microusd=worst - 1)
    with pytest.raises(PaymentRequired) as refused:
        batch(run := hold(row), teacher, Saved())
    assert refused.value.code == "budget_exhausted"
    assert (teacher.asked, journal(row)) == ({}, [])
    change(row, budget_microusd=worst)
    batch(run, teacher, Saved())
    assert fresh(row).spent_microusd <= worst


def test_batches_never_take_more_than_the_budget_whatever_they_cost(row):
    """Until the money is gone: each batch either fits or is not begun, and the table's own check agrees."""
    change(row, budget_microusd=10 * worst_cost(price(), plan("x").request))
    run, teacher = hold(row), EchoTeacher()

    def until_it_is_gone() -> None:
        for n in range(500):
            batch(run, teacher, Saved(), [plan(f"{n}/1"), plan(f"{n}/2")])

    with pytest.raises(PaymentRequired):
        until_it_is_gone()
    assert is_balanced(row)
    assert 0 < row.spent_microusd <= row.budget_microusd


def test_the_table_itself_refuses_to_overspend(row):
    for changes in ({"spent_microusd": row.budget_microusd + 1}, {"reserved_microusd": -1}):
        with pytest.raises(IntegrityError), tenant_scope(row.tenant_id), transaction.atomic():
            Compile.objects.filter(id=row.id).update(**changes)


def test_a_compile_that_expired_with_calls_in_flight_can_be_resumed(row):
    """Its end gave the reservations back; the calls are found `started` all the same."""

    def die(request: CompletionRequest, cancelled: Any) -> Completion:
        raise Crash

    first = hold(row)
    with pytest.raises(Crash):
        batch(first, EchoTeacher(die), Saved())
    lapse(first.lease)
    with tenant_scope(row.tenant_id):
        transitions.move(transitions.locked_compile(row.tenant_id, row.id), CompileStatus.EXPIRED)
        transitions.resume(row.tenant_id, row.id, budget_microusd=None)
    save = Saved()
    batch(hold(row), EchoTeacher(), save)
    assert len(save.batches) == 1
    assert is_balanced(row)


def test_the_end_of_a_compile_gives_back_what_its_last_calls_had_set_aside(row):
    def die(request: CompletionRequest, cancelled: Any) -> Completion:
        raise Crash

    run = hold(row)
    change(row, status=CompileStatus.CANCELING)
    with pytest.raises(Crash):
        batch(run, EchoTeacher(die), Saved())
    pipeline._end(run.lease, Canceled())
    assert {state for _, _, state in journal(row)} == {"wasted"}
    assert fresh(row).status == CompileStatus.CANCELED
    assert row.reserved_microusd == 0
    assert leases.claim(row.id, owner="two") is None


@pytest.mark.parametrize("n", [1, 4])
def test_the_calls_of_a_batch_are_in_flight_together(row, n):
    together = threading.Barrier(n, timeout=10)

    def meet(request: CompletionRequest, cancelled: Any) -> Completion:
        together.wait()
        return answered(request)

    batch(hold(row), EchoTeacher(meet), Saved(), [plan(str(i)) for i in range(n)])
    assert len(journal(row)) == n


def test_answers_outlive_a_connection_that_dies_before_their_transaction_is_committed(row):
    """Journaled and paid once, under the same lease; what the stage makes of them is made by the next try."""

    def lose(compile: Compile, calls: list[MadeCall]) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    run, teacher = hold(row), EchoTeacher()
    with pytest.raises(OperationalError):
        call_batch(run, STEP, teacher, price(), BATCH, lose)
    assert journal(row) == [(key, 1, "succeeded") for key in "abc"]
    assert booked(row, Billing.CHARGE) == 3 * COST
    saved = Saved()
    batch(run, teacher, saved)
    assert saved.batches == [[(key, f"question {key}") for key in "abc"]]
    assert set(teacher.asked.values()) == {1}
    assert (booked(row, Billing.CHARGE), booked(row, Billing.WASTE)) == (3 * COST, 0)
    assert fresh(row).reserved_microusd == 0
