"""The three automatic reactions: to a pool that is one text over and over, to candidates that fail the checks, to
labels that are skewed."""

import itertools
from collections import Counter
from typing import Any

import pytest

from backend.blobs import get_jsonl
from backend.compiles.models import Compile, CompileEvent
from backend.domain.lifecycle import StepName
from backend.drafts.models import Draft, Source
from backend.drafts.vault import open_vault
from backend.tenants.isolation import tenant_scope
from tests.compile_factories import LABELS, make_compile
from tests.factories import make_tenant
from tests.workers.pipeline_helpers import (
    ScriptedTeacher,
    candidates,
    messages,
    slices,
    start,
    step,
    taught_by,
    told_apart,
    walk_through,
)

pytestmark = pytest.mark.usefixtures("committed_db")
TO_SELECTION = (StepName.SLICING, StepName.SYNTHESIS, StepName.VERIFICATION, StepName.SELECTION)
PART = {"name": "late", "share": 1.0, "hint": "The parcel is late.", "exemplars": ["Where is it?", "Two weeks late!"]}


def make(**changes: Any) -> Compile:
    return make_compile(make_tenant(), **({"examples": {"inline": told_apart(24), "holdout": 0.5}} | changes))


def warnings(row: Compile) -> Counter[str]:
    with tenant_scope(row.tenant_id):
        return Counter(e.data["code"] for e in CompileEvent.objects.filter(compile=row, type="warning"))


def test_a_collapsed_pool_is_asked_hotter_twice_then_another_model_then_told(monkeypatch):
    teacher = taught_by(monkeypatch, ScriptedTeacher(write=lambda request: ["My parcel is late!"] * request.n))
    row = make(
        slices=[PART],
        sampling={"n_candidates": 6},
        teacher={"provider": "grammar", "model": "kolm-grammar-1", "fallback_model": "kolm-grammar-1"},
    )
    walk_through(start(row), *TO_SELECTION[:2])
    (pool,) = slices(row)
    reactions = [reaction["reaction"] for reaction in pool.reactions]
    assert reactions == ["hotter", "hotter", "fallback_model", "collapsed"]
    assert [round(t, 2) for t in dict.fromkeys(r.temperature for r in teacher.asked)] == [1.0, 1.3, 1.6]
    assert warnings(row)["collapse_detected"] == 1


def test_a_pool_that_becomes_varied_when_hot_is_left_alone_from_there(monkeypatch):
    texts = messages()

    def write(request: Any) -> list[str]:
        cold = request.temperature < 1.2
        return ["My parcel is late!"] * request.n if cold else list(itertools.islice(texts, request.n))

    taught_by(monkeypatch, ScriptedTeacher(write=write))
    row = make(slices=[PART], sampling={"n_candidates": 6})
    walk_through(start(row), *TO_SELECTION[:2])
    assert [reaction["reaction"] for reaction in slices(row)[0].reactions] == ["hotter"]
    assert len(candidates(row, state="valid")) == 4


def test_many_rejects_are_answered_with_two_exemplars_once(monkeypatch):
    texts = messages()

    def write(request: Any) -> list[str]:
        is_shown = "Two weeks late!" in request.messages[-1].content and request.seed is not None
        good = list(itertools.islice(texts, request.n))
        return good if len(teacher.asked) > 1 and is_shown else [text if i % 2 else "no" for i, text in enumerate(good)]

    teacher = taught_by(monkeypatch, ScriptedTeacher(write=write))
    gate = {"kind": "length", "min_chars": 8, "max_chars": 300, "gate": True}
    row = make(slices=[PART], sampling={"n_candidates": 8}, verifiers=[gate])
    walk_through(start(row), *TO_SELECTION[:2])
    (pool,) = slices(row)
    assert [reaction["reaction"] for reaction in pool.reactions] == ["exemplars"]
    assert all("Where is it?" in request.messages[-1].content for request in teacher.asked[1:])
    assert {c.state for c in candidates(row, text="no")} == {"rejected"}
    assert warnings(row) == {"high_reject_rate": 1}


def test_skewed_labels_are_thinned_out_to_within_five_points_of_the_declared_shares(monkeypatch):
    labels = [{"name": LABELS[0], "share": 0.5}, {"name": LABELS[1], "share": 0.5}]
    taught_by(monkeypatch, ScriptedTeacher(label=lambda text: [LABELS[0]] * 5))
    row = make(
        output={"type": "label", "labels": labels},
        slices=[PART],
        sampling={"n_candidates": 24, "k_select": 12, "k_distill": 12, "balance": "drop"},
    )
    walk_through(start(row), *TO_SELECTION, StepName.LABELING)
    dataset = get_jsonl(row.tenant_id, step(row, StepName.LABELING).output["digests"]["dataset"])
    counts = Counter(pair["label"] for pair in dataset)
    assert abs(counts[LABELS[0]] / counts.total() - 0.5) <= 0.05
    assert warnings(row)["label_skew"] == 1
    assert candidates(row, state="left_out"), "what was thinned out is shown as left out"


def test_skewed_labels_all_train_weighed_and_the_skew_is_warned_of(monkeypatch):
    labels = [{"name": LABELS[0], "share": 0.5}, {"name": LABELS[1], "share": 0.5}]
    taught_by(monkeypatch, ScriptedTeacher(label=lambda text: [LABELS[0]] * 5))
    row = make(output={"type": "label", "labels": labels}, slices=[PART], sampling={"n_candidates": 24, "k_select": 12})
    walk_through(start(row), *TO_SELECTION, StepName.LABELING)
    dataset = get_jsonl(row.tenant_id, step(row, StepName.LABELING).output["digests"]["dataset"])
    assert not candidates(row, state="left_out")
    weights = {pair["label"]: pair["weight"] for pair in dataset}
    assert weights[LABELS[0]] < 1 < weights[LABELS[1]]
    assert warnings(row)["label_skew_remains"] == 1


def test_what_a_selection_does_not_keep_is_stored_as_drafts_with_what_reuse_needs(monkeypatch):
    taught_by(monkeypatch, ScriptedTeacher())
    row = make(slices=[PART], sampling={"n_candidates": 12})
    walk_through(start(row), *TO_SELECTION)
    (pool,) = slices(row)
    assert (pool.k_requested, pool.k_actual) == (4, 4)
    with tenant_scope(row.tenant_id):
        drafts = list(Draft.objects.filter(compile_id=row.id))
        vault = open_vault(row.tenant_id, row.family)
        texts = {vault.unseal(bytes(d.text_sealed)) for d in drafts if not d.is_kept}
        (source,) = Source.objects.filter(compile_id=row.id)
    assert texts == {c.text for c in candidates(row, state="dropped")}
    assert len(texts) == 12 - 4
    assert len(source.embedding) == 384
    for draft in drafts:
        assert draft.logprob is not None
        assert draft.n_tokens > 0
        assert draft.score is not None
        assert draft.cost_microusd > 0
