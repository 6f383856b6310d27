"""Pairs at the edges: shares that nearly sum to one, gold among the captures, teachers that answer less than asked."""

import itertools
from typing import Any

import pytest

from backend.blobs import get_jsonl
from backend.compiles.models import Compile
from backend.domain.errors import CustomerError
from backend.domain.lifecycle import StepName
from backend.domain.spec.parsing import parse_spec
from tests.compile_factories import LABELS, make_compile, small_spec
from tests.factories import make_tenant
from tests.workers.pipeline_helpers import (
    ScriptedTeacher,
    candidates,
    check_money,
    messages,
    start,
    step,
    taught_by,
    told_apart,
    walk_through,
)
from workers.labeling.voting import reply_of
from workers.teachers.prompts.candidate_and_label import parse_label
from workers.teachers.protocol import TeacherFailed

pytestmark = pytest.mark.usefixtures("committed_db")
TO_SELECTION = (StepName.SLICING, StepName.SYNTHESIS, StepName.VERIFICATION, StepName.SELECTION)


def make(**changes: Any) -> Compile:
    return make_compile(make_tenant(), **({"examples": {"inline": told_apart(24), "holdout": 0.5}} | changes))


def dataset(row: Compile) -> list[dict[str, Any]]:
    return get_jsonl(row.tenant_id, step(row, StepName.LABELING).output["digests"]["dataset"])


def test_shares_of_slices_that_sum_to_nearly_one_are_taken_as_they_are_meant(monkeypatch):
    taught_by(monkeypatch, ScriptedTeacher())
    names = ("late", "broken", "praise")
    slices = [{"name": name, "share": 0.33, "label": LABELS[i % 2]} for i, name in enumerate(names)]
    row = make(slices=slices, sampling={"n_candidates": 4})
    walk_through(start(row), *TO_SELECTION, StepName.LABELING)
    assert len(dataset(row)) > 0


def test_a_text_that_is_gold_trains_once_with_its_gold_label(monkeypatch):
    teacher = taught_by(monkeypatch, ScriptedTeacher(label=lambda text: [LABELS[0]] * 5))
    examples = told_apart(24)
    row = make(captures={"inline": [*itertools.islice(messages(), 6), *(e["input"] for e in examples)]})
    walk_through(start(row), *TO_SELECTION, StepName.LABELING)
    right = {e["input"]: e["output"] for e in examples}
    pairs = dataset(row)
    assert len({pair["input"] for pair in pairs}) == len(pairs)
    assert all(right.get(pair["input"], pair["label"]) == pair["label"] for pair in pairs)
    asked = {request.item for request in teacher.asked}
    assert not asked & right.keys(), "its label is known: nobody is paid to guess it"
    facts = step(row, StepName.LABELING).output["facts"]
    assert facts["n_pairs"] == len(pairs)
    assert facts["n_synthetic_pairs"] + facts["n_gold_pairs"] == len(pairs)
    assert facts["n_synthetic_pairs"] == len(candidates(row, state="trained"))


def test_a_label_that_nothing_has_ends_the_compile_before_it_trains(monkeypatch):
    taught_by(monkeypatch, ScriptedTeacher(label=lambda text: [LABELS[0]] * 5))
    examples = [{**e, "output": LABELS[0]} for e in told_apart(24)]
    examples[0]["output"] = examples[1]["output"] = LABELS[1]
    row = make(examples={"inline": examples, "holdout": 1.0}, gate={"min_heldout": 5})
    run = start(row)
    with pytest.raises(CustomerError, match="No training pair"):
        walk_through(run, *TO_SELECTION, StepName.LABELING)
    check_money(row)


@pytest.mark.parametrize(
    ("answers", "why", "words"),
    [
        (["It may be\n\u202eanything, who knows?"] * 5, "unread 4", '"It may be ?anything, who knows?"'),
        ([""] * 5, "unread 4", 'It answered "", for example'),
        ([LABELS[0], LABELS[1], "?"], "disagreed 4", f'"{LABELS[0]}" or "{LABELS[1]}"'),
    ],
)
def test_answers_of_which_none_is_a_label_end_the_compile_in_the_teachers_own_words(monkeypatch, answers, why, words):
    taught_by(monkeypatch, ScriptedTeacher(label=lambda text: answers))
    row = make(sampling={"n_candidates": 4, "label_samples": 5})
    with pytest.raises(CustomerError) as raised:
        walk_through(start(row), *TO_SELECTION, StepName.LABELING)
    assert raised.value.code == "no_valid_answers"
    assert why in raised.value.message
    assert words in raised.value.message
    check_money(row)


def test_answers_that_agree_on_no_label_leave_their_text_out(monkeypatch):
    texts: list[str] = []

    def label(text: str) -> list[str]:
        texts.append(text)
        return [f"{LABELS[0]}\u200b"] * 5 if text == texts[0] else ["nonsense"] * 5

    taught_by(monkeypatch, ScriptedTeacher(label=label))
    row = make(sampling={"n_candidates": 4})
    walk_through(start(row), *TO_SELECTION, StepName.LABELING)
    assert [one.text for one in candidates(row, state="trained")] == [texts[0]]
    assert {pair["input"] for pair in dataset(row)} <= {e["input"] for e in told_apart(24)} | {texts[0]}


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("The customer asks for it.\n\nrefund", None),
        ("The label is refund", None),
        ("refund - the customer asks for", "refund"),
        ("refund\n\n\n", "refund"),
        ('{"label": "refund", "reason": "the', "refund"),
    ],
)
def test_the_last_word_of_an_answer_that_was_cut_is_no_label(text, label):
    spec = parse_spec(small_spec())
    for finish_reason, expected in (("length", label), ("stop", "refund")):
        reply = reply_of(spec, {"text": text, "finish_reason": finish_reason})
        assert parse_label(reply, ["refund", "refund_status"]) == expected


def test_a_batch_that_fails_in_part_is_finished_later_and_nothing_is_asked_twice(monkeypatch):
    away = {"is": True}

    def label(text: str) -> list[str]:
        if away["is"] and "charged" in text:
            raise TeacherFailed("away", code="teacher_unreachable")
        return [LABELS["charged" in text]] * 5

    teacher = taught_by(monkeypatch, ScriptedTeacher(label=label))
    row = make(captures={"inline": list(itertools.islice(messages(), 16))}, sampling={"k_select": 12})
    run = start(row)
    walk_through(run, *TO_SELECTION)
    with pytest.raises(TeacherFailed):
        walk_through(run, StepName.LABELING)
    check_money(row)
    away["is"] = False
    walk_through(run, StepName.LABELING)
    asked = [request.item for request in teacher.asked if request.item is not None]
    assert all(asked.count(text) == 1 for text in asked if text and "charged" not in text)
    assert len(candidates(row, state__in=["trained", "left_out"])) == len(
        candidates(row, state__in=["trained", "left_out", "unverified", "picked"])
    )
    check_money(row)
