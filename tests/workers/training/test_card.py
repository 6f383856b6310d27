"""The quality card of a compile: its teacher's price is what its calls were billed, and everybody reads the same."""

import json
from typing import Any

import pytest

from backend.artifacts.models import Artifact, Receipt
from backend.artifacts.shapes import ArtifactShape
from backend.blobs import get_blob, put_jsonl
from backend.compiles.models import Compile, StepRun, TeacherCall
from backend.compiles.shapes import CompileShape
from backend.compiles.states import CallState
from backend.domain.artifact.kolm_verify import read_kolm
from backend.domain.artifact.receipts import payload_of
from backend.domain.canonical import canonical_json
from backend.domain.lifecycle import CompileStatus, StepName
from backend.tenants.isolation import tenant_scope
from tests.compile_factories import LABELS, fresh
from tests.workers.answer_helpers import EASY, TEXTS, advance, at_distillation, json_answer, json_spec, right, trial
from tests.workers.pipeline_helpers import ScriptedTeacher, taught_by
from tests.workers.training.test_alternatives import FROZEN, evaluated, label, label_compile, wrong

pytestmark = pytest.mark.usefixtures("committed_db")
TIMES = {"own_ns": [5_000_000] * 12, "own_reference_ns": 4_000_000, "own_clock": "cpu"}
HEAD = {"head_own_ns": [4_000_000] * 10, "head_reference_ns": 4_000_000}


def card_of(row: Compile) -> dict[str, Any]:
    return shown(row)["card"]


def shown(row: Compile) -> dict[str, Any]:
    current = fresh(row)
    with tenant_scope(row.tenant_id):
        return CompileShape.of(current)


def rows_of(row: Compile) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in card_of(row)["rows"]}


def labeled_by_call(row: Compile, *, n: int, cost: int, output_tokens: int) -> None:
    """One labeling call in the journal, answered and billed."""
    with tenant_scope(row.tenant_id):
        TeacherCall.objects.create(
            tenant_id=row.tenant_id,
            compile=row,
            step=StepName.LABELING,
            key="labeling:x",
            fence=1,
            model="kolm-grammar-1",
            request_sha256="0" * 64,
            n=n,
            reserved_microusd=cost,
            state=CallState.APPLIED,
            cost_microusd=cost,
            output_tokens=output_tokens,
            choices=[{"text": LABELS[0]}] * n,
        )


def test_the_card_has_what_was_measured_and_billed_and_artifact_api_and_receipt_have_the_same(monkeypatch):
    taught_by(monkeypatch, ScriptedTeacher(label=lambda text: [label(text)]))
    row = label_compile(evaluation={"teacher_rows": 10})
    evaluated(row, wrong(2), **TIMES, **HEAD)
    assert fresh(row).status == CompileStatus.SUCCEEDED, row.failure_message
    card, rows = card_of(row), rows_of(row)
    with tenant_scope(row.tenant_id):
        paid = [call.cost_microusd for call in TeacherCall.objects.filter(compile=row, key__startswith="beside:")]
        artifact = Artifact.objects.get(compile_id=row.id)
        statements = [payload_of(one.envelope) for one in Receipt.objects.filter(compile_id=row.id, step="gate")]
    assert (card["teacher_basis"], card["n_teacher_calls"]) == ("held_out_calls", 10)
    assert rows["teacher"]["per_1000_microusd"] == sum(paid) * 1000 // 10 > 0
    # 5 ms of a runner at 150 micro-USD a second
    assert (rows["student"]["answer_us"], rows["student"]["per_1000_microusd"]) == (5_000, 750)
    assert (rows[FROZEN]["answer_us"], rows[FROZEN]["per_1000_microusd"]) == (4_000, 600)
    assert card["compile_microusd"] == row.spent_microusd
    student = rows["student"]
    figures = row.evaluation
    assert (student["accuracy_ppm"], student["low_ppm"]) == (figures["accuracy_ppm"], figures["accuracy_low_ppm"])
    members = read_kolm(get_blob(row.tenant_id, artifact.sha256)).members
    assert members["card.json"] == canonical_json(card)
    assert b'"break_even"' not in members["evals.json"]
    assert ArtifactShape.of(artifact)["card"] == card
    assert canonical_json(card) in statements[0]
    assert "card" not in shown(row)["evaluation"]


