"""What a compile publishes: a file that verifies offline, answers through a runner, and is the same when the same spec
is compiled again."""

import base64
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backend.domain.artifact import kolm_verify
from backend.domain.lifecycle import STEPS
from deploy.embedded.home import ROOT
from tests.acceptance.deployment import Customer, Row
from tests.acceptance.specs import LABELS

pytestmark = pytest.mark.timeout(240)

# What two compiles of one spec may differ in, as JSON pointers: who they are, when they ran, how fast this machine was
# (and what its seconds cost), and the digests of those. Everything else is byte for byte the same.
# what follows from times: of a K-score its speed and cost, and their sum
TIMED = "(p50_us|own_us|measured_ns|reference_ns|latency_ppm|cost_nanousd|cost_ppm|composite_ppm)"
# of a quality card: times, prices of a runner's time, and what the compile's seconds cost
CARD = r"(compile_microusd|rows/\d+/(answer_us|per_1000_microusd)|break_even/\d+/(calls|per_1000_microusd))"
MAY_DIFFER = {
    "card.json": rf"/{CARD}",
    "manifest.json": r"/(compile|created_at|receipt_head|k_score_ppm)|/members/\d+/(sha256|size)",
    "signatures.json": r"/payload|/signatures/0/sig",
    "evals.json": r"/latency_us_(p50|p95)|/own/(own_us|measured_ns|reference_ns)"
    r"|/trials/0/(k_score_ppm|cost_microusd|evals)",
    "k_score.json": rf"/{TIMED}",
    "gate.json": r"/floors/5/(measured|message)|/k_score_ppm",
    "provenance.json": r"/steps/(evaluation/evals|gate/(gate|k_score))",
    "receipts": r"/predicate/(compile|prev|started_at|ended_at)",
    "receipts/05-distillation.dsse.json": r"/predicate/(cost_microusd|facts/(job|runner_ms))",
    "receipts/06-evaluation.dsse.json": r"/predicate/(cost_microusd|facts/latency_us_(p50|p95))"
    r"|/predicate/facts/own/(own_us|measured_ns|reference_ns)"
    r"|/predicate/facts/trials/0/(k_score_ppm|cost_microusd|evals)"
    r"|(/subject|/predicate/outputs)/0/digest/sha256",
    "receipts/07-gate.dsse.json": r"/predicate/facts/(gate/k_score_ppm|gate/floors/5/(measured|message))"
    rf"|/predicate/facts/k_score/{TIMED}|/predicate/facts/card/{CARD}"
    r"|(/subject|/predicate/inputs|/predicate/outputs)/[01]/digest/sha256",
}


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
    script = ROOT / "backend" / "domain" / "artifact" / "kolm_verify.py"
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


def test_the_file_tells_how_its_candidates_were_selected_as_the_api_does(
    customer: Customer, compile: Row, kolm: bytes, keyring: Row
) -> None:
    told = json.loads(kolm_verify.load_verified(kolm, keyring).members["training_stats.json"])["k_sampling"]
    slices = customer.get(f"/v1/compiles/{compile['id']}/slices")["data"]
    events = {e["data"]["slice"]: e["data"] for e in customer.events(compile["id"]) if e["type"] == "selection.report"}
    assert set(events) == {part["name"] for part in slices}
    for part, entry in zip(slices, told["slices"], strict=True):
        report, event = part["selection"], events[part["name"]]
        assert entry["slice"] == part["name"]
        assert entry["picks"] == report["picks"]
        assert len(entry["picks"]) == entry["k_actual"] == part["k_actual"] == event["k_actual"]
        for name in ("severity", "k_natural", "n_groups", "min_inter_cluster_ppm", "mitigation", "resynth_rounds"):
            assert entry[name] == event[name], name
        assert report["log"] == event["log"]
        assert report["log"] in told["log"]
    labeled = told["labels"]["selection"]
    assert labeled["k_actual"] == told["labels"]["n_synthetic_pairs"]
    assert told["teacher"]["calls"] > 0
    assert told["draft_cache"]["lookups"] == 0


def test_the_artifact_answers_with_label_confidence_and_latency(customer: Customer, compile: Row) -> None:
    inputs = ["please give me my money back for the broken lamp", "How many days do I have to return a jacket?"]
    response = customer.api.post(f"/v1/artifacts/{compile['artifact']}/run", json={"inputs": inputs})
    assert response.status_code == 200, response.text
    body = response.json()
    assert [row["label"] for row in body["outputs"]] == ["refund_request", "refund_policy"]
    for row in body["outputs"]:
        assert 1 / len(LABELS) <= row["confidence"] <= 1
        assert row["latency_us"] > 0
    own_ms = max(1, round(sum(row["latency_us"] for row in body["outputs"]) / 1000))
    assert body["cost_microusd"] <= own_ms * 150 // 1000  # the load that came first is on no bill
    again = customer.api.post(f"/v1/artifacts/{compile['artifact']}/run", json={"inputs": inputs}).json()
    assert again["load_ms"] == 0
    assert [row["label"] for row in again["outputs"]] == [row["label"] for row in body["outputs"]]


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
