"""Trials: what is trained and measured after the first, that nothing of it is offered twice, and which one is kept."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F

from backend.artifacts.models import Artifact
from backend.blobs import get_blob, get_json, put_blob
from backend.compiles.lifecycle import transitions
from backend.compiles.models import Compile, CompileEvent
from backend.domain.artifact import kolm_verify
from backend.domain.jobs.runner_jobs import RunnerJobKind
from backend.domain.lifecycle import CompileStatus, StepName, StepStatus
from backend.domain.spec.parsing import parse_spec
from backend.domain.spec.task_prompt import prompt_json
from backend.runner_jobs.models import RunnerJob
from backend.tenants.isolation import tenant_scope
from backend.usage import holds
from gpu_runners.cli.main import main
from tests.backend.domain.jobs.test_runner_results import DISTILLED, EVALUATED
from tests.compile_factories import LABELS, change, fresh, make_teacher_key, public_id
from tests.factories import make_tenant
from tests.workers.answer_helpers import (
    EASY,
    TEST,
    TEXT_OUTPUT,
    TEXTS,
    TRAIN,
    Killed,
    advance,
    answered,
    at_distillation,
    bring,
    fail,
    json_answer,
    json_spec,
    right,
    text_answer,
    text_spec,
    trained,
    trial,
)
from tests.workers.pipeline_helpers import FILTERED, ScriptedTeacher, check_money, step, taught_by
from workers.teachers.prompts.pairwise import PAIRWISE_ASK
from workers.training import trials

pytestmark = pytest.mark.usefixtures("committed_db")


@pytest.fixture
def row(committed_db: None) -> Compile:
    return at_distillation(json_answer, **json_spec(gate=EASY))


def jobs(row: Compile) -> list[str]:
    return list(RunnerJob.objects.filter(compile_id=row.id).order_by("created_at").values_list("kind", flat=True))


def told(row: Compile) -> dict[str, Any]:
    facts: dict[str, Any] = step(row, StepName.EVALUATION).output["facts"]
    return facts


def warnings(row: Compile) -> list[str]:
    with tenant_scope(row.tenant_id):
        found = CompileEvent.objects.filter(compile=row, type="warning").values_list("data", flat=True)
        return [data["code"] for data in found]


def test_one_trial_is_enough_when_it_passes(row):
    asked = trial(row, right(24))
    advance(row)
    assert fresh(row).status == CompileStatus.SUCCEEDED
    assert jobs(row) == [TRAIN, TEST]
    assert asked["base_model"] == "Qwen/Qwen2.5-0.5B-Instruct"
    assert asked["system"].startswith("What is complained about, and does it hurry?\nAnswer with JSON alone")
    facts = told(row)
    assert (facts["chosen"], [one["why"] for one in facts["trials"]]) == (0, ["first"])
    assert (facts["accuracy_ppm"], facts["validity_ppm"], facts["n_cut"]) == (1_000_000, 1_000_000, 0)
    assert [one["field"] for one in facts["fields"]] == ["/subject", "/urgent"]
    assert [one["name"] for one in facts["baselines"]] == ["base_constrained"]
    assert row.evaluation["per_class"][0]["label"] == "/subject"
    check_money(row)


def test_what_is_packaged_of_a_json_task(row, tmp_path, capsys):
    trial(row, right(24), active={"n_too_long": 0, "loss_scale": 0.5})
    advance(row)
    with tenant_scope(row.tenant_id):
        artifact = Artifact.objects.get(compile_id=row.id)
        data = get_blob(row.tenant_id, artifact.sha256)
    kolm = kolm_verify.read_kolm(data)
    assert (kolm.manifest["task_type"], kolm.manifest["base"]["id"]) == ("json", "Qwen/Qwen2.5-0.5B-Instruct")
    assert not {"labels.json", "calibration.json"} & set(kolm.members)
    documents = {path: json.loads(text) for path, text in kolm.members.items() if path.endswith(".json")}
    prompt = documents["prompt.json"]
    assert prompt == prompt_json(parse_spec(row.spec))
    assert documents["adapter_config.json"]["format"] == "kolm.lora-causal/1"
    stats = documents["training_stats.json"]
    assert stats["active"] == {"n_too_long": 0, "loss_scale_ppm": 500_000}
    assert [one["rank"] for one in stats["trials"]] == [8]
    assert documents["evals.json"]["failed"] == [[]] * 24
    receipts = {one["predicate"]["step"]: one["predicate"] for one in kolm.receipts}
    assert receipts["evaluation"]["facts"]["trials"][0]["why"] == "first"
    file = tmp_path / "it.kolm"
    file.write_bytes(data)
    assert main(["inspect", str(file)]) == 0
    shown = capsys.readouterr().out
    assert "complaints  json task" in shown
    assert "answers   JSON with subject, urgent" in shown
    assert main(["inspect", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["documents"]["prompt.json"] == prompt


def test_twice_the_rank_is_tried_below_the_gate_and_the_better_one_is_kept(row):
    trial(row, right(10))
    advance(row)
    assert step(row, StepName.EVALUATION).status == StepStatus.RUNNING
    assert jobs(row) == [TRAIN, TEST, TRAIN]
    asked = bring(row, TRAIN, trained(row, n_parameters=2000))
    assert (asked["options"]["rank"], asked["options"]["alpha"]) == (16, 32)
    advance(row)
    bring(row, TEST, answered(right(24)))
    advance(row)
    assert fresh(row).status == CompileStatus.SUCCEEDED
    facts = told(row)
    assert [(one["rank"], one["why"], one["passed"]) for one in facts["trials"]] == [
        (8, "first", False),
        (16, "escalation", True),
    ]
    assert facts["chosen"] == 1
    assert facts["trials"][0]["first_failed"] == "accuracy_lower"
    assert step(row, StepName.EVALUATION).spent_microusd > step(row, StepName.DISTILLATION).spent_microusd > 0
    check_money(row)


def test_where_the_bare_base_is_perfect_too_nothing_more_is_trained(committed_db):
    checked = TEXT_OUTPUT | {"accuracy": "checks"}
    row = at_distillation(text_answer, **text_spec(output=checked, gate=EASY, evaluation={"teacher_rows": 0}))
    outputs = [text_answer(text) for text in TEXTS]
    trial(row, outputs, bare=outputs)
    advance(row)
    assert fresh(row).status == CompileStatus.GATE_FAILED
    assert jobs(row) == [TRAIN, TEST]
    assert row.gate["first_failed"] == "beat_baseline"
    assert "the checks do not tell the model from its base" in row.gate["next_step"]


def test_no_further_trial_begins_on_a_runner_that_used_up_what_kolm_may_bill(committed_db):
    """The customer's own key pays the teacher: the budget has more than the hold, which a slow runner exceeded."""
    tenant = make_tenant()
    teacher = {"provider": "openai_compatible", "base_url": "https://llm.example.com/v1", "model": "m-1"}
    teacher |= {"api_key": public_id(make_teacher_key(tenant))}
    teacher |= {"price": {"input_usd_per_mtok": 1, "output_usd_per_mtok": 1}}
    parts = {"teacher": teacher, "budget": {"usd": 50}, "evaluation": {"teacher_rows": 0}}
    row = at_distillation(json_answer, tenant=tenant, **json_spec(gate=EASY, **parts))
    with tenant_scope(tenant.id):
        held = holds.left_of(tenant.id, row.id)
    change(row, estimate=row.estimate | {"price_version": "2026-11-22"})  # of the book that knew seconds alone
    advance(row)
    bring(row, TRAIN, trained(row, runner_ms=86_400_000))
    RunnerJob.objects.filter(compile_id=row.id).update(started_at=F("ended_at") - timedelta(days=1))
    advance(row)
    bring(row, TEST, answered(right(10)))
    advance(row)
    assert fresh(row).status == CompileStatus.GATE_FAILED
    assert jobs(row) == [TRAIN, TEST]
    assert held - 150 < row.spent_microusd <= held < 12_960_000 < row.spent_microusd + row.waste_microusd
    check_money(row)


