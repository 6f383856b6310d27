"""A second version of a task on the running deployment: it takes from the draft cache what the teacher need not write
again, says what that saved, and its receipts verify. Then the family is purged, and nothing is left to offer."""

import pytest

from tests.acceptance.books import check_books
from tests.acceptance.deployment import Customer, Deployment
from tests.acceptance.specs import N_CANDIDATES, asks, small_spec
from tests.acceptance.teacher_server import TeacherServer

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(300)]
CACHE = {"holdback": 0, "audit_share": 1.0}


def test_the_next_version_of_a_task_pays_for_what_changed(deployment: Deployment, customer: Customer) -> None:
    spec = small_spec("versions", draft_cache=CACHE)
    first = customer.succeeded(customer.compile(spec), within_s=200)
    changed = [
        part | ({"hint": part["hint"] + " Be brief."} if i == 0 else {}) for i, part in enumerate(spec["slices"])
    ]
    spec = spec | {"slices": changed}

    preview = customer.api.post("/v1/drafts/preview", json=spec, timeout=30)
    assert preview.status_code == 200, preview.text
    expected = {part["slice"]: part for part in preview.json()["slices"]}
    assert [part["strategy"] for part in expected.values()].count("repeat") == len(changed) - 1

    second = customer.succeeded(customer.compile(spec), within_s=200)
    check_books(deployment, customer, second)
    slices = customer.get(f"/v1/compiles/{second['id']}/slices")["data"]
    for part in slices:
        told = part["drafts"]
        if part["name"] == changed[0]["name"]:
            assert (told["arm"], told["strategy"]) == ("offered", "judge")
            assert part["n_generated"] < N_CANDIDATES
        else:
            assert (told["strategy"], part["n_from_drafts"]) == ("repeat", told["entered"])
            assert part["n_generated"] == N_CANDIDATES - told["entered"]
            assert told["saving"]["net_microusd"] > 0
    steps = {
        id: {row["name"]: row for row in customer.get(f"/v1/compiles/{id}/steps")["data"]}
        for id in (first["id"], second["id"])
    }
    assert steps[second["id"]]["synthesis"]["spent_microusd"] < steps[first["id"]]["synthesis"]["spent_microusd"] / 2
    receipts = {row["step"]: row for row in customer.get(f"/v1/compiles/{second['id']}/receipts")["data"]}
    assert "synthesis" in receipts
    family = customer.get("/v1/drafts/stats", family="versions")["data"][0]
    assert family["net_microusd"] > 0

    gone = customer.api.delete("/v1/drafts", params={"family": "versions"})
    assert gone.status_code == 200, gone.text
    assert customer.get("/v1/drafts", family="versions")["data"] == []
    again = customer.api.post("/v1/drafts/preview", json=spec, timeout=30).json()
    assert {part["arm"] for part in again["slices"]} == {"no_drafts"}


@pytest.mark.nightly
def test_a_judge_over_the_wire_lets_drafts_in_where_it_pays(
    deployment: Deployment, customer: Customer, teacher: TeacherServer
) -> None:
    """A teacher without log-probs of given texts or a revision is asked; output is dear, so asking pays."""
    dear = asks(teacher.url, "steady-1") | {"price": {"input_usd_per_mtok": 0.01, "output_usd_per_mtok": 10.0}}
    spec = small_spec("judged", teacher=dear, draft_cache=CACHE)
    customer.succeeded(customer.compile(spec), within_s=200)
    second = customer.succeeded(
        customer.compile(spec | {"task": spec["task"] + " Decide by the message alone."}), within_s=200
    )
    check_books(deployment, customer, second)
    slices = customer.get(f"/v1/compiles/{second['id']}/slices")["data"]
    assert sum(part["n_from_drafts"] for part in slices) > 0
    assert sum(part["drafts"]["saving"]["net_microusd"] for part in slices) > 0
    rows = customer.get(f"/v1/compiles/{second['id']}/candidates", limit=100)["data"]
    entered = [row for row in rows if row["origin"] == "draft" and row["state"] != "rejected"]
    assert {row["certificate"] for row in entered} == {"judged"}
