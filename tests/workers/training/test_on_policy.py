"""A student that answers for itself: two trainings, and between them the teacher's reading of its answers."""

import re
from dataclasses import replace
from typing import Any

import pytest

from backend.blobs import get_jsonl, put_jsonl
from backend.compiles.models import Compile
from backend.domain.errors import InvalidSpec
from backend.domain.lifecycle import CompileStatus, StepName
from backend.domain.spec.parsing import parse_spec
from backend.runner_jobs.models import RunnerJob
from backend.tenants.isolation import tenant_scope
from tests.compile_factories import fresh, small_spec
from tests.workers.answer_helpers import (
    EASY,
    TEST,
    TEXTS,
    TRAIN,
    advance,
    answered,
    at_distillation,
    bring,
    fail,
    json_answer,
    json_spec,
    right,
    trained,
)
from tests.workers.pipeline_helpers import USAGE, ScriptedTeacher, calls, check_money, step, taught_by
from workers.teachers.protocol import Choice, Completion, ScoreRequest, TeacherCaps

pytestmark = pytest.mark.usefixtures("committed_db")
VLLM = {
    "provider": "openai_compatible",
    "model": "big",
    "base_url": "https://vllm.example/v1",
    "engine": "vllm",
    "price": {"input_usd_per_mtok": 1, "output_usd_per_mtok": 2},
}


class ReadingTeacher(ScriptedTeacher):
    """Reads a text word by word, and is sure of each word to nine tenths."""

    caps = TeacherCaps(logprobs=True, prompt_logprobs=True, max_top_logprobs=20)

    def __init__(self, *, tells: bool = True) -> None:
        super().__init__()
        self.read: list[ScoreRequest] = []
        self._tells = tells

    def score(self, request: ScoreRequest, **_: Any) -> Completion:
        self.read.append(request)
        words = tuple(re.findall(r"\S+\s*", request.text))
        top = tuple(((word, -0.1), ("other", -2.4)) for word in words) if self._tells else None
        choice = Choice(text=request.text, tokens=words, token_logprobs=(-0.1,) * len(words), top_logprobs=top)
        return Completion(choices=(choice,), usage=replace(USAGE, output_tokens=1))


def on_policy(share: float = 1.0, **changes: Any) -> dict[str, Any]:
    train = {"causal": {"on_policy": share, "patch_size": 2, "patch_share": 0.2}}
    return json_spec(train=train, gate=EASY, teacher=VLLM, **changes)


def begun(monkeypatch: pytest.MonkeyPatch, teacher: ReadingTeacher, share: float = 1.0) -> Compile:
    taught_by(monkeypatch, teacher)
    return at_distillation(json_answer, **on_policy(share))


def first_training(row: Compile, answer: Any = lambda text: f"mine of {text}") -> dict[str, Any]:
    """Bring the training on the pairs, with the student's answers to what it was asked about."""
    advance(row)
    (job,) = RunnerJob.objects.filter(compile_id=row.id, status="queued")
    asked = bring_with_samples(row, answer)
    assert job.kind == TRAIN
    return asked


def bring_with_samples(row: Compile, answer: Any) -> dict[str, Any]:
    pairs = get_jsonl(row.tenant_id, step(row, StepName.LABELING).output["digests"]["completions"])
    rows = [{"input": pair["input"], "output": answer(pair["input"])} for pair in pairs]
    samples = put_jsonl(row.tenant_id, rows)
    return bring(row, TRAIN, trained(row, samples_sha256=samples, n_tokens=500, n_read=900, n_written=80))


def test_the_student_answers_the_teacher_reads_and_a_second_training_goes_on(monkeypatch):
    row = begun(monkeypatch, teacher := ReadingTeacher())
    first = first_training(row)
    assert first["sampling"]["answer"]["type"] == "json"
    asked_about = [one["input"] for one in get_jsonl(row.tenant_id, first["sampled_sha256"])]
    assert asked_about == [f"pair {i}" for i in range(len(TEXTS))]
    assert "start_sha256" not in first
    assert "divergence" not in first["options"]
    advance(row)
    second = bring(row, TRAIN, trained(row, n_pairs=11))
    assert second["start_config"]["rank"] == 8
    assert (second["options"]["patch_size"], second["options"]["divergence"]) == (1, "jsd")
    assert "sampling" not in second
    own = get_jsonl(row.tenant_id, second["dataset_sha256"])
    assert {one["input"]: one["output"] for one in own} == {text: f"mine of {text}" for text in asked_about}
    assert all(one["on_policy"] for one in own)
    assert own[0]["soft_targets"][0] == ["mine ", {"mine ": -0.1, "other": -2.4}]
    assert {(one.top_logprobs, one.temperature) for one in teacher.read} == {(20, 1.0)}
    advance(row)
    bring(row, TEST, answered(right(24)))
    advance(row)
    assert fresh(row).status == CompileStatus.SUCCEEDED
    check_money(row)
    assert {call.step for call in calls(row)} == {StepName.DISTILLATION}
    assert len(calls(row)) == len(TEXTS) == len(teacher.read)