def test_the_first_is_kept_when_the_second_is_worse(row):
    trial(row, right(10))
    trial(row, right(3))
    advance(row)
    assert fresh(row).status == CompileStatus.GATE_FAILED
    facts = told(row)
    assert (facts["chosen"], len(facts["trials"]), facts["correct"]) == (0, 2, 10)
    check_money(row)


@pytest.mark.nightly
def test_nothing_is_offered_twice_wherever_a_process_dies(row, monkeypatch):
    """Killed before and after every step of a trial: the same two trials, four jobs, one receipt."""
    real_end, real_answers = trials._end, trials._answers
    died = {"end": 0, "answers": 0}

    def dies_before_its_end(*given: Any, **found: Any) -> None:
        died["end"] += 1
        if died["end"] % 2:
            raise Killed
        real_end(*given, **found)

    def dies_after_its_answers(*given: Any) -> Any:
        found = real_answers(*given)
        died["answers"] += 1
        if died["answers"] % 3 == 0:
            raise Killed
        return found

    monkeypatch.setattr(trials, "_end", dies_before_its_end)
    monkeypatch.setattr(trials, "_answers", dies_after_its_answers)

    def until(n_jobs: int) -> None:
        for _ in range(6):
            advance(row)
        assert len(jobs(row)) == n_jobs

    until(1)
    bring(row, TRAIN, trained(row))
    until(2)
    bring(row, TEST, answered(right(10)))
    until(3)
    bring(row, TRAIN, trained(row, n_parameters=2000))
    until(4)
    bring(row, TEST, answered(right(12)))
    until(4)
    assert fresh(row).status == CompileStatus.GATE_FAILED
    assert died["end"] >= 4
    assert [one["rank"] for one in told(row)["trials"]] == [8, 16]
    assert told(row)["chosen"] == 1
    check_money(row)


