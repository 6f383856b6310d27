"""Slices that name their labels know each other: what the rest of the compile contradicts is set aside."""

import itertools

import pytest

from backend.domain.lifecycle import StepName
from tests.compile_factories import LABELS, make_compile
from tests.factories import make_tenant
from tests.workers.pipeline_helpers import ScriptedTeacher, messages, slices, start, taught_by, walk_through

pytestmark = pytest.mark.usefixtures("committed_db")
STEPS = (StepName.SLICING, StepName.SYNTHESIS, StepName.VERIFICATION, StepName.SELECTION)
BY_LABELS = ("The rest of the pool bears the labels out", "About ")


def reasons(monkeypatch, parts: list[dict[str, object]], **sampling: object) -> list[str]:
    texts = messages()
    taught_by(monkeypatch, ScriptedTeacher(write=lambda request: list(itertools.islice(texts, request.n))))
    gold = [{"input": text, "output": LABELS[i % 2]} for i, text in enumerate(itertools.islice(messages(), 24, 48))]
    row = make_compile(
        make_tenant(),
        slices=parts,
        examples={"inline": gold, "holdout": 0.5},  # as long as the candidates: their forms are all 1
        sampling={"n_candidates": 12, "k_select": 4, **sampling},
    )
    walk_through(start(row), *STEPS)
    return [part.selection["method_reason"] for part in slices(row)]


def test_slices_of_labels_are_selected_with_the_others_labels(monkeypatch):
    parts = [{"name": name, "share": 0.5, "label": name} for name in LABELS[:2]]
    assert all(reason.startswith(BY_LABELS) for reason in reasons(monkeypatch, parts))


def test_slices_without_labels_and_named_methods_know_nothing_of_others(monkeypatch):
    parts = [{"name": name, "share": 0.5} for name in ("usual", "rare")]
    assert not any(reason.startswith(BY_LABELS) for reason in reasons(monkeypatch, parts))
    parts = [{"name": name, "share": 0.5, "label": name} for name in LABELS[:2]]
    assert reasons(monkeypatch, parts, method="dpp") == ["", ""]
