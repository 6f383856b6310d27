"""A json task that is extraction walks the whole street as a span student: compiled, verified, asked, run offline."""

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from backend.domain.answers.json_schemas import validator
from backend.domain.answers.json_values import parse_answer
from backend.domain.artifact import kolm_verify
from backend.domain.lifecycle import STEPS
from deploy.embedded.home import ROOT
from tests.acceptance.books import check_books
from tests.acceptance.deployment import Customer, Deployment, Row, eventually
from tests.acceptance.json_specs import small_mails

pytestmark = pytest.mark.timeout(400)
SCHEMA = small_mails("x")["output"]["schema"]
MAIL = "Please cancel order AB-20417, the two desk lamps came twice."


@pytest.fixture(scope="module")
def mails(customer: Customer) -> Row:
    return customer.succeeded(customer.compile(small_mails("mails")), within_s=300)


def test_the_pairs_decide_that_it_is_an_extraction_and_the_receipt_says_how(customer: Customer, mails: Row) -> None:
    steps = customer.get(f"/v1/compiles/{mails['id']}/steps")["data"]
    assert [step["status"] for step in steps] == ["succeeded"] * len(STEPS)
    plan = mails["evaluation"]["extraction"]
    assert plan["is_extraction"] is True
    assert plan["share_ppm"] >= 900_000
    ways = {leaf["path"]: (leaf["way"], leaf["converters"]) for leaf in plan["leaves"]}
    assert ways["/action"] == ("closed", [])
    assert ways["/orders/*/quantity"] == ("copied", ["number"])
    facts = {}
    for row in customer.get(f"/v1/compiles/{mails['id']}/receipts")["data"]:
        facts[row["step"]] = json.loads(base64.b64decode(row["envelope"]["payload"]))["predicate"]["facts"]
    assert facts["labeling"]["extraction"] == plan
    assert [trial["kind"] for trial in facts["evaluation"]["trials"]] == ["spans"]


def test_every_step_is_paid_within_its_estimate(deployment: Deployment, customer: Customer, mails: Row) -> None:
    for step in customer.get(f"/v1/compiles/{mails['id']}/steps")["data"]:
        assert step["spent_microusd"] <= step["estimate"]["high_microusd"], step["name"]
    check_books(deployment, customer, mails)


def test_it_is_measured_beside_the_same_heads_on_the_frozen_encoder(mails: Row) -> None:
    figures = mails["evaluation"]
    assert figures["validity_ppm"] == 1_000_000
    assert [row["name"] for row in figures["baselines"]] == ["frozen_encoder_spans"]
    assert {"common_answer", "frozen_encoder_spans"} <= {row["name"] for row in figures["alternatives"]}
    assert "recipes" not in figures


def test_the_held_out_answers_show_what_was_read_and_where(customer: Customer, mails: Row) -> None:
    rows = customer.get(f"/v1/compiles/{mails['id']}/answers", limit=20)["data"]
    assert rows
    spans = [(row["input"], one) for row in rows for one in row["spans"] if one["start"] is not None]
    assert spans
    for text, one in spans:
        assert 0 <= one["start"] <= one["end"] <= len(text)


def test_the_artifact_answers_with_json_that_fits_and_its_spans(customer: Customer, mails: Row) -> None:
    def run() -> Row | None:
        answer = customer.api.post(f"/v1/artifacts/{mails['artifact']}/run", json={"inputs": [MAIL, "?"]})
        assert answer.status_code in {200, 503}, answer.text  # 503 while the runner loads the model
        return dict(answer.json()) if answer.status_code == 200 else None

    outputs = eventually(run, within_s=100)["outputs"]
    assert len(outputs) == 2
    for row in outputs:
        assert validator(SCHEMA)(parse_answer(row["output"])) == []
        assert 0 <= row["confidence"] <= 1
    for one in outputs[0]["fields"]:
        if one["start"] is not None:
            assert MAIL[one["start"] : one["end"]].strip()


def test_the_file_is_trusted_and_runs_offline_with_the_same_answer(
    customer: Customer, mails: Row, keyring: Row, tmp_path: Path
) -> None:
    data = customer.download(mails["artifact"])
    kolm = kolm_verify.load_verified(data, keyring)
    assert kolm.manifest["task_type"] == "json"
    assert {"extraction.json", "calibration.json", "adapter.safetensors"} <= kolm.members.keys()
    assert not {"labels.json", "prompt.json"} & kolm.members.keys()
    file, keys = tmp_path / "mails.kolm", tmp_path / "keys.json"
    file.write_bytes(data)
    keys.write_text(json.dumps(keyring))
    command = [sys.executable, "-m", "gpu_runners.cli", "run", str(file), MAIL, "--json", "--keyring", str(keys)]
    made = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, check=True)
    offline = json.loads(made.stdout)
    served = customer.api.post(f"/v1/artifacts/{mails['artifact']}/run", json={"inputs": [MAIL]}).json()["outputs"][0]
    assert offline["output"] == served["output"]
    assert [_place(one) for one in offline["fields"]] == [_place(one) for one in served["fields"]]
    for here, there in zip(offline["fields"], served["fields"], strict=True):  # a lone text and a server: two engines
        assert here["confidence_ppm"] == pytest.approx(there["confidence_ppm"], abs=100)


def test_a_task_that_is_no_extraction_says_so_before_anything_is_spent(customer: Customer) -> None:
    spec = small_mails("summaries", train={"kind": "spans"})
    spec["output"] = {
        "type": "json",
        "schema": {"type": "object", "properties": {"gist": {"type": "string"}}, "required": ["gist"]},
    }
    inline = [{"input": row["input"], "output": {"gist": f"mail no. {n}"}} for n, row in enumerate(_gold(spec))]
    spec["examples"] = {"holdout": 0.5, "inline": inline}
    ended = customer.ended(customer.compile(spec), within_s=60)
    assert (ended["status"], ended["failure"]["code"]) == ("failed", "preflight_failed")
    line = next(line for line in ended["preflight"]["lines"] if line["check"] == "student")
    assert (line["status"], line["code"]) == ("failed", "not_extractable")
    assert "/gist" in line["sentence"]
    assert ended["spent_microusd"] == 0


def _place(one: Row) -> tuple[str, int | None, int | None]:
    return one["path"], one["start"], one["end"]


def _gold(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return list(spec["examples"]["inline"])
