"""A json task walks the whole street on the tiny base: compiled, verified, asked."""

import base64
import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from backend.domain.answers.json_schemas import validator
from backend.domain.answers.json_values import parse_answer
from backend.domain.artifact import kolm_verify
from backend.domain.canonical import sha256_hex
from backend.domain.lifecycle import STEPS
from backend.domain.recipes.pack import read_pack
from deploy.embedded.home import ROOT
from tests.acceptance.books import check_books
from tests.acceptance.deployment import Customer, Deployment, Row, eventually
from tests.acceptance.json_specs import N_GOLD, small_orders
from tests.acceptance.test_street import pages
from tests.tiny_bases import TINY

pytestmark = pytest.mark.timeout(600)
SCHEMA = small_orders("orders")["output"]["schema"]
MAIL = "Please cancel my order AB-20417, I ordered the desk lamp twice by mistake."


def test_every_step_succeeds_and_is_paid(deployment: Deployment, customer: Customer, orders: Row) -> None:
    steps = customer.get(f"/v1/compiles/{orders['id']}/steps")["data"]
    assert [(step["name"], step["status"]) for step in steps] == [(name, "succeeded") for name in STEPS]
    spent = {step["name"]: step["spent_microusd"] for step in steps}
    assert min(spent[name] for name in ("synthesis", "labeling", "distillation", "evaluation")) > 0
    for step in steps:
        assert step["spent_microusd"] <= step["estimate"]["high_microusd"], step["name"]
    check_books(deployment, customer, orders)


def test_what_trains_fits_the_schema_and_was_agreed_on(customer: Customer, orders: Row) -> None:
    kept = pages(customer, f"/v1/compiles/{orders['id']}/candidates", limit=100, state="trained")
    assert kept
    for row in kept:
        value = parse_answer(row["answer"])
        assert validator(SCHEMA)(value) == []
        assert (row["label"], row["reasons"]) == (None, [])
        assert row["agreement_ppm"] >= 600_000
        assert value["order_number"] is None or value["order_number"].lower() in row["text"].lower()
        assert json.dumps(value, ensure_ascii=False, separators=(", ", ": ")) == row["answer"]


def test_the_evaluation_is_by_field_on_held_out_gold_beside_the_bare_base(orders: Row) -> None:
    found = orders["evaluation"]
    assert (found["n"], found["accuracy_kind"]) == (N_GOLD // 2, "field_f1")
    assert {row["field"] for row in found["fields"]} <= {f"/{name}" for name in SCHEMA["properties"]}
    assert [row["name"] for row in found["baselines"]] == ["base_constrained"]
    assert found["leakage"]["n_exact"] == 0
    assert orders["gate"]["passed"] is True


def test_the_pack_is_measured_shipped_and_on_the_receipt(customer: Customer, orders: Row) -> None:
    told = orders["evaluation"]["recipes"]
    assert "why_not" not in told
    assert told["measured"][0]["sources"] == []
    assert told["sources"] == told["measured"][told["chosen"]]["sources"]
    assert told["n_identical"] == told["measured"][0]["n_prompts"] > 0
    with zipfile.ZipFile(io.BytesIO(customer.download(orders["artifact"]))) as archive:
        data = archive.read("recipes.json")
        receipt = json.loads(archive.read("receipts/06-evaluation.dsse.json"))
    pack = read_pack(data)
    assert sha256_hex(data) == told["pack_sha256"]
    assert len(pack.recipes) == told["n_recipes"] > 0
    signed = json.loads(base64.b64decode(receipt["payload"]))["predicate"]["facts"]["recipes"]
    assert (signed["pack_sha256"], signed["reason"]) == (told["pack_sha256"], told["reason"])


def test_the_file_is_trusted_and_says_what_it_is(customer: Customer, orders: Row, keyring: Row, tmp_path: Path) -> None:
    data = customer.download(orders["artifact"])
    kolm = kolm_verify.load_verified(data, keyring)
    assert (kolm.manifest["task_type"], kolm.manifest["base"]["id"]) == ("json", TINY)
    assert {"prompt.json", "adapter.safetensors"} <= kolm.members.keys()
    assert not {"labels.json", "calibration.json"} & kolm.members.keys()
    file, keys = tmp_path / "orders.kolm", tmp_path / "keys.json"
    file.write_bytes(data)
    keys.write_text(json.dumps(keyring))
    script = str(ROOT / "backend" / "domain" / "artifact" / "kolm_verify.py")
    command = [sys.executable, "-I", script, str(file), "--keyring", str(keys)]
    assert subprocess.run(command, capture_output=True, timeout=30).returncode == 0


def test_the_artifact_answers_with_json_that_fits(customer: Customer, orders: Row) -> None:
    def run() -> Row | None:
        said = customer.api.post(f"/v1/artifacts/{orders['artifact']}/run", json={"inputs": [MAIL, "where is it"]})
        assert said.status_code in {200, 503}, said.text  # 503 while the runner loads the model
        answer: Row = said.json()
        return answer if said.status_code == 200 else None

    outputs = eventually(run, within_s=100)["outputs"]
    assert len(outputs) == 2
    for row in outputs:
        assert set(row) == {"output", "finish_reason", "n_tokens", "latency_us"}
        assert row["finish_reason"] == "stop"
        assert validator(SCHEMA)(parse_answer(row["output"])) == []
