"""What a compile measures beside its model, and what comes of it."""

from typing import Any

import pytest

from backend.blobs import get_jsonl, put_blob, put_jsonl
from backend.compiles.models import Compile, StepRun, TeacherCall
from backend.domain.errors import InvalidSpec
from backend.domain.jobs.runner_jobs import RunnerJobKind
from backend.domain.lifecycle import CompileStatus, StepName
from backend.tenants.isolation import tenant_scope
from backend.usage.models import Billing, UsageFact
from tests.backend.domain.jobs.test_runner_results import DISTILLED, EVALUATED
from tests.compile_factories import LABELS, fresh, make_teacher_key, public_id
from tests.factories import make_tenant
from tests.workers.answer_helpers import (
    EASY,
    TEXTS,
    advance,
    at_distillation,
    bring,
    json_answer,
    json_spec,
    right,
    text_answer,
    text_spec,
    trial,
)
from tests.workers.pipeline_helpers import ScriptedTeacher, check_money, step, taught_by
from workers.teachers.protocol import TeacherFailed

pytestmark = pytest.mark.usefixtures("committed_db")
GOLD = [{"input": f"only gold {i}", "output": LABELS[i % 2]} for i in range(6)]
FROZEN, GOLD_ONLY = "frozen_encoder_logistic_regression", "gold_only_logistic_regression"


def label(text: str) -> str:
    return LABELS["charged" in text]


def wrong(n: int) -> list[str]:
    """Answers to the held-out inputs, the first `n` of which are wrong."""
    return [LABELS[label(text) == LABELS[0]] if i < n else label(text) for i, text in enumerate(TEXTS)]


def label_compile(**spec: Any) -> Compile:
    """A compile of labels whose pairs are there, with gold outside the held-out part."""
    row = at_distillation(label, column="label", **({"gate": EASY, "train": {"escalate": False}} | spec))
    with tenant_scope(row.tenant_id):
        done = StepRun.objects.get(compile=row, name=StepName.SLICING)
        done.output["digests"]["gold_train"] = put_jsonl(row.tenant_id, GOLD)
        done.save()
    return row


def evaluated(
    row: Compile, predictions: list[str], trained: dict[str, Any] | None = None, **measured: Any
) -> dict[str, Any]:
    """Bring a training and an evaluation of an encoder; what the evaluation was asked."""
    advance(row)
    adapter = {"adapter_sha256": put_blob(row.tenant_id, b"encoder")}
    bring(row, RunnerJobKind.DISTILL, DISTILLED | adapter | (trained or {}))
    advance(row)
    result = {"predictions": predictions, "baseline_predictions": wrong(0), "confidences": [0.5] * len(TEXTS)}
    asked = bring(row, RunnerJobKind.EVALUATE, EVALUATED | result | measured)
    advance(row)
    return asked


def beside(row: Compile) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in fresh(row).evaluation["alternatives"]}


def asked_beside(row: Compile) -> list[TeacherCall]:
    with tenant_scope(row.tenant_id):
        return list(TeacherCall.objects.filter(compile=row, step=StepName.EVALUATION))


def test_a_model_clearly_worse_than_its_frozen_base_ends_below_the_gate():
    row = label_compile()
    asked = evaluated(row, wrong(7), gold_predictions=wrong(4))
    assert get_jsonl(row.tenant_id, asked["gold_sha256"]) == [
        {"input": one["input"], "label": one["output"], "weight": 1.0} for one in GOLD
    ]
    assert fresh(row).status == CompileStatus.GATE_FAILED
    assert row.gate["first_failed"] == "alternatives"
    assert "the adaptation made it worse" in row.gate["next_step"].lower()
    found = beside(row)
    assert {name: one["accuracy_ppm"] for name, one in found.items()} == {
        "majority": 666_666,
        FROZEN: 1_000_000,
        GOLD_ONLY: 833_333,
    }
    assert (found[FROZEN]["is_clearly_better"], found[GOLD_ONLY]["is_clearly_better"]) == (True, False)
    assert step(row, StepName.EVALUATION).output["facts"]["alternatives"] == row.evaluation["alternatives"]
    check_money(row)


def test_it_is_published_where_the_spec_says_report():
    row = label_compile(gate=EASY | {"alternatives": "report"})
    evaluated(row, wrong(7))
    assert fresh(row).status == CompileStatus.SUCCEEDED
    assert beside(row)[FROZEN]["is_clearly_better"]
    assert "alternatives" not in [floor["name"] for floor in row.gate["floors"]]


def test_a_runner_of_the_release_before_measures_no_gold_alone():
    row = label_compile()
    evaluated(row, wrong(0))
    assert fresh(row).status == CompileStatus.SUCCEEDED
    assert list(beside(row)) == ["majority", FROZEN]


def test_the_teacher_answers_held_out_inputs_once_and_is_paid(monkeypatch):
    teacher = taught_by(monkeypatch, ScriptedTeacher(label=lambda text: [label(text)]))
    row = label_compile(evaluation={"teacher_rows": 10})
    assert row.estimate["teacher_rows"] == 10
    evaluated(row, wrong(2))
    assert fresh(row).status == CompileStatus.SUCCEEDED
    found = beside(row)["teacher"]
    assert (found["n"], found["accuracy_ppm"], found["is_held_to"]) == (10, 1_000_000, False)
    assert [(asked.n, asked.temperature) for asked in teacher.asked] == [(1, 0.0)] * 10
    shown = {asked.item for asked in teacher.asked}
    assert len(shown) == 10
    assert shown <= set(TEXTS)
    with tenant_scope(row.tenant_id):
        facts = UsageFact.objects.filter(compile_id=row.id, billing=Billing.CHARGE, sku__startswith="teacher.")
        assert sum(fact.amount_microusd for fact in facts) > 0
    check_money(row)


