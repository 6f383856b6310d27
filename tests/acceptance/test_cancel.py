"""Cancelling: the teacher and the runner stop within seconds, what was made and paid for stays, and resuming goes on
from there without paying twice."""

import time
from collections.abc import Callable

import pytest

from backend.domain.lifecycle import STEPS
from tests.acceptance.books import check_books, runner_jobs, teacher_calls
from tests.acceptance.deployment import Customer, Deployment, Row, eventually
from tests.acceptance.specs import GOLD_PER_LABEL, LABELS, asks, small_spec
from tests.acceptance.teacher_server import TeacherServer

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(300)]
CANCELED_WITHIN_S = 6.0
N_HELDOUT = len(LABELS) * GOLD_PER_LABEL // 2


def test_a_running_teacher_batch_is_cancelled_and_resumed_without_paying_twice(
    deployment: Deployment, customer: Customer, teacher: TeacherServer
) -> None:
    spec = small_spec("cancel-synthesis", teacher=asks(teacher.url, "halting-cancel"))
    compile_id = customer.compile(spec)
    # the first slice is there, the second one's calls hang
    eventually(lambda: teacher.turns["halting-cancel"] >= 4, within_s=60)
    compile = cancel(customer, compile_id)
    paid = compile["spent_microusd"]
    check_books(deployment, customer, compile)
    assert [row["step"] for row in customer.get(f"/v1/compiles/{compile_id}/receipts")["data"]] == ["slicing"]
    preflight, *calls = teacher_calls(deployment, compile_id)
    assert (preflight["key"], preflight["state"]) == ("preflight", "applied")
    assert [call["state"] for call in calls] == ["applied", "applied", "canceled", "canceled"]
    assert paid > preflight["cost_microusd"] > 0

    compile = resume(customer, compile_id)
    assert compile["spent_microusd"] > paid
    check_books(deployment, customer, compile)
    assert set(teacher.asked("halting-cancel").values()) == {1}


@pytest.mark.nightly
def test_a_running_training_is_cancelled_and_resumed(deployment: Deployment, customer: Customer) -> None:
    compile_id = customer.compile(small_spec("cancel-training", train={"epochs": 6}))
    eventually(is_training(customer, compile_id), within_s=60)
    compile = cancel(customer, compile_id)
    check_books(deployment, customer, compile)
    assert [row["step"] for row in customer.get(f"/v1/compiles/{compile_id}/receipts")["data"]] == list(STEPS)[:5]
    eventually(lambda: runner_jobs(deployment, compile_id)[0]["status"] == "canceled", within_s=CANCELED_WITHIN_S)
    check_books(deployment, customer, customer.get(f"/v1/compiles/{compile_id}"))  # no event came after the last one
    before = teacher_calls(deployment, compile_id)

    compile = resume(customer, compile_id)
    check_books(deployment, customer, compile)
    after = teacher_calls(deployment, compile_id)
    assert after[: len(before)] == before
    # the teacher's own answers to held-out inputs come with the evaluation, once each
    keys = [call["key"] for call in after[len(before) :] if call["step"] == "evaluation"]
    assert len(set(keys)) == len(after) - len(before) == N_HELDOUT
    assert [job["status"] for job in runner_jobs(deployment, compile_id)] == ["canceled", "succeeded", "succeeded"]


def test_a_compile_cancelled_before_anybody_took_it_costs_nothing(
    deployment: Deployment, customer: Customer, teacher: TeacherServer
) -> None:
    compile_id = customer.compile(small_spec("cancel-at-once", teacher=asks(teacher.url, "stuck-at-once")))
    compile = cancel(customer, compile_id)
    check_books(deployment, customer, compile)
    again = customer.api.post(f"/v1/compiles/{compile_id}/cancel")
    assert (again.status_code, again.json()["status"]) == (202, "canceled")


def cancel(customer: Customer, compile_id: str) -> Row:
    response = customer.api.post(f"/v1/compiles/{compile_id}/cancel")
    assert response.status_code == 202, response.text
    asked_at = time.monotonic()
    compile = customer.ended(compile_id, within_s=30)
    assert compile["status"] == "canceled"
    assert time.monotonic() - asked_at < CANCELED_WITHIN_S
    return compile


def resume(customer: Customer, compile_id: str) -> Row:
    response = customer.api.post(f"/v1/compiles/{compile_id}/resume")
    assert response.status_code == 202, response.text
    return customer.succeeded(compile_id, within_s=90)


def is_training(customer: Customer, compile_id: str) -> Callable[[], bool]:
    return lambda: any("loss" in event["data"] for event in customer.events(compile_id))