def test_a_further_trial_that_fails_is_a_warning_and_the_first_stands(row):
    trial(row, right(10))
    advance(row)
    fail(row, TRAIN, "out_of_memory")
    advance(row)
    assert fresh(row).status == CompileStatus.GATE_FAILED
    facts = told(row)
    assert (facts["chosen"], facts["trials"][1]["failure"]) == (0, "out_of_memory")
    assert "It is out_of_memory." in facts["trials"][1]["why_not"]
    assert warnings(row) == ["trial_failed"]
    check_money(row)


def test_a_first_evaluation_that_failed_is_offered_anew_when_the_compile_is_resumed(row):
    advance(row)
    bring(row, TRAIN, trained(row))
    advance(row)
    fail(row, TEST, "out_of_memory")
    advance(row)
    assert (fresh(row).status, row.failure_code) == (CompileStatus.FAILED, "out_of_memory")
    with tenant_scope(row.tenant_id):
        transitions.resume(row.tenant_id, row.id, budget_microusd=None)
    advance(row)
    assert jobs(row) == [TRAIN, TEST, TEST]
    bring(row, TEST, answered(right(24)))
    advance(row)
    assert fresh(row).status == CompileStatus.SUCCEEDED
    check_money(row)


@pytest.mark.parametrize(
    "code", ["not_causal", "diverged", "nothing_to_train", "gated_base", "base_too_large", "unsupported_base"]
)
def test_what_the_spec_asks_and_no_runner_can_do_is_the_customers_to_mend(row, code):
    advance(row)
    fail(row, TRAIN, code)
    advance(row)
    assert (fresh(row).status, row.failure_code) == (CompileStatus.FAILED, code)
    assert row.failure_message == f"The runner could not finish distillation: It is {code}."
    assert row.failed_step == StepName.DISTILLATION


def test_pairs_that_are_too_long_are_told(row):
    trial(row, right(24), active={"n_too_long": 3})
    assert warnings(row) == ["pairs_too_long"]


@pytest.mark.parametrize(("n_matched", "n_unmatched", "warned"), [(3, 0, False), (3, 1, True), (0, 0, True)])
def test_answers_that_train_without_the_teachers_distributions_are_told(row, n_matched, n_unmatched, warned):
    soft = {"weight": "0.5", "n_matched": n_matched, "n_unmatched": n_unmatched}
    trial(row, right(24), active={"n_too_long": 0, "soft_targets": soft})
    assert warnings(row) == ["soft_targets_unused"] * warned


