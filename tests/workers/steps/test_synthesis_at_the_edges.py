"""Candidates at the edges: pools that a crash cut off, pools with nothing in them, slices with next to no share."""

import itertools
from collections import Counter
from typing import Any

import pytest

from backend.blobs import get_jsonl
from backend.compiles.models import Compile
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
from workers.candidates import generation
from workers.steps import selection
from workers.steps.selection import run_selection

pytestmark = pytest.mark.usefixtures("committed_db")
TO_VERIFICATION = (StepName.SLICING, StepName.SYNTHESIS, StepName.VERIFICATION)


class Killed(BaseException):
    """Nobody catches it: the process is gone."""


def make(**changes: Any) -> Compile:
    return make_compile(make_tenant(), **({"examples": {"inline": told_apart(24), "holdout": 0.5}} | changes))


def test_a_slice_of_hardly_any_share_is_written_once(monkeypatch):
    taught_by(monkeypatch, ScriptedTeacher())
    labels = [{"name": LABELS[0], "share": 0.9999999}, {"name": LABELS[1], "share": 0.0000001}]
    row = make(output={"type": "label", "labels": labels}, sampling={"n_candidates": 3})
    walk_through(start(row), *TO_VERIFICATION)
    assert [part.n_generated for part in slices(row)] == [5, 1]


def test_a_pool_of_which_nothing_is_usable_is_told_and_selected_as_empty(monkeypatch):
    taught_by(monkeypatch, ScriptedTeacher(write=lambda request: [""] * request.n))
    row = make(sampling={"n_candidates": 5})
    run = start(row)
    walk_through(run, *TO_VERIFICATION, StepName.SELECTION)
    assert [(part.k_actual, part.is_synthesized) for part in slices(row)] == [(0, True), (0, True)]
    assert {reaction["reaction"] for part in slices(row) for reaction in part.reactions} >= {"exemplars", "hotter"}
    check_money(row)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_smallest_pools_go_through(monkeypatch, n):
    taught_by(monkeypatch, ScriptedTeacher())
    row = make(sampling={"n_candidates": n})
    walk_through(start(row), *TO_VERIFICATION, StepName.SELECTION, StepName.LABELING)
    assert all(part.k_actual == 1 for part in slices(row))
    check_money(row)


def few_groups() -> ScriptedTeacher:
    """Near-duplicates first, so that a gap is found; other texts when asked again."""
    fresh, n = messages(), itertools.count()

    def write(request: Any) -> list[str]:
        if "hotter" in request.messages[-1].content or request.temperature > 1.0:
            return list(itertools.islice(fresh, request.n))
        texts = ("Where is my money?", "Give me a refund now!", "The parcel is broken, help")
        return [f"{texts[i % 3]}{'!' * (next(n) + 1)}" for i in range(request.n)]

    return ScriptedTeacher(write=write)


@pytest.mark.parametrize("dies_in", ["fill_round", "embed_slice", "score_slice"])
def test_a_round_of_resynthesis_that_a_crash_cut_off_is_finished_by_the_next_worker(monkeypatch, dies_in):
    taught_by(monkeypatch, few_groups())
    row = make(sampling={"n_candidates": 9, "k_select": 6, "on_gap": "resynthesize"})
    run = start(row)
    walk_through(run, *TO_VERIFICATION)
    module = selection if dies_in == "score_slice" else generation
    real = getattr(module, dies_in)

    def die(*args: Any, **kwargs: Any) -> None:
        if dies_in == "fill_round":
            real(*args, **kwargs)  # its candidates are there, without vectors
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(module, dies_in, die)
        with pytest.raises(Killed):
            run_selection(run)
    assert any(part.round > 0 for part in slices(row))
    run = take_over(run, row)
    walk_through(run, StepName.SELECTION)
    pools = slices(row)
    assert all(part.selection is not None for part in pools)
    assert all(
        c.score is not None and c.embedding is not None for c in candidates(row, state__in=["picked", "dropped"])
    )
    assert all(0 <= c.score <= 1 for c in candidates(row, state="picked")), "the default verifier scored every one"
    for part in pools:
        asked = {call.key.split(":")[2] for call in calls(row) if call.key.startswith(f"synthesis:{part.position}:")}
        assert asked == {str(i) for i in range(part.round + 1)}, "no round was skipped"
    check_money(row)


def test_what_resynthesis_costs_stands_in_the_step_that_asked_for_it(monkeypatch):
    taught_by(monkeypatch, few_groups())
    row = make(sampling={"n_candidates": 9, "k_select": 6, "on_gap": "resynthesize"})
    run = start(row)
    walk_through(run, *TO_VERIFICATION)
    signed = step(row, StepName.SYNTHESIS).spent_microusd
    walk_through(run, StepName.SELECTION)
    assert any(part.round > 0 for part in slices(row))
    assert step(row, StepName.SYNTHESIS).spent_microusd == signed, "its receipt is signed"
    assert step(row, StepName.SELECTION).spent_microusd > 0
    assert {call.step for call in calls(row)} == {StepName.SYNTHESIS, StepName.SELECTION}
    check_money(row)


def test_the_same_spec_twice_picks_the_same_texts(monkeypatch):
    picks = []
    for _ in range(2):
        taught_by(monkeypatch, ScriptedTeacher())
        row = make(sampling={"n_candidates": 12})
        walk_through(start(row), *TO_VERIFICATION, StepName.SELECTION)
        picks.append([c.text for c in candidates(row, state="picked")])
    assert picks[0] == picks[1]
    assert len(picks[0]) == 8


def test_captures_that_are_gold_never_reach_the_teacher(monkeypatch):
    teacher = taught_by(monkeypatch, ScriptedTeacher())
    captured = [*itertools.islice(messages(), 12), *(pair["input"] for pair in told_apart(24))]
    row = make(captures={"inline": captured})
    walk_through(start(row), *TO_VERIFICATION, StepName.SELECTION, StepName.LABELING)
    rejected = candidates(row, state="rejected")
    assert Counter(reason for c in rejected for reason in c.reasons) == {"held_out": 12, "gold": 12}
    asked = {request.item for request in teacher.asked}
    assert not asked & {c.text for c in rejected}


def test_captures_that_are_nearly_held_out_are_counted_as_rejected_and_never_paid_for(monkeypatch):
    """A held-out text with two letters more is its twin; a training text with one stays."""
    teacher = taught_by(monkeypatch, ScriptedTeacher())
    gold = [pair["input"] for pair in told_apart(24)]
    twins = [f"{text} ok" for text in gold]
    row = make(captures={"inline": [*itertools.islice(messages(), 12), *twins]}, sampling={"k_select": 24})
    walk_through(start(row), *TO_VERIFICATION, StepName.SELECTION, StepName.LABELING)
    rejected = {c.text for c in candidates(row, state="rejected")}
    heldout = {
        pair["input"]
        for pair in get_jsonl(row.tenant_id, step(row, StepName.SLICING).output["digests"]["gold_heldout"])
    }
    assert rejected == {f"{text} ok" for text in heldout}
    assert {tuple(c.reasons) for c in candidates(row, state="rejected")} == {("held_out_twin",)}
    captured = next(part for part in slices(row) if part.is_captured)
    assert captured.n_rejected == len(rejected) == 12
    assert step(row, StepName.VERIFICATION).output["facts"]["rejected_for"] == {"held_out_twin": 12}
    assert not {request.item for request in teacher.asked} & rejected