def test_a_share_answers_and_the_other_inputs_keep_their_answers(monkeypatch):
    row = begun(monkeypatch, ReadingTeacher(), share=0.5)
    advance(row)
    (job,) = RunnerJob.objects.filter(compile_id=row.id, status="queued")
    asked = get_jsonl_of(row, job)
    chosen = {one["input"] for one in asked}
    assert 0 < len(chosen) < len(TEXTS)
    samples = put_jsonl(row.tenant_id, [{"input": text, "output": "mine"} for text in chosen])
    bring(row, TRAIN, trained(row, samples_sha256=samples))
    advance(row)
    rows = get_jsonl(row.tenant_id, bring(row, TRAIN, trained(row, n_pairs=11))["dataset_sha256"])
    assert {one["input"] for one in rows if one.get("on_policy")} == chosen
    assert sum("on_policy" not in one for one in rows) == len(TEXTS) - len(chosen)


def get_jsonl_of(row: Compile, job: RunnerJob) -> list[dict[str, Any]]:
    from backend.blobs import get_json

    payload = get_json(row.tenant_id, job.payload_sha256)
    rows: list[dict[str, Any]] = get_jsonl(row.tenant_id, payload["sampled_sha256"])
    return rows


def test_a_worker_that_wakes_again_asks_the_teacher_nothing_twice(monkeypatch):
    row = begun(monkeypatch, teacher := ReadingTeacher())
    first_training(row)
    for _ in range(3):
        advance(row)
    assert len(teacher.read) == len(TEXTS)
    assert RunnerJob.objects.filter(compile_id=row.id).count() == 2


def test_an_empty_answer_is_not_read_and_its_pair_trains(monkeypatch):
    row = begun(monkeypatch, teacher := ReadingTeacher())
    first_training(row, lambda text: " " if text == "pair 0" else "mine")
    advance(row)
    rows = get_jsonl(row.tenant_id, bring(row, TRAIN, trained(row, n_pairs=11))["dataset_sha256"])
    assert [one["input"] for one in rows if "on_policy" not in one] == ["pair 0"]
    assert len(teacher.read) == len(TEXTS) - 1


def test_a_teacher_that_tells_no_log_probs_ends_the_compile_with_what_to_do(monkeypatch):
    row = begun(monkeypatch, ReadingTeacher(tells=False))
    first_training(row)
    advance(row)
    assert fresh(row).status == CompileStatus.FAILED
    assert row.failure_code == "no_logprobs"


def test_a_runner_that_finds_other_tokens_ends_the_compile_as_the_customers_choice(monkeypatch):
    row = begun(monkeypatch, ReadingTeacher())
    first_training(row)
    advance(row)
    fail(row, TRAIN, "tokenizers_differ")
    advance(row)
    assert fresh(row).failure_code == "tokenizers_differ"


@pytest.mark.parametrize("rows", [[{"input": "nobody asked", "output": "x"}], [{"input": "pair 0"}], ["pair 0"]])
def test_samples_that_are_no_answers_to_the_inputs_are_refused(monkeypatch, rows):
    row = begun(monkeypatch, teacher := ReadingTeacher())
    advance(row)
    bring(row, TRAIN, trained(row, samples_sha256=put_jsonl(row.tenant_id, rows)))
    advance(row)
    assert teacher.read == []
    with tenant_scope(row.tenant_id):
        assert fresh(row).status != CompileStatus.SUCCEEDED
    assert RunnerJob.objects.filter(compile_id=row.id).count() == 1


def test_twice_the_rank_is_trained_in_two_turns_too(monkeypatch):
    row = begun(monkeypatch, teacher := ReadingTeacher())
    first_training(row)
    advance(row)
    bring(row, TRAIN, trained(row, n_pairs=11))
    advance(row)
    bring(row, TEST, answered(right(10)))
    advance(row)
    again = bring_with_samples(row, lambda text: f"better of {text}")
    assert (again["options"]["rank"], "sampling" in again) == (16, True)
    advance(row)
    last = bring(row, TRAIN, trained(row, n_pairs=12))
    assert last["start_sha256"]
    advance(row)
    bring(row, TEST, answered(right(24)))
    advance(row)
    assert fresh(row).status == CompileStatus.SUCCEEDED
    assert len(teacher.read) == 2 * len(TEXTS)
    assert {call.step for call in calls(row)} == {StepName.DISTILLATION, StepName.EVALUATION}
    check_money(row)


@pytest.mark.parametrize(
    ("spec", "pointer", "word"),
    [
        (small_spec(train={"kind": "causal", "causal": {"on_policy": 0.5}}), "on_policy", "label"),
        (json_spec(train={"causal": {"on_policy": 0.5}}), "on_policy", "vLLM"),
        (json_spec(train={"causal": {"divergence": "reverse_kl"}}), "divergence", "on_policy"),
    ],
)
def test_a_spec_that_cannot_be_taught_so_is_refused_with_what_to_do(spec, pointer, word):
    with pytest.raises(InvalidSpec) as refused:
        parse_spec(small_spec() | spec)
    assert [(one.pointer, one.code) for one in refused.value.problems] == [(f"/train/causal/{pointer}", "not_used")]
    assert word in refused.value.problems[0].message
