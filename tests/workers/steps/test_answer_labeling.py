"""Labelling json and text tasks: what the teacher's answers become, and what they do not."""

import json
from dataclasses import replace
from typing import Any

import pytest

from backend.blobs import get_jsonl
from backend.compiles.models import Compile, TeacherCall
from backend.domain.errors import CustomerError
from backend.domain.lifecycle import StepName
from backend.tenants.isolation import tenant_scope
from tests.compile_factories import make_compile
from tests.factories import make_tenant
from tests.workers.answer_helpers import json_answer, json_spec, subject_of, text_answer, text_spec
from tests.workers.pipeline_helpers import (
    COMPLAINTS,
    SUBJECTS,
    ScriptedTeacher,
    calls,
    candidates,
    check_money,
    start,
    step,
    take_over,
    taught_by,
    walk_through,
)
from workers.labeling import voting
from workers.step.durable import begin_step
from workers.steps import labeling
from workers.teachers.prompts.candidate_and_label import unfence
from workers.teachers.protocol import Completion, CompletionRequest

pytestmark = pytest.mark.usefixtures("committed_db")
TO_LABELING = (StepName.SLICING, StepName.SYNTHESIS, StepName.VERIFICATION, StepName.SELECTION)


@pytest.fixture
def tenant(committed_db):
    return make_tenant()


def dataset(row: Compile) -> list[dict[str, object]]:
    return get_jsonl(row.tenant_id, step(row, StepName.LABELING).output["digests"]["dataset"])


def test_a_json_answer_is_checked_spelt_and_trained_on(tenant, monkeypatch):
    said = {"n": 0}

    def label(text: str) -> list[str]:
        said["n"] += 1
        if said["n"] == 1:
            return ["no idea", '{"subject": "Zebra", "urgent": true}', '{"subject": 3}']
        fenced = f"```json\n{json_answer(text)}\n```"
        return [fenced, json_answer(text), "{}"]

    teacher = taught_by(monkeypatch, ScriptedTeacher(label=label))
    row = make_compile(tenant, **json_spec())
    walk_through(start(row), *TO_LABELING, StepName.LABELING)
    assert all("Labels:" not in part.content for asked in teacher.asked for part in asked.messages)
    assert not any("classifier" in asked.messages[0].content for asked in teacher.asked)
    found = candidates(row, state__in=("trained", "left_out"))
    (refused,) = candidates(row, state="unverified")
    assert (refused.answer, refused.votes, refused.agreement_ppm) == ("", {}, 0)
    assert set(refused.reasons) == {"unreadable", "copied /subject", "schema"}
    for one in found:
        urgent = "true" if "charged" in one.text else "false"
        assert one.answer == f'{{"subject": "{subject_of(one.text)}", "urgent": {urgent}}}'
        assert (one.votes, one.agreement_ppm, one.label) == ({one.answer: 2}, 666_666, "")
    facts = step(row, StepName.LABELING).output["facts"]
    assert facts["unverified_for"] == {"copied /subject": 1, "schema": 1, "unreadable": 1}
    assert (facts["n_labeled"], facts["n_synthetic_pairs"], facts["balance"]) == (5, 5, None)
    rows = dataset(row)
    assert {tuple(sorted(one)) for one in rows} == {("input", "output", "weight")}
    trained = {one.text: one.answer for one in found if one.state == "trained"}
    gold = [one for one in rows if one["input"] not in trained]
    assert {one["input"]: one["output"] for one in rows if one["input"] in trained} == trained
    assert len(gold) == 12
    assert all(str(one["output"]).startswith('{"subject": "') for one in gold), "gold is spelt as the answers are"
    check_money(row)


def test_answers_that_differ_too_much_are_not_trained_on(tenant, monkeypatch):
    def label(text: str) -> list[str]:
        return [json.dumps({"subject": word, "urgent": n % 2 == 0}) for n, word in enumerate(text.split()[:3])]

    taught_by(monkeypatch, ScriptedTeacher(label=label))
    row = make_compile(tenant, **json_spec())
    with pytest.raises(
        CustomerError, match=r"None of the teacher's answers can be trained on \(disagreed 6\)"
    ) as raised:
        walk_through(start(row), *TO_LABELING, StepName.LABELING)
    assert raised.value.code == "no_valid_answers"
    assert {tuple(one.reasons) for one in candidates(row, state="unverified")} == {("disagreed",)}


def test_a_text_answer_is_the_one_most_like_the_others(tenant, monkeypatch):
    def label(text: str) -> list[str]:
        return [text_answer(text), f"{text_answer(text)} Sorry.", "as an AI I cannot"]

    taught_by(monkeypatch, ScriptedTeacher(label=label))
    row = make_compile(tenant, **text_spec())
    walk_through(start(row), *TO_LABELING, StepName.LABELING)
    found = candidates(row, state__in=("trained", "left_out"))
    assert len(found) == 6
    assert all(one.answer == text_answer(one.text) and 600_000 <= one.agreement_ppm < 666_667 for one in found)
    check_money(row)