def test_where_no_held_out_input_was_asked_the_labeling_calls_say_what_one_answer_costs():
    row = label_compile()
    labeled_by_call(row, n=5, cost=60, output_tokens=50)
    evaluated(row, wrong(0), **TIMES)
    card = card_of(row)
    # the grammar teacher's output is 0.40 dollars a million tokens: 40 of the 50 tokens are of the other four answers
    assert rows_of(row)["teacher"]["per_1000_microusd"] == 60_000 - 40 * 400
    assert (card["teacher_basis"], rows_of(row)["teacher"]["accuracy_ppm"]) == ("labeling_calls", None)
    runner, home = card["break_even"]
    assert runner["calls"] == -(-row.spent_microusd * 1000 // (44_000 - 750))
    assert home["calls"] == -(-row.spent_microusd * 1000 // 44_000)


def test_a_teacher_that_was_never_asked_leaves_the_break_even_open():
    row = label_compile()
    evaluated(row, wrong(0))
    assert [one["why_not"] for one in card_of(row)["break_even"]] == ["teacher_not_asked"] * 2
    assert "teacher" not in rows_of(row)
    assert rows_of(row)[FROZEN]["answer_us"] is None


def test_labels_that_were_bought_at_random_are_a_baseline_of_their_own():
    row = label_compile()
    pairs = [{"input": f"at random {i}", "label": LABELS[i % 2], "bought_for": "random"} for i in range(8)]
    pairs.append({"input": TEXTS[0], "label": LABELS[0]})  # a held-out input trains nothing
    with tenant_scope(row.tenant_id):
        done = StepRun.objects.get(compile=row, name=StepName.LABELING)
        done.output["digests"]["random_labels"] = put_jsonl(row.tenant_id, pairs)
        done.save()
    asked = evaluated(row, wrong(3), random_predictions=wrong(1))
    assert asked["random_sha256"]
    fair = next(one for one in fresh(row).evaluation["alternatives"] if one["name"] == "frozen_encoder_random_labels")
    assert (fair["n_trained"], fair["n"], fair["is_held_to"]) == (8, len(TEXTS), True)
    assert rows_of(row)["frozen_encoder_random_labels"]["n_trained"] == 8


def test_without_random_labels_the_job_is_one_that_the_release_before_reads():
    assert "random_sha256" not in evaluated(label_compile(), wrong(0))


def test_a_json_task_has_a_card(monkeypatch):
    taught_by(monkeypatch, ScriptedTeacher(label=lambda text: [json_answer(text)]))
    row = at_distillation(json_answer, **json_spec(gate=EASY, evaluation={"teacher_rows": 24}))
    trial(row, right(24))
    advance(row)
    assert fresh(row).status == CompileStatus.SUCCEEDED
    card = card_of(row)
    assert (card["task_type"], card["accuracy_kind"]) == ("json", row.spec["output"]["accuracy"])
    assert [one["name"] for one in card["rows"]] == ["student", "teacher", "base_constrained", "common_answer"]
    assert card["break_even"][1]["calls"] > 0


def test_a_task_that_abstains_is_unsure_below_a_threshold_of_pairs_that_were_held_back():
    labels = [{"name": name} for name in LABELS]
    row = label_compile(output={"type": "label", "labels": labels, "abstain": {"accuracy": 0.9}})
    held = {"held_confidences_ppm": [800_000] * 60 + [600_000] * 20, "held_right": [True] * 60 + [True, False] * 10}
    sure, unsure = len(TEXTS) - 3, 3
    confidences = [0.9] * sure + [0.5] * unsure
    evaluated(row, wrong(1), confidences=confidences, trained=held | {"n_pairs": 200})
    assert fresh(row).status == CompileStatus.SUCCEEDED, row.failure_message
    sure_answers = shown(row)["evaluation"]["abstain"]
    assert (sure_answers["threshold_ppm"], sure_answers["target_ppm"], sure_answers["basis"]) == (
        800_000,
        900_000,
        "bound",
    )
    assert (sure_answers["n"], sure_answers["n_sure"], sure_answers["correct"]) == (len(TEXTS), sure, sure - 1)
    assert card_of(row)["sure"] == sure_answers
    error = row.evaluation["calibration"]
    assert error["n"] == len(TEXTS)
    assert 0 <= error["ece_ppm"] <= error["ece_plain_ppm"]
    with tenant_scope(row.tenant_id):
        artifact = Artifact.objects.get(compile_id=row.id)
    members = read_kolm(get_blob(row.tenant_id, artifact.sha256)).members
    assert json.loads(members["calibration.json"])["abstain_ppm"] == 800_000


def test_a_task_that_does_not_abstain_has_no_threshold_and_its_calibration_error_all_the_same():
    row = label_compile()
    evaluated(row, wrong(0))
    assert "abstain" not in fresh(row).evaluation
    assert card_of(row)["sure"] is None
    assert row.evaluation["calibration"]["ece_floor_ppm"] > 0
