"""A json task with `train.kind: auto` walks the whole street: a span student, a causal base and rules compete, the
better of the two ships with the rules before it, and everybody is told who competed."""

import base64
import io
import json
import zipfile
from pathlib import Path

import pytest

from backend.domain.lifecycle import STEPS
from gpu_runners.cli.main import main
from tests.acceptance.books import check_books
from tests.acceptance.deployment import Customer, Deployment, Row, eventually
from tests.acceptance.json_specs import small_choice
from tests.tiny_bases import TINY

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]
MAIL = "Please cancel order AB-20417, the two desk lamps came twice."
FILES = {"spans": {"extraction.json", "calibration.json"}, "causal": {"prompt.json"}}


@pytest.fixture(scope="module")
def chosen(tiny_bases: Path, customer: Customer) -> Row:
    return customer.succeeded(customer.compile(small_choice("auto-choice")), within_s=420)


def facts_of(customer: Customer, compile: Row) -> dict[str, Row]:
    """The facts of each step's signed receipt."""
    facts = {}
    for row in customer.get(f"/v1/compiles/{compile['id']}/receipts")["data"]:
        facts[row["step"]] = json.loads(base64.b64decode(row["envelope"]["payload"]))["predicate"]["facts"]
    return facts


def test_both_kinds_are_trained_and_every_step_is_paid_within_its_estimate(
    deployment: Deployment, customer: Customer, chosen: Row
) -> None:
    steps = customer.get(f"/v1/compiles/{chosen['id']}/steps")["data"]
    assert [(step["name"], step["status"]) for step in steps] == [(name, "succeeded") for name in STEPS]
    for step in steps:
        assert step["spent_microusd"] <= step["estimate"]["high_microusd"], step["name"]
    assert 0 < chosen["spent_microusd"] <= chosen["budget_microusd"]
    check_books(deployment, customer, chosen)


def test_the_receipt_and_the_api_name_who_competed_with_their_k_scores(customer: Customer, chosen: Row) -> None:
    signed = facts_of(customer, chosen)["evaluation"]
    trials = chosen["evaluation"]["trials"]
    assert [(one["kind"], one["why"]) for one in trials] == [("spans", "first"), ("causal", "auto")]
    assert trials == signed["trials"]
    assert all(0 < one["k_score_ppm"] < 1_000_000 and one["cost_microusd"] > 0 for one in trials)
    assert chosen["evaluation"]["chosen"] == signed["chosen"]


def test_the_better_one_ships(customer: Customer, chosen: Row) -> None:
    trials = chosen["evaluation"]["trials"]
    kept = trials[chosen["evaluation"]["chosen"]]
    assert kept == max(trials, key=lambda one: (one["passed"], one["k_score_ppm"]))
    has_pack = "pack_sha256" in chosen["evaluation"].get("recipes", {})
    assert has_pack or chosen["k_score_ppm"] == kept["k_score_ppm"], "a trial's score is that of the model alone"
    assert not (has_pack and kept["kind"] == "spans")
    with zipfile.ZipFile(io.BytesIO(customer.download(chosen["artifact"]))) as archive:
        names = set(archive.namelist())
        manifest = json.loads(archive.read("manifest.json"))
    other = "causal" if kept["kind"] == "spans" else "spans"
    assert FILES[kept["kind"]] <= names
    assert not FILES[other] & names
    assert (manifest["base"]["id"] == TINY) == (kept["kind"] == "causal")


def test_rules_compete_as_in_every_compile_and_the_receipt_has_them(customer: Customer, chosen: Row) -> None:
    facts = facts_of(customer, chosen)
    induced = facts["labeling"]["rules"]
    assert (induced["state"], induced["low_ppm"] >= 500_000) == ("kept", True)
    share = facts["evaluation"]["rules"]
    assert share["n_answered"] > 0
    assert share == chosen["evaluation"]["rules"]
    with zipfile.ZipFile(io.BytesIO(customer.download(chosen["artifact"]))) as archive:
        shipped = json.loads(archive.read("rules.json"))
    assert bool(shipped["rules"]) == share["is_used"]


