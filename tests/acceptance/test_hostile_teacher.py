"""A teacher that misbehaves in every way that HTTP allows: the compile ends in an orderly way, within its budget, and
nothing of it that was not checked is trained on."""

import pytest

from tests.acceptance.books import check_books, teacher_calls, training_set
from tests.acceptance.deployment import Customer, Deployment
from tests.acceptance.specs import LABELS, asks, small_spec
from tests.acceptance.teacher_server import POISON, TeacherServer

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(240)]


@pytest.mark.nightly
def test_a_rough_teacher_is_borne_and_nothing_unchecked_is_trained_on(
    deployment: Deployment, customer: Customer, teacher: TeacherServer
) -> None:
    # one call at a time: the teacher's turns then come in the same order every time
    compile_id = customer.compile(small_spec("rough", teacher=asks(teacher.url, "rough-1", concurrency=1)))
    compile = customer.succeeded(compile_id, within_s=200)
    check_books(deployment, customer, compile)
    pairs = training_set(deployment, customer, compile_id)
    assert not [pair for pair in pairs if POISON in pair["input"] or pair["label"] not in LABELS]
    assert not poisoned(deployment, customer) - {"rejected"}
    calls = teacher_calls(deployment, compile_id)
    # it sent bills of two thousand million tokens: none was believed
    assert any("disputed" in call["usage_flags"] for call in calls)
    assert all(call["cost_microusd"] <= call["reserved_microusd"] for call in calls)


@pytest.mark.nightly
def test_a_hostile_teacher_ends_a_compile_in_an_orderly_way(
    deployment: Deployment, customer: Customer, teacher: TeacherServer
) -> None:
    compile_id = customer.compile(small_spec("hostile", teacher=asks(teacher.url, "hostile-1")))
    compile = customer.ended(compile_id, within_s=200)
    check_books(deployment, customer, compile)
    check_ending(compile)
    assert not poisoned(deployment, customer) - {"rejected"}


def poisoned(deployment: Deployment, customer: Customer) -> set[str]:
    """The states of candidates that hold what no training set may."""
    query = "SELECT state FROM compiles_candidate WHERE position(%s in text) > 0 AND tenant_id = %s"
    return {row["state"] for row in deployment.rows(query, POISON, customer.tenant_id)}


def test_a_hostile_teacher_cannot_spend_more_than_a_tight_budget(
    deployment: Deployment, customer: Customer, teacher: TeacherServer
) -> None:
    spec = small_spec("hostile-tight", teacher=asks(teacher.url, "hostile-2"))
    estimate = customer.api.post("/v1/compiles/estimate", json=spec).json()
    least = max(estimate["total"]["low_microusd"], estimate["worst_batch_microusd"])
    compile_id = customer.compile(spec | {"budget": {"usd": 1.2 * least / 1e6}})
    compile = customer.ended(compile_id, within_s=200)
    check_books(deployment, customer, compile)
    check_ending(compile, "budget_exhausted")


def check_ending(compile: dict[str, object], *codes: str) -> None:
    failure = compile["failure"]
    if failure is None:
        assert compile["status"] in ("succeeded", "gate_failed")
    else:
        assert compile["status"] == "failed"
        assert isinstance(failure, dict)
        assert failure["code"].startswith("teacher_") or failure["code"] in codes, failure


def test_a_teacher_that_refuses_ends_the_compile_at_once_with_its_costs_kept(
    deployment: Deployment, customer: Customer, teacher: TeacherServer
) -> None:
    compile_id = customer.compile(small_spec("quitting", teacher=asks(teacher.url, "quitting-1")))
    compile = customer.ended(compile_id, within_s=60)
    assert compile["status"] == "failed"
    assert (compile["failure"]["code"], compile["failure"]["step"]) == ("teacher_rejected", "synthesis")
    assert "API key" in compile["failure"]["message"]
    assert compile["spent_microusd"] > 0
    check_books(deployment, customer, compile)
    steps = customer.get(f"/v1/compiles/{compile_id}/steps")["data"]
    assert [step["status"] for step in steps[:3]] == ["succeeded", "failed", "pending"]
