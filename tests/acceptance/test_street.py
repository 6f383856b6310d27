"""The whole street, walked once by a customer: POST a spec, and everything that the API then tells of the compile and
of its costs. What was published is looked at in `test_published`."""

import base64
import json
from collections import Counter
from typing import Any

import pytest

from backend.domain.artifact import kolm_verify
from backend.domain.ids import Prefix, decode_id, encode_id
from backend.domain.lifecycle import STEPS
from backend.domain.spec.parsing import default_k_select
from tests.acceptance.books import usage_facts
from tests.acceptance.conftest import STREET, STREET_KEY
from tests.acceptance.deployment import Customer, Deployment, Row
from tests.acceptance.specs import LABELS, N_CANDIDATES, small_spec

pytestmark = pytest.mark.timeout(240)


def test_every_step_succeeds_once_and_in_order(customer: Customer, compile: Row) -> None:
    steps = customer.get(f"/v1/compiles/{compile['id']}/steps")["data"]
    assert [step["name"] for step in steps] == list(STEPS)
    assert {step["status"] for step in steps} == {"succeeded"}
    ended = [step["ended_at"] for step in steps]
    assert ended == sorted(ended)
    assert compile["started_at"] <= steps[0]["started_at"] <= ended[-1] <= compile["ended_at"]


def test_each_slice_keeps_k_of_n(customer: Customer, compile: Row) -> None:
    slices = customer.get(f"/v1/compiles/{compile['id']}/slices")["data"]
    assert [part["name"] for part in slices] == [part["name"] for part in STREET["slices"]]
    for part in slices:
        assert part["k_requested"] == default_k_select(N_CANDIDATES)
        assert 1 <= part["k_actual"] <= part["k_requested"]
        assert part["n_generated"] >= N_CANDIDATES
        assert part["signal"] == "verifier"
        picked = pages(customer, f"/v1/compiles/{compile['id']}/candidates", slice=part["name"])
        kept = [row for row in picked if row["state"] not in ("rejected", "dropped")]
        assert len(kept) == part["k_actual"]


def pages(customer: Customer, path: str, *, limit: int = 7, **filters: str) -> list[Row]:
    """A whole list, by cursor."""
    found: list[Row] = []
    query: dict[str, Any] = {"limit": limit, **filters}
    while True:
        page = customer.get(path, **query)
        assert len(page["data"]) <= limit
        found += page["data"]
        if not page["has_more"]:
            assert page["next_cursor"] is None
            return found
        query["after"] = page["next_cursor"]


def test_candidates_page_by_cursor_without_gap_or_repeat(customer: Customer, compile: Row) -> None:
    path = f"/v1/compiles/{compile['id']}/candidates"
    by_sevens, at_once = pages(customer, path), pages(customer, path, limit=100)
    assert [row["id"] for row in by_sevens] == [row["id"] for row in at_once]
    assert len({row["id"] for row in by_sevens}) == len(by_sevens)
    backwards = customer.get(path, before=by_sevens[-1]["id"], limit=100)["data"]
    assert [row["id"] for row in backwards] == [row["id"] for row in by_sevens[:-1]]
    states = Counter(row["state"] for row in by_sevens)
    assert set(states) <= {"rejected", "dropped", "unverified", "trained", "left_out"}
    for state, n in states.items():
        assert len(pages(customer, path, state=state)) == n


def test_what_trains_was_verified_and_agreed_on(customer: Customer, compile: Row) -> None:
    trained = pages(customer, f"/v1/compiles/{compile['id']}/candidates", state="trained")
    assert trained
    for row in trained:
        assert row["reasons"] == []
        assert row["label"] in LABELS
        assert row["agreement_ppm"] >= 600_000
        assert sum(row["votes"].values()) <= STREET["sampling"]["label_samples"]


def test_events_are_numbered_without_a_gap(customer: Customer, compile: Row) -> None:
    events = customer.events(compile["id"])
    assert [event["seq"] for event in events] == list(range(1, compile["sequence"] + 1))
    started = [event["data"]["step"] for event in events if event["type"] == "step.started"]
    succeeded = [event["data"]["step"] for event in events if event["type"] == "step.succeeded"]
    assert started == succeeded == list(STEPS)
    assert [event["type"] for event in events][-2:] == ["compile.status", "compile.succeeded"]
    assert any("loss" in event["data"] for event in events if event["type"] == "step.progress")


def test_receipts_are_signed_and_chained_one_a_step(customer: Customer, compile: Row, keyring: Row) -> None:
    receipts = customer.get(f"/v1/compiles/{compile['id']}/receipts")["data"]
    assert [(row["seq"], row["step"]) for row in receipts] == list(enumerate(STEPS))
    keys = {key["keyid"]: base64.b64decode(key["public_key"]) for key in keyring["keys"]}
    prev = ""
    for row in receipts:
        payload, signers = kolm_verify.open_envelope(
            kolm_verify.canonical(row["envelope"]), kolm_verify.STATEMENT_TYPE, keys, row["step"]
        )
        assert set(signers) <= set(keys)
        predicate = json.loads(payload)["predicate"]
        assert (predicate["compile"], predicate["step"], predicate["seq"]) == (compile["id"], row["step"], row["seq"])
        assert predicate["prev"] == prev
        prev = row["payload_sha256"]