class Cut(ScriptedTeacher):
    """A teacher whose answers are all ended by something else than themselves."""

    def complete(self, request: CompletionRequest, **options: Any) -> Completion:
        completion = super().complete(request, **options)
        choices = tuple(replace(choice, finish_reason="content_filter") for choice in completion.choices)
        return completion if request.item is None else replace(completion, choices=choices)


def test_a_text_answer_that_a_filter_ended_in_the_middle_is_none(tenant, monkeypatch):
    taught_by(monkeypatch, Cut(label=lambda text: [text_answer(text)] * 3))
    row = make_compile(tenant, **text_spec())
    with pytest.raises(CustomerError) as raised:
        walk_through(start(row), *TO_LABELING, StepName.LABELING)
    assert raised.value.code == "no_valid_answers"


def test_a_process_that_dies_while_answers_are_checked_asks_nothing_again(tenant, monkeypatch):
    teacher = taught_by(monkeypatch, ScriptedTeacher(label=lambda text: [json_answer(text)] * 3))
    row = make_compile(
        tenant, **json_spec(teacher={"provider": "grammar", "model": "kolm-grammar-1", "concurrency": 2})
    )
    run = start(row)
    walk_through(run, *TO_LABELING)
    real, n_settled = voting.agree, {"n": 0}

    def dies(*given: object) -> object:
        n_settled["n"] += 1
        if n_settled["n"] == 2:
            raise MemoryError
        return real(*given)

    monkeypatch.setattr(voting, "agree", dies)
    begin_step(run, StepName.LABELING)
    with pytest.raises(MemoryError):
        labeling.run_labeling(run)
    asked = [call.key for call in calls(row) if call.step == StepName.LABELING]
    assert len(asked) == 4
    assert len(candidates(row, state="labeled")) == 2
    run = take_over(run, row)
    monkeypatch.setattr(voting, "agree", real)
    walk_through(run, StepName.LABELING)
    with tenant_scope(row.tenant_id):
        keys = list(TeacherCall.objects.filter(compile=row, step=StepName.LABELING).values_list("key", flat=True))
    assert len(keys) == len(set(keys)) == 6
    assert sum(request.item is not None for request in teacher.asked) == 6
    assert len(dataset(row)) == 6 + 12
    check_money(row)


def test_the_answers_of_an_earlier_compile_are_taken_and_checked_anew(tenant, monkeypatch):
    """The draft cache keeps answers as it keeps labels: same words, same revision."""
    first = make_compile(tenant, **json_spec())
    taught_by(monkeypatch, ScriptedTeacher(label=lambda text: [json_answer(text)] * 3))
    walk_through(start(first), *TO_LABELING, StepName.LABELING)
    checks = [{"kind": "python", "source": "def check(input, output):\n    return 'The' not in output['subject']"}]
    stricter = json_spec()["output"] | {"checks": [*json_spec()["output"]["checks"], *checks]}
    second = make_compile(tenant, **json_spec(output=stricter))
    again = taught_by(monkeypatch, ScriptedTeacher(label=lambda text: [json_answer(text)] * 3))
    walk_through(start(second), *TO_LABELING, StepName.LABELING)
    facts = step(second, StepName.LABELING).output["facts"]
    assert facts["n_labeled_before"] > 0
    asked_before = facts["n_labeled"] + facts["n_unverified"] - facts["n_labeled_before"]
    assert sum(request.item is not None for request in again.asked) == asked_before
    refused = candidates(second, state="unverified")
    assert refused
    for one in refused:
        assert (subject_of(one.text)[:3], one.reasons) == ("The", ["python"])
    check_money(second)


def test_many_rejects_of_a_task_without_labels_show_training_gold(tenant, monkeypatch):
    n = {"asked": 0}

    def write(request):
        n["asked"] += 1
        texts = [f"{subject} {complaint}." for subject in SUBJECTS[:2] for complaint in COMPLAINTS]
        return [""] * request.n if n["asked"] <= 2 else texts[: request.n]

    teacher = taught_by(monkeypatch, ScriptedTeacher(write=write))
    row = make_compile(tenant, **json_spec())
    walk_through(start(row), StepName.SLICING, StepName.SYNTHESIS)
    shown = [unfence(asked.messages[-1].content) for asked in teacher.asked]
    assert shown[0] == ()
    texts = {one["input"] for one in json_spec()["examples"]["inline"]}
    assert len(shown[-1]) == 2
    assert set(shown[-1]) <= texts
