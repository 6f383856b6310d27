"""Servers that give one choice whatever `n` says: the pool still gets its N, and a label its k votes."""

import itertools
from typing import Any

import pytest

from backend.compiles.models import Compile
from backend.domain.errors import CustomerError
from backend.domain.lifecycle import StepName
from tests.compile_factories import LABELS, make_compile
from tests.factories import make_tenant
from tests.workers.pipeline_helpers import (
    ScriptedTeacher,
    calls,
    candidates,
    check_money,
    messages,
    slices,
    start,
    step,
    take_over,
    taught_by,
    told_apart,
    walk_through,
)
from workers.teachers.protocol import TeacherFailed

pytestmark = pytest.mark.usefixtures("committed_db")
TO_SELECTION = (StepName.SLICING, StepName.SYNTHESIS, StepName.VERIFICATION, StepName.SELECTION)


class Killed(BaseException):
    """Nobody catches it: the process is gone."""


def make(**changes: Any) -> Compile:
    return make_compile(make_tenant(), **({"examples": {"inline": told_apart(24), "holdout": 0.5}} | changes))


def writer(most: int) -> Any:
    texts = messages()
    return lambda request: list(itertools.islice(texts, min(most, request.n)))


@pytest.mark.parametrize("most", [1, 3, 8])
def test_a_slice_gets_its_candidates_however_few_come_in_an_answer(monkeypatch, most):
    teacher = taught_by(monkeypatch, ScriptedTeacher(write=writer(most)))
    row = make(sampling={"n_candidates": 12})
    walk_through(start(row), *TO_SELECTION)
    for part in slices(row):
        assert (part.n_generated, part.reactions, part.k_actual) == (12, [], 4)
    n_calls = len(teacher.asked) / 2
    assert n_calls <= {1: 12, 3: 5, 8: 2}[most], "asked for no more than it gives"
    check_money(row)


def test_a_label_is_voted_on_by_as_many_answers_as_the_spec_says(monkeypatch):
    said = itertools.cycle([LABELS[0], LABELS[0], LABELS[1], LABELS[0], "?"])
    by_text: dict[str, Any] = {}
    teacher = taught_by(
        monkeypatch,
        ScriptedTeacher(
            label=lambda text: [next(by_text.setdefault(text, itertools.cycle(list(itertools.islice(said, 5)))))]
        ),
    )
    row = make(sampling={"n_candidates": 3, "label_samples": 5})
    walk_through(start(row), *TO_SELECTION, StepName.LABELING)
    rows = candidates(row, state__in=["trained", "left_out", "unverified"])
    assert rows
    assert all(c.agreement_ppm == 600_000 and sum(c.votes.values()) == 4 for c in rows)
    asked = [request for request in teacher.asked if request.item is not None]
    assert len({request.seed for request in asked}) == len(asked), "the same seed would be the same answer"
    assert [request.n for request in asked[: len(rows)]] == [5] * len(rows)
    check_money(row)


def test_an_answer_without_choices_is_not_asked_for_without_end(monkeypatch):
    taught_by(monkeypatch, ScriptedTeacher(label=lambda text: []))
    row = make(sampling={"n_candidates": 3, "label_samples": 4})
    with pytest.raises(CustomerError, match="can be trained on"):
        walk_through(start(row), *TO_SELECTION, StepName.LABELING)
    assert {c.state for c in candidates(row)} == {"dropped", "unverified"}


@pytest.mark.parametrize("dies_at", range(1, 12, 2))
def test_a_worker_that_dies_between_the_calls_of_one_text_loses_none_of_them(monkeypatch, dies_at):
    n = itertools.count(1)

    def label(text: str) -> list[str]:
        if next(n) == dies_at:
            raise Killed
        return [LABELS["charged" in text]]

    teacher = taught_by(monkeypatch, ScriptedTeacher(label=label))
    spec_of_teacher = {"provider": "grammar", "model": "kolm-grammar-1", "concurrency": 2}
    row = make(sampling={"n_candidates": 3, "label_samples": 3}, teacher=spec_of_teacher)
    run = start(row)
    walk_through(run, *TO_SELECTION)
    n_labels = 3 * len(candidates(row, state="picked"))
    if dies_at <= n_labels:
        with pytest.raises(Killed):
            walk_through(run, StepName.LABELING)
        run = take_over(run, row)
    walk_through(run, StepName.LABELING)
    rows = candidates(row, state__in=["trained", "left_out", "unverified"])
    assert all(sum(c.votes.values()) == 3 for c in rows)
    applied = [call for call in calls(row) if call.step == StepName.LABELING and call.state == "applied"]
    assert len(applied) == n_labels
    asked = sum(request.item is not None for request in teacher.asked)
    assert asked - n_labels <= 2, "no more than one batch is repeated"
    check_money(row)


def test_a_failure_in_the_middle_of_a_text_goes_on_from_there(monkeypatch):
    n = itertools.count(1)

    def label(text: str) -> list[str]:
        if next(n) in (5, 6):
            raise TeacherFailed("away", code="teacher_unreachable")
        return [LABELS["charged" in text]]

    taught_by(monkeypatch, ScriptedTeacher(label=label))
    row = make(sampling={"n_candidates": 3, "label_samples": 3})
    run = start(row)
    walk_through(run, *TO_SELECTION)
    for _ in range(3):
        try:
            walk_through(run, StepName.LABELING)
            break
        except TeacherFailed:
            continue
    assert step(row, StepName.LABELING).status == "succeeded"
    assert all(sum(c.votes.values()) == 3 for c in candidates(row, state__in=["trained", "left_out", "unverified"]))
    check_money(row)
