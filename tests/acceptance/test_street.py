"""The whole street, walked once by a customer: POST a spec, and everything that the API then tells of the compile, its
costs, its receipts and its artifact. The spec is compiled twice, so that the two can be laid side by side."""

import base64
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from backend.domain import kolm_verify
from backend.domain.ids import Prefix, decode_id, encode_id
from backend.domain.lifecycle import STEPS
from backend.domain.spec import default_k_select
from deploy.embedded.home import ROOT
from tests.acceptance.deployment import Customer, Deployment, Row
from tests.acceptance.specs import LABELS, N_CANDIDATES, small_spec

pytestmark = pytest.mark.timeout(240)
SPEC = small_spec("street")
KEY = "street-twin-a"

# What two compiles of one spec may differ in, as JSON pointers: who they are, when they ran, how fast this machine was
# (and what its seconds cost), and the digests of those. Everything else is byte for byte the same.
MAY_DIFFER = {
    "manifest.json": r"/(compile|created_at|receipt_head|k_score_ppm)|/members/\d+/(sha256|size)",
    "signatures.json": r"/payload|/signatures/0/sig",
    "evals.json": r"/latency_us_(p50|p95)",
    "k_score.json": r"/(p50_us|latency_ppm|cost_nanousd|cost_ppm|composite_ppm)",
    "gate.json": r"/floors/4/(measured|message)|/k_score_ppm",
    "provenance.json": r"/steps/(evaluation/evals|gate/(gate|k_score))",
    "receipts": r"/predicate/(compile|prev|started_at|ended_at)",
    "receipts/05-distillation.dsse.json": r"/predicate/(cost_microusd|facts/(job|runner_ms))",
    "receipts/06-evaluation.dsse.json": r"/predicate/(cost_microusd|facts/latency_us_(p50|p95))"
    r"|(/subject|/predicate/outputs)/0/digest/sha256",
    "receipts/07-gate.dsse.json": r"/predicate/facts/(gate/k_score_ppm|gate/floors/4/(measured|message))"
    r"|/predicate/facts/k_score/(p50_us|latency_ppm|cost_nanousd|cost_ppm|composite_ppm)"
    r"|(/subject|/predicate/inputs|/predicate/outputs)/[01]/digest/sha256",
}


@pytest.fixture(scope="module")
def twins(customer: Customer) -> tuple[Row, Row]:
    """Two compiles of one spec, under way at the same time."""
    first = customer.api.post("/v1/compiles", json=SPEC, headers={"Idempotency-Key": KEY})
    assert first.status_code == 202, first.text
    assert first.headers["location"] == f"/v1/compiles/{first.json()['id']}"
    second = customer.compile(SPEC)
    return customer.succeeded(first.json()["id"], within_s=200), customer.succeeded(second, within_s=200)


@pytest.fixture(scope="module")
def compile(twins: tuple[Row, Row]) -> Row:
    return twins[0]


@pytest.fixture(scope="module")
def keyring(deployment: Deployment) -> Row:
    """The public keys, as anybody gets them."""
    response = httpx.get(f"{deployment.url}/.well-known/kolm-keys.json")
    assert response.status_code == 200
    found: Row = response.json()
    return found


@pytest.fixture(scope="module")
def kolm(customer: Customer, compile: Row) -> bytes:
    return customer.download(compile["artifact"])


def test_every_step_succeeds_once_and_in_order(customer: Customer, compile: Row) -> None:
    steps = customer.get(f"/v1/compiles/{compile['id']}/steps")["data"]
    assert [step["name"] for step in steps] == list(STEPS)
    assert {step["status"] for step in steps} == {"succeeded"}
    ended = [step["ended_at"] for step in steps]
    assert ended == sorted(ended)
    assert compile["started_at"] <= steps[0]["started_at"] <= ended[-1] <= compile["ended_at"]


def test_each_slice_keeps_k_of_n(customer: Customer, compile: Row) -> None:
    slices = customer.get(f"/v1/compiles/{compile['id']}/slices")["data"]
    assert [part["name"] for part in slices] == [part["name"] for part in SPEC["slices"]]
    for part in slices:
        assert part["k_requested"] == default_k_select(N_CANDIDATES)
        assert 1 <= part["k_actual"] <= part["k_requested"]
        assert part["n_generated"] >= N_CANDIDATES
        assert part["signal"] == "logprob"
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
        assert sum(row["votes"].values()) <= SPEC["sampling"]["label_samples"]


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
    facts = facts_of(deployment, compile["id"])
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


