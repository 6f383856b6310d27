"""What trains, by the shares of the slices and of the labels."""

import itertools
from collections import Counter
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.blobs import get_jsonl
from backend.compiles.models import Candidate, Slice
from backend.domain.answers.candidates import text_key
from backend.domain.lifecycle import StepName
from backend.domain.spec.parsing import parse_spec
from tests.compile_factories import LABELS, make_compile, small_spec
from tests.factories import make_tenant
from tests.workers.answer_helpers import json_answer, json_spec
from tests.workers.pipeline_helpers import (
    COMPLAINTS,
    SUBJECTS,
    ScriptedTeacher,
    candidates,
    slices,
    start,
    step,
    taught_by,
    told_apart,
    walk_through,
)
from workers.training.training_set import TrainingSet, training_set

SOME_GOLD = [{"input": f"gold {i}", "output": LABELS[i % 2]} for i in range(4)]


def part(nth: int, share: float, *, k: int = 4, **changes: Any) -> Slice:
    fields = {"position": nth, "name": f"slice {nth}", "n_candidates": 12, "k_requested": k}
    return Slice(id=UUID(int=nth), share_ppm=round(share * 1_000_000), **(fields | changes))


def labeled(of: Slice, n: int, *, label: str = "", start: int = 0) -> list[Candidate]:
    """Candidates that the teacher agreed upon, none like another."""
    rows = []
    for i in range(start, start + n):
        text = f"text {i} of {of.name}"
        vector = np.random.default_rng([of.position, i]).standard_normal(16).astype(np.float32)
        made = {"text": text, "text_key": text_key(text), "embedding": (vector / np.linalg.norm(vector)).tobytes()}
        rows.append(Candidate(slice_id=of.id, label=label, answer="{}", agreement_ppm=1_000_000, **made))
    return rows


def of_slices(parts: list[Slice], rows: list[Candidate], **sampling: Any) -> Counter[str]:
    gold = [{"input": f"gold {i}", "output": "{}"} for i in range(80)]
    output = {"type": "json", "schema": {"type": "object"}}
    spec = parse_spec(small_spec(output=output, sampling=sampling, examples={"inline": gold, "holdout": 0.5}))
    made = training_set(spec, parts, rows, [], [])
    return Counter(row["input"].partition(" of ")[2] for row in made.rows)


def of_labels(
    shares: list[float], n_each: list[int], gold: list[dict[str, str]], *, k: int | str | None, by: str = "drop"
) -> TrainingSet:
    labels = [{"name": name, "share": share} for name, share in zip(LABELS, shares, strict=True)]
    sampling = {"k_distill": k, "n_candidates": 60, "k_select": 60, "balance": by}
    spec = parse_spec(small_spec(output={"type": "label", "labels": labels}, sampling=sampling))
    one = part(0, 1.0)
    rows = [*labeled(one, n_each[0], label=LABELS[0]), *labeled(one, n_each[1], label=LABELS[1], start=100)]
    return training_set(spec, [one], rows, gold, [])


def test_a_json_tasks_slices_train_by_their_shares():
    parts = [part(0, 0.5), part(1, 0.3), part(2, 0.2)]
    rows = [row for each in parts for row in labeled(each, 20)]
    sizes = {"n_candidates": 20, "k_select": 20, "k_distill": 20}
    assert of_slices(parts, rows, **sizes) == {"slice 0": 10, "slice 1": 6, "slice 2": 4}
    poor = [*labeled(parts[0], 4), *labeled(parts[1], 20), *labeled(parts[2], 20)]
    assert of_slices(parts, poor, **sizes) == {"slice 0": 4, "slice 1": 10, "slice 2": 6}, "the rest, 3 to 2"


def test_captures_count_with_their_k_beside_the_shares_of_the_slices():
    parts = [part(0, 0.75, k=6), part(1, 0.25, k=2), part(2, 1.0, k=8, name="captured", is_captured=True)]
    rows = [row for each in parts for row in labeled(each, 12)]
    counts = of_slices(parts, rows, n_candidates=60, k_select=60, k_distill=16)
    assert counts == {"slice 0": 6, "slice 1": 2, "captured": 8}


