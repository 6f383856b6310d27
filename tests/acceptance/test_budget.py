"""The budget: refused when it cannot be enough, never overspent, and raised by resuming."""

from typing import Any

import pytest

from tests.acceptance.books import check_books
from tests.acceptance.deployment import Customer, Deployment
from tests.acceptance.specs import asks, small_spec
from tests.acceptance.teacher_server import TeacherServer

pytestmark = pytest.mark.timeout(300)
DEAR = {"input_usd_per_mtok": 1000, "output_usd_per_mtok": 4000}
SHORT = 64  # tokens of a candidate: more than any of the grammar's texts has


def test_a_budget_below_the_estimate_is_refused_and_nothing_is_kept(customer: Customer) -> None:
    response = customer.api.post("/v1/compiles", json=small_spec("too-little", budget={"usd": 0.0001}))
    assert (response.status_code, response.json()["code"]) == (422, "budget_below_estimate")
    (problem,) = response.json()["errors"]
    assert (problem["pointer"], problem["code"]) == ("/budget/usd", "budget_below_estimate")
    assert "raise budget.usd" in problem["detail"]
    assert customer.get("/v1/compiles", name="too-little")["data"] == []


@pytest.mark.nightly
def test_a_budget_that_runs_out_midway_fails_the_compile_and_a_larger_one_finishes_it(
    deployment: Deployment, customer: Customer, teacher: TeacherServer
) -> None:
    # one short call at a time: a batch's worst case is then far below what the whole compile costs
    dear = asks(teacher.url, "steady-budget", price=DEAR, concurrency=1)
    spec = small_spec("runs-out", teacher=dear, sampling={"candidate_max_tokens": SHORT})
    estimate = customer.api.post("/v1/compiles/estimate", json=spec).json()
    budget = least_budget(estimate) * 12 // 10
    assert budget < 0.7 * estimate["total"]["expected_microusd"]
    compile_id = customer.compile(spec | {"budget": {"usd": budget / 1e6}})
    compile = customer.ended(compile_id, within_s=60)
    assert compile["status"] == "failed"
    assert compile["failure"]["code"] == "budget_exhausted"
    assert 0 < compile["spent_microusd"] <= budget == compile["budget_microusd"]
    check_books(deployment, customer, compile)
    spent, asked = compile["spent_microusd"], teacher.asked("steady-budget")

    path = f"/v1/compiles/{compile_id}/resume"
    refused = customer.api.post(path, json={"budget_microusd": spent - 1})
    assert (refused.status_code, refused.json()["code"]) == (409, "budget_below_spent")
    response = customer.api.post(path, json={"budget_microusd": 20 * budget})
    assert response.status_code == 202, response.text
    compile = customer.succeeded(compile_id, within_s=60)
    assert spent < compile["spent_microusd"]
    check_books(deployment, customer, compile)
    assert asked <= teacher.asked("steady-budget")
    assert set(teacher.asked("steady-budget").values()) == {1}


def least_budget(estimate: dict[str, Any]) -> int:
    """The smallest budget that a POST takes, micro-USD."""
    return int(max(estimate["total"]["low_microusd"], estimate["worst_batch_microusd"]))