def test_what_was_spent_is_the_sum_of_steps_and_of_usage_facts(
    deployment: Deployment, customer: Customer, compile: Row
) -> None:
    steps = customer.get(f"/v1/compiles/{compile['id']}/steps")["data"]
    facts = usage_facts(deployment, compile["id"])
    charged = Counter[str]()
    for fact in facts:
        charged[fact["step"]] += fact["amount_microusd"] if fact["billing"] == "charge" else 0
    assert compile["spent_microusd"] == sum(charged.values()) == sum(step["spent_microusd"] for step in steps) > 0
    assert {step["name"]: step["spent_microusd"] for step in steps if step["spent_microusd"]} == +charged
    assert compile["reserved_microusd"] == compile["waste_microusd"] == 0
    calls = [fact for fact in facts if fact["sku"].startswith("teacher.")]
    assert {fact["unit"] for fact in calls} == {"token"}
    receipts = customer.get(f"/v1/compiles/{compile['id']}/receipts")["data"]
    told = [json.loads(base64.b64decode(row["envelope"]["payload"]))["predicate"] for row in receipts]
    assert {p["step"]: p["cost_microusd"] for p in told if p["cost_microusd"]} == +charged


def test_no_step_costs_more_than_the_estimates_high_bound(customer: Customer, compile: Row) -> None:
    estimate = compile["estimate"]
    assert estimate["total"]["low_microusd"] <= estimate["total"]["expected_microusd"]
    assert compile["spent_microusd"] <= estimate["total"]["high_microusd"]
    for step in customer.get(f"/v1/compiles/{compile['id']}/steps")["data"]:
        assert step["spent_microusd"] <= step["estimate"]["high_microusd"], step["name"]
    asked = customer.api.post("/v1/compiles/estimate", json=STREET).json()
    assert asked["within_budget"] is True
    by_step = [{step["step"]: step for step in one["steps"]} for one in (asked, estimate)]
    assert by_step[0]["distillation"] == by_step[1]["distillation"]
    assert by_step[0]["synthesis"] != by_step[1]["synthesis"], "what the teacher wrote for this task is known by now"
    assert any("earlier compile" in line for line in asked["assumptions"])


def test_what_every_selection_left_is_kept_as_drafts(deployment: Deployment, customer: Customer, compile: Row) -> None:
    """All N, because this teacher tells log-probs; those that were picked are marked. No text is in a row."""
    candidates = pages(customer, f"/v1/compiles/{compile['id']}/candidates")
    valid = {row["id"]: row for row in candidates if row["state"] != "rejected"}
    dropped = {row["id"] for row in candidates if row["state"] == "dropped"}
    query = "SELECT * FROM drafts_draft WHERE compile_id = %s"
    drafts = deployment.rows(query, decode_id(Prefix.COMPILE, compile["id"]))
    ids = {encode_id(Prefix.CANDIDATE, draft["candidate_id"]): draft for draft in drafts}
    assert ids.keys() == valid.keys()
    assert {id for id, draft in ids.items() if not draft["is_kept"]} == dropped
    for id, draft in ids.items():
        row = valid[id]
        assert row["text"].encode() not in b"".join(
            bytes(v) for v in draft.values() if isinstance(v, bytes | memoryview)
        )
        assert (draft["score"], draft["logprob"]) == (row["score"], row["logprob"])
        assert draft["n_tokens"] == row["n_tokens"] > 0
        assert draft["cost_microusd"] == row["cost_microusd"]
        assert len(bytes(draft["token_logprobs"])) == 2 * draft["n_tokens"]
        assert draft["tenant_id"] == customer.tenant_id
    family = customer.get("/v1/drafts/stats", family=compile["name"])["data"][0]
    # the twin's are of the same family
    assert sum(scope["n_drafts"] for scope in family["scopes"]) >= len(dropped) > 0


def test_what_has_not_changed_is_not_sent_again(customer: Customer, compile: Row) -> None:
    for path in (f"/v1/compiles/{compile['id']}", f"/v1/artifacts/{compile['artifact']}/download"):
        etag = customer.api.get(path).headers["etag"]
        again = customer.api.get(path, headers={"If-None-Match": etag})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == etag
        assert customer.api.get(path, headers={"If-None-Match": '"another"'}).status_code == 200


def test_a_post_that_is_sent_again_starts_nothing(customer: Customer, compile: Row) -> None:
    n_before = len(pages(customer, "/v1/compiles", name="street"))
    again = customer.api.post("/v1/compiles", json=STREET, headers={"Idempotency-Key": STREET_KEY})
    assert (again.status_code, again.json()["id"]) == (202, compile["id"])
    assert again.headers["idempotent-replayed"] == "true"
    assert again.headers["location"] == f"/v1/compiles/{compile['id']}"
    other = customer.api.post("/v1/compiles", json=small_spec("other"), headers={"Idempotency-Key": STREET_KEY})
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reuse")
    assert len(pages(customer, "/v1/compiles", name="street")) == n_before


def test_a_stranger_finds_nothing_of_it(stranger: Customer, compile: Row) -> None:
    compile_path, artifact_path = f"/v1/compiles/{compile['id']}", f"/v1/artifacts/{compile['artifact']}"
    reads = ("", "/events", "/steps", "/slices", "/candidates", "/receipts")
    asked = [("GET", compile_path + part) for part in reads]
    asked += [("POST", f"{compile_path}/{verb}") for verb in ("cancel", "resume")]
    asked += [("GET", artifact_path), ("GET", f"{artifact_path}/download"), ("POST", f"{artifact_path}/verify")]
    for method, path in asked:
        response = stranger.api.request(method, path)
        assert (response.status_code, response.json()["code"]) == (404, "not_found"), f"{method} {path}"
    ran = stranger.api.post(f"{artifact_path}/run", json={"inputs": ["hello"]})
    assert (ran.status_code, ran.json()["code"]) == (404, "not_found")
    streamed = stranger.api.get(f"{compile_path}/events", headers={"Accept": "text/event-stream"})
    assert streamed.status_code == 404
    assert stranger.get("/v1/compiles")["data"] == stranger.get("/v1/artifacts")["data"] == []