@given(st.integers(1, 9), st.integers(8, 30))
def test_labels_train_by_their_declared_shares_with_gold_counted(tenths: int, k: int):
    """30 labelled pairs of each label and four of gold: K of them, so that the set as a whole has the shares."""
    made = of_labels([tenths / 10, 1 - tenths / 10], [30, 30], SOME_GOLD, k=k)
    counts = Counter(row["label"] for row in made.rows)
    assert made.balanced is not None
    assert made.balanced.within_tolerance
    assert abs(counts[LABELS[0]] / counts.total() - tenths / 10) <= 0.05 + 1e-9
    first = tenths / 10 * (k + 4)
    if 3 <= first <= k + 1:  # gold is no hindrance: nothing was labelled to be thrown away
        assert counts.total() == k + 4
        assert abs(counts[LABELS[0]] - first) < 1


def test_every_labelled_pair_trains_unless_half_is_asked_for():
    for k, n in ((None, 30), ("half", 15), (9, 9)):
        made = of_labels([0.5, 0.5], [15, 15], SOME_GOLD, k=k)
        assert len(made.rows) - len(SOME_GOLD) == n
        assert made.selection.method == ("all" if k is None else "two_step")


def test_a_skew_of_labels_is_reported_weighed_or_thinned_out_as_the_spec_says():
    """30 pairs of one label and 10 of the other, where each was to be half."""
    made = {by: of_labels([0.5, 0.5], [30, 10], [], k=None, by=by) for by in ("report", "weight", "drop")}
    counts = {by: Counter(row["label"] for row in one.rows) for by, one in made.items()}
    assert counts["report"] == counts["weight"] == {LABELS[0]: 30, LABELS[1]: 10}
    assert counts["drop"] == {LABELS[0]: 12, LABELS[1]: 10}, "within 5 points of a half"
    weights = {(row["label"], row["weight"]) for row in made["weight"].rows}
    assert weights == {(LABELS[0], 0.666667), (LABELS[1], 2.0)}
    assert {row["weight"] for by in ("report", "drop") for row in made[by].rows} == {1.0}
    within = {by: one.balanced is not None and one.balanced.within_tolerance for by, one in made.items()}
    assert within == {"report": False, "weight": False, "drop": True}


def test_a_rare_label_is_weighed_up_to_four_times():
    made = of_labels([0.5, 0.5], [57, 3], [], k=None, by="weight")
    assert {row["weight"] for row in made.rows if row["label"] == LABELS[1]} == {4.0}


def test_gold_of_one_label_leaves_the_places_to_the_others():
    gold = [{"input": f"gold {i}", "output": LABELS[0]} for i in range(10)]
    made = of_labels([0.5, 0.5], [20, 20], gold, k=12)
    synthetic = Counter(row["label"] for row in made.rows if not row["input"].startswith("gold"))
    assert synthetic == {LABELS[0]: 1, LABELS[1]: 11}


@pytest.mark.usefixtures("committed_db")
def test_shares_set_what_is_bought_kept_and_trained_of_a_json_task(monkeypatch):
    pairs = zip(itertools.cycle(SUBJECTS), itertools.cycle(COMPLAINTS), strict=False)
    texts = (f"{subject} {complaint}." for subject, complaint in pairs)  # no three in a row are alike
    teacher = ScriptedTeacher(
        write=lambda request: list(itertools.islice(texts, request.n)), label=lambda text: [json_answer(text)] * 3
    )
    taught_by(monkeypatch, teacher)
    parts = [{"name": "usual", "share": 0.75}, {"name": "rare", "share": 0.25}]
    sampling = {"n_candidates": 8, "k_select": 3, "k_distill": 4, "label_samples": 3}
    inputs = [example["input"] for example in told_apart(24)]  # no candidate is like one of them
    gold = [{"input": text, "output": {"subject": text.split()[0], "urgent": False}} for text in inputs]
    examples = {"inline": gold, "holdout": 0.5}
    row = make_compile(make_tenant(), **json_spec(slices=parts, sampling=sampling, examples=examples))
    names = (StepName.SLICING, StepName.SYNTHESIS, StepName.VERIFICATION, StepName.SELECTION, StepName.LABELING)
    walk_through(start(row), *names)
    written = slices(row)
    assert [(each.n_candidates, each.n_generated, each.k_actual) for each in written] == [(12, 12, 5), (4, 4, 1)]
    assert sum(asked.n for asked in teacher.asked if asked.item is None) == 16
    rows = get_jsonl(row.tenant_id, step(row, StepName.LABELING).output["digests"]["dataset"])
    slice_of = {each.text: each.slice_id for each in candidates(row)}
    counts = Counter(slice_of[pair["input"]] for pair in rows if pair["input"] in slice_of)
    assert [counts[each.id] for each in written] == [3, 1]