def test_the_artifact_answers_in_one_shape_whoever_answers(customer: Customer, chosen: Row) -> None:
    def run() -> Row | None:
        inputs = [MAIL, "no number, sorry"]
        answer = customer.api.post(f"/v1/artifacts/{chosen['artifact']}/run", json={"inputs": inputs})
        assert answer.status_code in {200, 503}, answer.text  # 503 while the runner loads the model
        return dict(answer.json()) if answer.status_code == 200 else None

    by_rule, other = eventually(run, within_s=100)["outputs"]
    assert [set(json.loads(row["output"])) for row in (by_rule, other)] == [{"order_number"}] * 2
    kept = chosen["evaluation"]["trials"][chosen["evaluation"]["chosen"]]
    assert ("confidence" in other) == (kept["kind"] == "spans"), "a causal student has none"
    assert 0 <= other.get("confidence", 0) <= 1
    assert ("rule" in by_rule, "rule" in other) == (True, False)
    with zipfile.ZipFile(io.BytesIO(customer.download(chosen["artifact"]))) as archive:
        assert by_rule["confidence"] == json.loads(archive.read("rules.json"))["low_ppm"] / 1e6
    (field,) = by_rule["fields"]
    assert json.loads(by_rule["output"])["order_number"] == MAIL[field["start"] : field["end"]]


def test_the_command_line_says_who_competed(
    deployment: Deployment, customer: Customer, chosen: Row, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", chosen["id"], "--api", deployment.url, "--key", customer.key]) == 0
    shown = capsys.readouterr().out
    for nth, one in enumerate(chosen["evaluation"]["trials"]):
        (line,) = (line for line in shown.splitlines() if f"  {one['kind']}, rank {one['rank']}" in line)
        assert line.strip().startswith(f"K {one['k_score_ppm'] / 1e6:.3f}")
        assert line.endswith("  kept") == (nth == chosen["evaluation"]["chosen"])
    assert f"rules answer {chosen['evaluation']['rules']['n_answered']} of 24 held-out inputs" in shown


@pytest.fixture(scope="module")
def causal(tiny_bases: Path, customer: Customer) -> Row:
    """The same task on a causal base alone."""
    spec = small_choice("causal-choice")
    return customer.succeeded(customer.compile(spec | {"train": spec["train"] | {"kind": "causal"}}), within_s=300)


def base_of(customer: Customer, compile: Row) -> str:
    with zipfile.ZipFile(io.BytesIO(customer.download(compile["artifact"]))) as archive:
        return str(json.loads(archive.read("manifest.json"))["base"]["id"])


@pytest.mark.parametrize("first", ["causal", "spans"])
def test_a_deployment_goes_over_from_one_student_to_the_other_by_a_canary(
    customer: Customer, chosen: Row, causal: Row, first: str
) -> None:
    primary, canary = (causal, chosen) if first == "causal" else (chosen, causal)
    name = f"choice-{first}"
    asked = {"name": name, "artifact": primary["artifact"], "canary": {"artifact": canary["artifact"], "share": "0.5"}}
    made = customer.api.post("/v1/deployments", json=asked)
    assert made.status_code == 201, made.text

    def ask(user: str) -> str:
        """Ask what no rule answers; which artifact answered."""
        body = {"model": name, "user": user, "messages": [{"role": "user", "content": "no number, sorry"}]}
        answer = customer.api.post("/v1/chat/completions", json=body, timeout=120)
        assert answer.status_code == 200, answer.text
        assert set(json.loads(answer.json()["choices"][0]["message"]["content"])) == {"order_number"}
        return str(answer.headers["x-kolm-artifact"])

    assert {ask(f"user {n}") for n in range(12)} == {primary["artifact"], canary["artifact"]}
    path = f"/v1/deployments/{made.json()['id']}"
    promoted = customer.api.post(f"{path}/promote", json={}).json()
    bases = {row["id"]: base_of(customer, row) for row in (primary, canary)}
    assert (made.json()["base"]["id"], promoted["base"]["id"]) == (bases[primary["id"]], bases[canary["id"]])
    assert {ask(f"user {n}") for n in range(4)} == {canary["artifact"]}
    assert customer.api.post(f"{path}/rollback", json={}).json()["base"] == made.json()["base"]
    assert {ask(f"user {n}") for n in range(4)} == {primary["artifact"]}