def facts_of(deployment: Deployment, compile_id: str) -> list[Row]:
    query = "SELECT * FROM usage_usagefact WHERE compile_id = %s"
    return deployment.rows(query, decode_id(Prefix.COMPILE, compile_id))


def test_no_step_costs_more_than_the_estimates_high_bound(customer: Customer, compile: Row) -> None:
    estimate = compile["estimate"]
    assert estimate["total"]["low_microusd"] <= estimate["total"]["expected_microusd"]
    assert compile["spent_microusd"] <= estimate["total"]["high_microusd"]
    for step in customer.get(f"/v1/compiles/{compile['id']}/steps")["data"]:
        assert step["spent_microusd"] <= step["estimate"]["high_microusd"], step["name"]
    asked = customer.api.post("/v1/compiles/estimate", json=SPEC).json()
    assert asked["within_budget"] is True
    assert asked["total"] == estimate["total"]


def test_the_rejects_of_every_slice_are_kept_as_drafts(
    deployment: Deployment, customer: Customer, compile: Row
) -> None:
    dropped = pages(customer, f"/v1/compiles/{compile['id']}/candidates", state="dropped")
    query = "SELECT * FROM drafts_draft WHERE compile_id = %s"
    drafts = deployment.rows(query, decode_id(Prefix.COMPILE, compile["id"]))
    valid = [row for row in pages(customer, f"/v1/compiles/{compile['id']}/candidates") if row["state"] != "rejected"]
    slices = customer.get(f"/v1/compiles/{compile['id']}/slices")["data"]
    assert len(drafts) == len(dropped) == len(valid) - sum(part["k_actual"] for part in slices)
    by_id = {row["id"]: row for row in dropped}
    for draft in drafts:
        row = by_id[encode_id(Prefix.CANDIDATE, draft["candidate_id"])]
        assert (draft["text"], draft["slice_name"]) == (row["text"], row["slice"])
        assert (draft["score"], draft["logprob"]) == (row["score"], row["logprob"])
        assert draft["n_tokens"] == row["n_tokens"] > 0
        assert draft["cost_microusd"] == row["cost_microusd"]
        assert len(bytes(draft["token_logprobs"])) == 2 * draft["n_tokens"]
        assert draft["slice_embedding"]
        assert draft["tenant_id"] == customer.tenant_id