def test_canceling_in_the_middle_of_a_further_trial_stops_its_job(row):
    trial(row, right(10))
    advance(row)
    with tenant_scope(row.tenant_id):
        transitions.cancel(row.tenant_id, row.id)
    advance(row)
    assert fresh(row).status == CompileStatus.CANCELED
    assert RunnerJob.objects.filter(compile_id=row.id).order_by("created_at").last().status == "canceled"


def test_auto_tries_both_kinds_of_base_and_keeps_the_better(committed_db):
    def label(text: str) -> str:
        return LABELS["charged" in text]

    row = at_distillation(label, column="label", train={"kind": "auto"}, gate=EASY)
    advance(row)
    adapter = put_blob(row.tenant_id, b"encoder")
    bring(row, RunnerJobKind.DISTILL, DISTILLED | {"adapter_sha256": adapter})
    advance(row)
    said = [LABELS[0]] * len(TEXTS)
    measured = {"predictions": said, "baseline_predictions": said, "confidences": [0.5] * len(TEXTS)}
    bring(row, RunnerJobKind.EVALUATE, EVALUATED | measured)
    advance(row)
    asked = bring(row, TRAIN, trained(row))
    assert asked["system"].endswith("Answer with one of these labels alone: refund | other")
    advance(row)
    outputs = [label(text) for text in TEXTS]
    asked = bring(row, TEST, answered(outputs, baseline_outputs=said))
    assert asked["answer"] == {"type": "label", "labels": list(LABELS)}
    advance(row)
    assert fresh(row).status == CompileStatus.SUCCEEDED
    facts = told(row)
    assert [(one["kind"], one["why"]) for one in facts["trials"]] == [("encoder", "first"), ("causal", "auto")]
    assert (facts["chosen"], facts["accuracy_ppm"]) == (1, 1_000_000)
    assert [one["name"] for one in facts["baselines"]] == ["majority", "base_constrained"]
    shown = fresh(row).evaluation
    assert (shown["trials"], shown["chosen"]) == (facts["trials"], 1)
    check_money(row)


def test_texts_are_judged_both_ways_once(committed_db, monkeypatch):
    """What is settled without a judge is not asked; who prefers a place says nothing."""
    row = at_distillation(text_answer, **text_spec(gate=EASY, train={"escalate": False}))
    outputs = [text_answer(text) for text in TEXTS]
    outputs[0], outputs[1] = "as an AI I cannot", "x" * 300
    for i in range(2, 8):
        outputs[i] = f"Sorry about number {i}."

    def judge(request: Any) -> list[str]:
        content = request.messages[-1].content
        assert PAIRWISE_ASK in content
        student_is_first = content.index("Sorry about number") < content.index("We are sorry")
        if "number 2" in content:
            return ["A" if student_is_first else "B"]
        if "number 3" in content:
            return ["B" if student_is_first else "A"]
        if "number 5" in content and student_is_first:
            return [FILTERED]
        return ["A"]

    teacher = taught_by(monkeypatch, ScriptedTeacher())
    monkeypatch.setattr(teacher, "_answers", judge)
    advance(row)
    bring(row, TRAIN, trained(row))
    advance(row)
    bring(row, TEST, answered(outputs))
    real, n = trials._end, {"n": 0}

    def dies_once(*given: Any, **found: Any) -> None:
        n["n"] += 1
        if n["n"] == 1:
            raise Killed
        real(*given, **found)

    monkeypatch.setattr(trials, "_end", dies_once)
    advance(row)
    advance(row)
    assert fresh(row).status == CompileStatus.SUCCEEDED
    assert len(teacher.asked) == 12
    measured = get_json(row.tenant_id, step(row, StepName.EVALUATION).output["digests"]["evals"])
    assert measured["verdicts"][:5] == ["loss", "loss", "win", "loss", "tie"]
    assert set(measured["verdicts"][8:]) == {"tie"}
    assert measured["failed"][:3] == [["excludes"], ["max_chars"], []]
    counts = told(row)["counts"]
    assert (counts["n_win"], counts["n_loss"], counts["n_tie"]) == (1, 4, 19)
    assert told(row)["accuracy_ppm"] == 20 * 1_000_000 // 24
    assert warnings(row) == ["judge_filtered"]  # not again by whoever took over
    assert step(row, StepName.EVALUATION).spent_microusd > 12
    assert json.dumps(told(row))
    check_money(row)
