"""Calls at the edges: long names, hostile numbers, batches that a failing teacher stretches over many tries."""

from dataclasses import replace
from typing import Any

import pytest
from django.db import connection

from backend.compiles.models import Compile, TeacherCall
from backend.domain.lifecycle import STEPS, CompileStatus, StepName
from backend.domain.money.pricing import price_book, teacher_price
from backend.domain.spec.parsing import DeclaredPrice
from backend.tenants.isolation import tenant_scope
from tests.compile_factories import fresh, hold, lapse, make_compile
from tests.factories import make_tenant
from tests.workers.calls import EchoTeacher, answered, plan, price
from tests.workers.pipeline_helpers import check_money
from workers import pipeline
from workers.step.durable import CompileRun
from workers.step.result import StepDone, finish_step
from workers.step.teacher_calls import PlannedCall, call_batch
from workers.teachers.openai_compatible import answers
from workers.teachers.protocol import Completion, CompletionRequest, Message, TeacherFailed, TeacherIdentity

pytestmark = pytest.mark.usefixtures("committed_db")
STEP = StepName.LABELING


class Killed(BaseException):
    """Nobody catches it: the process is gone."""


@pytest.fixture
def row(committed_db: None) -> Compile:
    return make_compile(make_tenant())


def nothing(compile: Compile, calls: Any) -> None:
    pass


def test_a_model_with_the_longest_name_is_paid_and_written_off_like_any_other(row):
    model = "m" * 200
    declared = DeclaredPrice.model_validate({"input_usd_per_mtok": 1, "output_usd_per_mtok": 1})
    cost = teacher_price(price_book(), model, declared)

    def die(request: CompletionRequest, cancelled: Any) -> Completion:
        raise Killed

    for answer in (die, answered):
        teacher = EchoTeacher(answer)
        teacher.identity = TeacherIdentity(provider="openai_compatible", model=model)
        run = hold(row)
        try:
            call_batch(run, STEP, teacher, cost, [plan("a")], nothing)
        except Killed:
            lapse(run.lease)
    with tenant_scope(row.tenant_id):
        assert sorted(TeacherCall.objects.filter(compile=row).values_list("state", flat=True)) == ["applied", "wasted"]
    assert fresh(row).spent_microusd > 0
    assert row.waste_microusd > 0
    check_money(row)


@pytest.mark.nightly
def test_a_step_that_gets_on_between_its_failures_is_not_given_up(row, monkeypatch):
    """Eight failures in one step, each after a batch that was kept: the count starts anew with each batch."""
    plans = [plan(str(i)) for i in range(9)]
    up_to = {"n": 0}

    def flaky(request: CompletionRequest, cancelled: Any) -> Completion:
        if int(request.messages[-1].content.split()[-1]) > up_to["n"]:
            raise TeacherFailed("away", code="teacher_unreachable")
        return answered(request)

    teacher = EchoTeacher(flaky)

    def finishing(name: StepName):
        def stage(run: CompileRun) -> StepDone:
            if name == STEP:
                for each in plans:
                    call_batch(run, STEP, teacher, price(), [each], nothing)
            with run.transaction() as fenced:
                finish_step(run, fenced, name, StepDone())
            return StepDone()

        return stage

    monkeypatch.setattr(pipeline, "STEP_FUNCTIONS", {name: finishing(name) for name in STEPS})
    for _ in range(8):
        make_due(row)
        pipeline.advance(row.id)
        assert fresh(row).status == CompileStatus.RUNNING
        up_to["n"] += 1
    for _ in range(pipeline.MAX_ATTEMPTS):
        up_to["n"] = 7
        make_due(row)
        pipeline.advance(row.id)
    assert fresh(row).status == CompileStatus.FAILED, "without progress it ends"
    assert row.failure_code == "teacher_unreachable"
    check_money(row)


def make_due(row: Compile) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE compiles_compilelease SET due_at = now() WHERE compile_id = %s", [row.id])


def test_a_compile_that_ends_with_calls_in_flight_books_them_as_waste_like_one_that_goes_on(row):
    def die(request: CompletionRequest, cancelled: Any) -> Completion:
        raise Killed

    run = hold(row)
    with pytest.raises(Killed):
        call_batch(run, STEP, EchoTeacher(die), price(), [plan("a"), plan("b")], nothing)
    reserved = fresh(row).reserved_microusd
    assert reserved > 0
    pipeline._end(run.lease, TeacherFailed("wrong key", code="teacher_rejected"))
    assert (fresh(row).status, row.reserved_microusd) == (CompileStatus.FAILED, 0)
    assert row.waste_microusd == reserved
    check_money(row)


def chat(logprob: str, n: int = 1) -> bytes:
    rows = ",".join(['{"token": "x", "logprob": ' + logprob + "}"] * n)
    return ('{"choices": [{"message": {"content": "hi"}, "logprobs": {"content": [' + rows + "]}}]}").encode()


@pytest.mark.parametrize(("logprob", "n"), [("-1" + "0" * 400, 1), ("-1.7e308", 20), ("-1e999", 1), ("-70000", 3)])
def test_log_probabilities_of_any_size_are_refused_or_kept_within_what_can_be_stored(logprob, n):
    request = CompletionRequest(messages=(Message(role="user", content="q"),), logprobs=True)
    try:
        answer = answers.read_chat(chat(logprob, n), request)
    except answers.BadAnswer:
        return
    kept = answer.choices[0].token_logprobs or ()
    assert all(-65_504 <= value <= 0 for value in kept), "float16 holds no more"


def test_a_long_answer_and_thoughts_have_time_at_twenty_tokens_a_second(row):
    teacher, asked = EchoTeacher(), {"short": (500, 0), "long": (4000, 0), "thinks": (500, 2000)}
    plans = [
        PlannedCall(key=key, request=replace(plan(key).request, max_tokens=most, thought_tokens=thoughts))
        for key, (most, thoughts) in asked.items()
    ]
    call_batch(hold(row), STEP, teacher, price(), plans, nothing)
    assert teacher.deadlines_s == {"question short": 120, "question long": 200, "question thinks": 220}
