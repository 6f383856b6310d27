"""A teacher that writes three sentences over and over: the whole deployment asks it again, splits the slices, drops K,
and says so in the slices, the events and the file."""

import pytest

from tests.acceptance.books import check_books
from tests.acceptance.deployment import Customer, Deployment
from tests.acceptance.specs import asks, small_spec
from tests.acceptance.teacher_server import TeacherServer

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(240)]


@pytest.mark.nightly
def test_a_collapsed_teacher_is_answered_by_every_mitigation_in_turn(
    deployment: Deployment, customer: Customer, teacher: TeacherServer
) -> None:
    sampling = {"k_select": 6, "on_gap": ["resynthesize", "split_slice", "drop_k"], "resynthesis_rounds": 1}
    spec = small_spec("collapsed", teacher=asks(teacher.url, "collapsed-1"), sampling=sampling)
    compile_id = customer.compile(spec)
    compile = customer.ended(compile_id, within_s=200)
    assert compile["status"] in ("succeeded", "gate_failed"), compile["failure"]
    check_books(deployment, customer, compile)

    slices = customer.get(f"/v1/compiles/{compile_id}/slices")["data"]
    parents, kept = ([s for s in slices if bool(s["split_into"]) is is_parent] for is_parent in (True, False))
    assert len(parents) == len(spec["slices"])
    for parent in parents:
        assert (parent["k_actual"], parent["selection"]["mitigation"]) == (0, "split")
        assert parent["selection"]["resynth_rounds"] == 1
        assert parent["split_into"] == [f"{parent['name']}_one", f"{parent['name']}_two"], "as the teacher named them"
        assert {s["name"] for s in kept if s["split_from"] == parent["name"]} == set(parent["split_into"])
    assert any(s["selection"]["mitigation"] == "drop_k" and s["k_actual"] < s["k_requested"] for s in kept)
    for part in kept:
        assert part["selection"]["k_actual"] <= max(1, part["selection"]["n_groups"]), "no pick repeats another"

    events = customer.get(f"/v1/compiles/{compile_id}/events")["data"]
    assert sum(event["type"] == "selection.report" for event in events) == len(slices)
    codes = {event["data"]["code"] for event in events if event["type"] == "warning"}
    assert {"cluster_gap", "slice_split", "mitigation_passed_over"} <= codes