def test_the_download_is_trusted_with_our_keyring_and_nobody_elses(kolm: bytes, keyring: Row, tmp_path: Path) -> None:
    verdict = kolm_verify.verify(kolm, keyring)
    assert (verdict.exit_code, verdict.reasons) == (0, ())
    assert kolm_verify.verify(kolm, None).exit_code == 3
    assert kolm_verify.verify(kolm, {"keys": []}).exit_code == 3
    file, ours, theirs = tmp_path / "a.kolm", tmp_path / "ours.json", tmp_path / "theirs.json"
    file.write_bytes(kolm)
    ours.write_text(json.dumps(keyring))
    theirs.write_text('{"keys": []}')
    assert run_verifier(file, ours) == 0
    assert run_verifier(file, theirs) == 3
    altered = bytearray(kolm)
    altered[len(altered) // 2] ^= 1
    file.write_bytes(bytes(altered))
    assert run_verifier(file, ours) == 1
    file.write_bytes(b"not a kolm at all")
    assert run_verifier(file, ours) == 2


def run_verifier(file: Path, keyring: Path) -> int:
    """The single file alone, as a stranger runs it: isolated from this repository's packages."""
    script = ROOT / "backend" / "domain" / "kolm_verify.py"
    command = [sys.executable, "-I", str(script), str(file), "--keyring", str(keyring)]
    return subprocess.run(command, capture_output=True, cwd=file.parent, timeout=30).returncode


def test_the_artifact_tells_what_the_compile_tells(customer: Customer, compile: Row, kolm: bytes, keyring: Row) -> None:
    artifact = customer.get(f"/v1/artifacts/{compile['artifact']}")
    opened = kolm_verify.load_verified(kolm, keyring)
    assert artifact["compile"] == opened.manifest["compile"] == compile["id"]
    assert artifact["k_score_ppm"] == opened.manifest["k_score_ppm"] == compile["k_score_ppm"]
    assert artifact["manifest"] == opened.manifest
    assert artifact["size_bytes"] == len(kolm)
    assert json.loads(opened.members["labels.json"]) == list(LABELS)
    assert json.loads(opened.members["gate.json"]) == compile["gate"]
    # packaging's own receipt names the file and cannot lie inside it
    assert [row["predicate"]["step"] for row in opened.receipts] == list(STEPS)[:-1]
    assert artifact["id"] in [row["id"] for row in customer.get("/v1/artifacts", name="street")["data"]]
    said = customer.api.post(f"/v1/artifacts/{artifact['id']}/verify").json()
    assert (said["verdict"], said["exit_code"]) == ("trusted", 0)


def test_the_artifact_answers_with_label_confidence_and_latency(customer: Customer, compile: Row) -> None:
    inputs = ["please give me my money back for the broken lamp", "How many days do I have to return a jacket?"]
    response = customer.api.post(f"/v1/artifacts/{compile['artifact']}/run", json={"inputs": inputs})
    assert response.status_code == 200, response.text
    body = response.json()
    assert [row["label"] for row in body["outputs"]] == ["refund_request", "refund_policy"]
    for row in body["outputs"]:
        assert 1 / len(LABELS) <= row["confidence"] <= 1
        assert row["latency_us"] > 0
    again = customer.api.post(f"/v1/artifacts/{compile['artifact']}/run", json={"inputs": inputs}).json()
    assert again["load_ms"] == 0
    assert [row["label"] for row in again["outputs"]] == [row["label"] for row in body["outputs"]]


def test_what_has_not_changed_is_not_sent_again(customer: Customer, compile: Row) -> None:
    for path in (f"/v1/compiles/{compile['id']}", f"/v1/artifacts/{compile['artifact']}/download"):
        etag = customer.api.get(path).headers["etag"]
        again = customer.api.get(path, headers={"If-None-Match": etag})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == etag
        assert customer.api.get(path, headers={"If-None-Match": '"another"'}).status_code == 200


def test_a_post_that_is_sent_again_starts_nothing(customer: Customer, compile: Row) -> None:
    again = customer.api.post("/v1/compiles", json=SPEC, headers={"Idempotency-Key": KEY})
    assert (again.status_code, again.json()["id"]) == (202, compile["id"])
    assert again.headers["idempotent-replayed"] == "true"
    assert again.headers["location"] == f"/v1/compiles/{compile['id']}"
    other = customer.api.post("/v1/compiles", json=small_spec("other"), headers={"Idempotency-Key": KEY})
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reuse")
    assert len(pages(customer, "/v1/compiles", name="street")) == 2


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


def test_the_same_spec_twice_gives_the_same_adapter_and_members(
    customer: Customer, twins: tuple[Row, Row], kolm: bytes, keyring: Row
) -> None:
    a, b = (kolm_verify.load_verified(data, keyring) for data in (kolm, customer.download(twins[1]["artifact"])))
    assert list(a.members) == list(b.members)
    assert a.members["adapter.safetensors"] == b.members["adapter.safetensors"]
    surprises = [
        f"{name}{pointer}"
        for name in a.members
        for pointer in differences(opened(name, a.members[name]), opened(name, b.members[name]))
        if not re.fullmatch(allowed(name), pointer)
    ]
    assert surprises == []
    versions = [customer.get(f"/v1/artifacts/{row['artifact']}")["version"] for row in twins]
    assert sorted(versions) == [1, 2]


def allowed(name: str) -> str:
    own = MAY_DIFFER.get(name, "")
    return f"{MAY_DIFFER['receipts']}|{own}" if name.startswith("receipts/") else own


def opened(name: str, data: bytes) -> Any:
    """A member as a value; a receipt as the statement that it carries."""
    if not name.endswith(".json"):
        return data
    value = json.loads(data)
    return json.loads(base64.b64decode(value["payload"])) if name.startswith("receipts/") else value


def differences(a: Any, b: Any, pointer: str = "") -> Iterator[str]:
    """JSON pointers of what is not the same in both."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted({*a, *b}):
            yield from differences(a.get(key), b.get(key), f"{pointer}/{key}")
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for i, (left, right) in enumerate(zip(a, b, strict=True)):
            yield from differences(left, right, f"{pointer}/{i}")
    elif a != b:
        yield pointer
