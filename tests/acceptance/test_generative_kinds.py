"""A text task on the causal base, and a label task that measures both kinds of base and keeps the better one."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from backend.domain.artifact import kolm_verify
from tests.acceptance.books import check_books
from tests.acceptance.deployment import Customer, Deployment, Row
from tests.acceptance.json_specs import small_summaries
from tests.acceptance.specs import LABELS, small_spec
from tests.tiny_bases import TINY

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]
CAUSAL = {"base": TINY, "learning_rate": 0.002, "epochs": 1, "tokens_per_step": 1024, "max_tokens": 512}
ANY_GATE = {"k_min": 0.0, "accuracy_lower": 0.0, "beat_majority": False, "worst_class_recall": 0.0}
MAIL = "Please cancel my order AB-20417, I ordered the desk lamp twice by mistake."


@pytest.fixture(scope="module")
def started(tiny_bases: Path, customer: Customer) -> dict[str, str]:
    """Both compiles, under way at the same time."""
    auto = {"kind": "auto", "epochs": 2, "escalate": False, "causal": CAUSAL}
    # a pack would change the K-score of the kept trial, which is compared with that of the compile
    made = {"sampling": {"n_candidates": 8}, "gate": ANY_GATE, "recipes": {"enabled": False}}
    chosen = small_spec("either-kind", train=auto, **made)
    return {"text": customer.compile(small_summaries("summaries")), "auto": customer.compile(chosen)}


@pytest.fixture(scope="module")
def text(customer: Customer, started: dict[str, str]) -> Row:
    return customer.succeeded(started["text"], within_s=200)


@pytest.fixture(scope="module")
def auto(customer: Customer, started: dict[str, str]) -> Row:
    return customer.succeeded(started["auto"], within_s=200)


def receipt_of(customer: Customer, compile: Row, step: str) -> dict[str, Any]:
    """What a step's signed receipt says."""
    rows = customer.get(f"/v1/compiles/{compile['id']}/receipts")["data"]
    envelope = next(row["envelope"] for row in rows if row["step"] == step)
    predicate: dict[str, Any] = json.loads(base64.b64decode(envelope["payload"]))["predicate"]
    return predicate


def test_a_text_task_is_judged_beside_the_gold_and_its_artifact_answers(
    deployment: Deployment, customer: Customer, text: Row, keyring: Row
) -> None:
    found = text["evaluation"]
    assert (found["n"], found["accuracy_kind"]) == (20, "judge")
    assert found["baselines"] == []  # they would have to be judged too
    check_books(deployment, customer, text)
    kolm = kolm_verify.load_verified(customer.download(text["artifact"]), keyring)
    assert (kolm.manifest["task_type"], kolm.manifest["base"]["id"]) == ("text", TINY)
    said = customer.api.post(f"/v1/artifacts/{text['artifact']}/run", json={"inputs": [MAIL]})
    assert said.status_code == 200, said.text
    (row,) = said.json()["outputs"]
    assert row["output"].strip()
    assert row["n_tokens"] > 1


def test_auto_measures_both_kinds_and_packages_the_better_one(
    deployment: Deployment, customer: Customer, auto: Row, keyring: Row
) -> None:
    facts = receipt_of(customer, auto, "evaluation")["facts"]
    trials, chosen = facts["trials"], facts["chosen"]
    assert [(trial["kind"], trial["why"]) for trial in trials] == [("encoder", "first"), ("causal", "auto")]
    # measured, each on its own: the receipt names the answers that the score was computed from
    assert len({trial["evals"] for trial in trials}) == 2
    assert all(trial["k_score_ppm"] > 0 and trial["accuracy_ppm"] >= 0 for trial in trials)
    assert trials[chosen]["k_score_ppm"] == max(trial["k_score_ppm"] for trial in trials) == auto["k_score_ppm"]
    assert trials[chosen]["accuracy_ppm"] == auto["evaluation"]["accuracy_ppm"]
    kolm = kolm_verify.load_verified(customer.download(auto["artifact"]), keyring)
    assert (kolm.manifest["base"]["id"] == TINY) is (trials[chosen]["kind"] == "causal")
    assert kolm.manifest["k_score_ppm"] == trials[chosen]["k_score_ppm"]
    check_books(deployment, customer, auto)


def test_the_label_artifact_of_either_kind_answers_with_a_label(customer: Customer, auto: Row) -> None:
    said = customer.api.post(f"/v1/artifacts/{auto['artifact']}/run", json={"inputs": ["give me my money back"]})
    assert said.status_code == 200, said.text
    (row,) = said.json()["outputs"]
    assert row.get("label", row.get("output")) in LABELS