def test_by_default_up_to_a_hundred_rows_within_a_twentieth_of_the_budget():
    assert label_compile(evaluation={}).estimate["teacher_rows"] == 12, "all that the spec holds out"
    dear = {"input_usd_per_mtok": 100, "output_usd_per_mtok": 100}
    teacher = {"provider": "grammar", "model": "kolm-grammar-1", "price": dear, "concurrency": 1}
    row = label_compile(evaluation={}, teacher=teacher, budget={"usd": 1})
    evaluation = next(one for one in row.estimate["steps"] if one["step"] == "evaluation")
    assert 0 < row.estimate["teacher_rows"] < 12
    assert evaluation["expected_microusd"] >= row.estimate["teacher_rows"] * 6_000
    none = label_compile(evaluation={"teacher_rows": 0}, teacher=teacher, budget={"usd": 1})
    cheaper = next(one for one in none.estimate["steps"] if one["step"] == "evaluation")
    assert none.estimate["teacher_rows"] == 0
    assert cheaper["expected_microusd"] < evaluation["expected_microusd"] <= cheaper["expected_microusd"] + 150_000


def test_a_teacher_that_fails_ends_no_compile(monkeypatch):
    def failing(text: str) -> list[str]:
        raise TeacherFailed("It is gone.", code="teacher_unreachable")

    taught_by(monkeypatch, ScriptedTeacher(label=failing))
    row = label_compile(evaluation={"teacher_rows": 4})
    evaluated(row, wrong(0))
    assert fresh(row).status == CompileStatus.SUCCEEDED
    assert "teacher" not in beside(row)
    assert row.evaluation["teacher_why_not"] == "teacher_unreachable"


def test_one_held_out_text_under_two_labels_is_asked_about_once_and_compared_with_both(monkeypatch):
    teacher = taught_by(monkeypatch, ScriptedTeacher(label=lambda text: [label(text)]))
    row = label_compile(evaluation={"teacher_rows": 12})
    texts = [*TEXTS[:8], TEXTS[0]]
    labels = [label(text) for text in texts[:8]] + [LABELS[label(TEXTS[0]) == LABELS[0]]]
    with tenant_scope(row.tenant_id):
        done = StepRun.objects.get(compile=row, name=StepName.SLICING)
        rows = [{"input": text, "output": name} for text, name in zip(texts, labels, strict=True)]
        done.output["digests"]["gold_heldout"] = put_jsonl(row.tenant_id, rows)
        done.save()
    answers = [label(text) for text in texts]
    evaluated(row, answers, baseline_predictions=answers, confidences=[0.5] * len(texts))
    assert fresh(row).status == CompileStatus.SUCCEEDED, row.failure_message
    assert sorted(asked.item for asked in teacher.asked) == sorted(TEXTS[:8])
    assert (beside(row)["teacher"]["n"], beside(row)["teacher"]["accuracy_ppm"]) == (9, 888_888)
    assert "teacher_why_not" not in row.evaluation


def test_a_key_that_is_deleted_after_the_training_ends_no_compile():
    tenant = make_tenant()
    key = make_teacher_key(tenant)
    teacher = {"provider": "openai_compatible", "base_url": "https://llm.example.com/v1", "model": "m-1"}
    price = {"input_usd_per_mtok": 1, "output_usd_per_mtok": 1}
    row = label_compile(
        tenant=tenant, evaluation={"teacher_rows": 4}, teacher=teacher | {"api_key": public_id(key), "price": price}
    )
    with tenant_scope(tenant.id):
        key.delete()
    evaluated(row, wrong(0))
    assert fresh(row).status == CompileStatus.SUCCEEDED, row.failure_message
    assert "teacher" not in beside(row)
    assert row.evaluation["teacher_why_not"] == "unknown_teacher_key"


def test_a_json_task_stands_beside_its_base_its_typical_answer_and_the_teacher(monkeypatch):
    taught_by(monkeypatch, ScriptedTeacher(label=lambda text: [json_answer(text) if "parcel" in text else "no idea"]))
    row = at_distillation(json_answer, **json_spec(gate=EASY, evaluation={"teacher_rows": 24}))
    trial(row, right(24))
    advance(row)
    assert fresh(row).status == CompileStatus.SUCCEEDED
    found = beside(row)
    assert list(found) == ["base_constrained", "common_answer", "teacher"]
    n_asked = row.estimate["teacher_rows"]
    assert found["teacher"]["n"] == n_asked == len(asked_beside(row))
    assert 0 < found["teacher"]["accuracy_ppm"] < 500_000
    assert 0 < found["common_answer"]["accuracy_ppm"] < 700_000
    assert all(one["model_accuracy_ppm"] == 1_000_000 for one in found.values())


def test_a_text_task_that_a_judge_compares_asks_nothing_more(monkeypatch):
    assert at_distillation(text_answer, **text_spec(evaluation={})).estimate["teacher_rows"] == 0
    with pytest.raises(InvalidSpec, match="is not compared with itself"):
        at_distillation(text_answer, **text_spec(evaluation={"teacher_rows": 5}))
