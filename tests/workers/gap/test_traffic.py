"""Captures are traffic: a compile keeps those that represent it, and their form ranks nothing."""

import itertools
from typing import Any

import pytest

from backend.compiles.models import Compile, Slice
from backend.domain.lifecycle import StepName
from tests.compile_factories import make_compile
from tests.factories import make_tenant
from tests.workers.pipeline_helpers import (
    ScriptedTeacher,
    candidates,
    messages,
    slices,
    start,
    taught_by,
    told_apart,
    walk_through,
)

pytestmark = pytest.mark.usefixtures("committed_db")
STEPS = (StepName.SLICING, StepName.SYNTHESIS, StepName.VERIFICATION, StepName.SELECTION)
A_LIST = "1. the parcel never came, 2. nobody answers"
A_LONG_ONE = " ".join(f"and then {text.lower()}" for text in itertools.islice(messages(), 12))


def selected(captures: list[str], **sampling: Any) -> tuple[Compile, Slice]:
    row = make_compile(
        make_tenant(),
        examples={"inline": told_apart(24), "holdout": 0.5},
        captures={"inline": captures},
        sampling=sampling,
    )
    walk_through(start(row), *STEPS)
    (pool,) = slices(row)
    return row, pool


@pytest.mark.parametrize("odd", [A_LIST, A_LONG_ONE])
def test_auto_represents_captures_and_an_odd_one_leaves_the_pool(monkeypatch, odd):
    """One odd capture made scores differ in few values, and `auto` took the method for that."""
    taught_by(monkeypatch, ScriptedTeacher())
    row, pool = selected([*itertools.islice(messages(), 24), odd], k_select=6)
    assert pool.selection["method"] == "representative"
    assert pool.selection["method_reason"].startswith("The rows are traffic")
    assert len(pool.selection["floor_dropped"]) == 1
    assert len(candidates(row, state="picked")) == 6
    assert odd not in {c.text for c in candidates(row, state="picked")}


def test_odd_captures_stay_where_too_few_others_are_left(monkeypatch):
    taught_by(monkeypatch, ScriptedTeacher())
    lists = [f"{i}. {text}" for i, text in enumerate(itertools.islice(messages(), 20, 28))]
    row, pool = selected([*itertools.islice(messages(), 4), *lists], k_select=8)
    assert pool.k_actual == 8
    plain = {c.text for c in candidates(row, state="picked")} - set(lists)
    assert len(plain) == 4, "the others first"


def test_a_method_that_the_spec_names_is_taken_for_captures_too(monkeypatch):
    taught_by(monkeypatch, ScriptedTeacher())
    _, pool = selected([*itertools.islice(messages(), 12), A_LIST], k_select=4, method="k_center")
    assert pool.selection["method"] == "k_center"
    assert pool.selection["floor_dropped"], "with its own floor of a third"
