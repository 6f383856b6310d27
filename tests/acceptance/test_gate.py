"""Below the gate: a compile that ends without an artifact, and says why and what is cheapest to try."""

import pytest

from backend.domain.lifecycle import STEPS, StepName
from tests.acceptance.books import check_books, uuid_of
from tests.acceptance.deployment import Customer, Deployment
from tests.acceptance.specs import LABELS, small_spec

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(120)]


def test_a_gate_out_of_reach_ends_the_compile_with_reasons_and_nothing_published(
    deployment: Deployment, customer: Customer
) -> None:
    # 36 right answers of 36 have a lower bound of 0.903, 35 one of 0.858; what not even 36 reached is refused at once
    compile_id = customer.compile(small_spec("high-gate", gate={"accuracy_lower": 0.9}, train={"epochs": 1}))
    compile = customer.ended(compile_id, within_s=90)
    assert compile["status"] == "gate_failed"
    assert compile["failure"] is None
    assert compile["artifact"] is None

    gate = compile["gate"]
    assert (gate["passed"], gate["first_failed"]) == (False, "accuracy_lower")
    failed = next(floor for floor in gate["floors"] if floor["name"] == "accuracy_lower")
    assert (failed["passed"], failed["required"]) == (False, 900_000)
    assert failed["measured"] < failed["required"]
    assert "example" in gate["next_step"]
    table = gate["evaluation"]["per_class"]
    assert [row["label"] for row in table] == list(LABELS)
    assert sum(row["n"] for row in table) == gate["evaluation"]["n"] == 36
    assert {row["n"] for row in table} == {12}

    check_books(deployment, customer, compile)
    receipts = customer.get(f"/v1/compiles/{compile_id}/receipts")["data"]
    assert [row["step"] for row in receipts] == [name for name in STEPS if name != StepName.PACKAGING]
    assert customer.get("/v1/artifacts", name="high-gate")["data"] == []
    query = "SELECT 1 FROM artifacts_artifact WHERE compile_id = %s"
    assert deployment.rows(query, uuid_of(compile_id)) == []
    for verb, code in (("cancel", "compile_ended"), ("resume", "compile_not_resumable")):
        refused = customer.api.post(f"/v1/compiles/{compile_id}/{verb}")
        assert (refused.status_code, refused.json()["code"]) == (409, code)
