"""Votes where they are needed, and rounds, through the steps on real rows with a recorded teacher."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from backend.blobs import get_jsonl
from backend.compiles.models import Compile
from backend.domain.labeling.votes_again import VOTE_SHARE
from backend.domain.lifecycle import StepName
from backend.drafts.models import Draft
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from tests.compile_factories import LABELS, fresh, make_compile
from tests.factories import make_tenant
from tests.workers.pipeline_helpers import (
    COMPLAINTS,
    ScriptedTeacher,
    calls,
    candidates,
    check_money,
    messages,
    slices,
    start,
    step,
    taught_by,
    walk_through,
)
from workers.teachers.replay import ReplayTeacher

pytestmark = pytest.mark.usefixtures("committed_db")
TO_SELECTION = (StepName.SLICING, StepName.SYNTHESIS, StepName.VERIFICATION, StepName.SELECTION)
ALL = (*TO_SELECTION, StepName.LABELING)
TEXTS = list(messages())


def right_label(text: str) -> str:
    """By what is complained of, which the embedder sees."""
    return LABELS[any(text.endswith(f"{complaint}.") for complaint in COMPLAINTS[:3])]


GOLD = [
    {"input": f"{subject} {complaint}.", "output": LABELS[i < 3]}
    for i, complaint in enumerate(COMPLAINTS)
    for subject in ("A chair", "The mirror", "My cousin", "Their website")
]


def other(label: str) -> str:
    return LABELS[label == LABELS[0]]


def recorded(monkeypatch: Any, answers: dict[str, list[str]] | None = None, *, texts: Sequence[str] = TEXTS) -> None:
    """The teacher is right, but for `answers` by text."""
    rows = [
        {"item": text, "completions": [{"text": one} for one in (answers or {}).get(text, [right_label(text)])]}
        for text in texts
    ]
    taught_by(monkeypatch, ReplayTeacher("\n".join(map(json.dumps, rows)).encode()))  # type: ignore[arg-type]


def make(tenant: Tenant | None = None, **changes: Any) -> Compile:
    """48 captures that are all picked."""
    parts: dict[str, Any] = {
        "examples": {"inline": GOLD, "holdout": 0.5},
        "captures": {"inline": TEXTS},
        "sampling": {"k_select": len(TEXTS), "min_agreement": 0.6},
    }
    return make_compile(tenant or make_tenant(), **(parts | changes))


def dataset(row: Compile) -> dict[str, Any]:
    return {
        one["input"]: one for one in get_jsonl(row.tenant_id, step(row, StepName.LABELING).output["digests"]["dataset"])
    }


def test_a_teacher_that_is_right_is_asked_once_an_input(monkeypatch):
    recorded(monkeypatch)
    row = make()
    walk_through(start(row), *ALL)
    labeled = candidates(row, state__in=["trained", "left_out"])
    assert len(labeled) == len(TEXTS)
    asked = [call for call in calls(row) if call.step == StepName.LABELING]
    assert len(asked) <= len(TEXTS) / (1 - VOTE_SHARE), "once, but for the pilot of disputed ones"
    assert sum(call.n for call in asked) == sum(sum(one.votes.values()) for one in labeled)
    assert all(one.label == right_label(one.text) for one in labeled)
    facts = step(row, StepName.LABELING).output["facts"]
    assert facts["votes"]["n"] == sum(call.n for call in asked)
    check_money(row)


def test_an_input_whose_first_answer_surprises_is_asked_again_and_gets_its_label(monkeypatch):
    wrong = [TEXTS[18], TEXTS[20]]
    recorded(monkeypatch, {text: [other(right_label(text)), *[right_label(text)] * 4] for text in wrong})
    row = make(sampling={"k_select": len(TEXTS), "min_agreement": 0.95})
    walk_through(start(row), *ALL)
    rows = {one.text: one for one in candidates(row, state__in=["trained", "left_out", "unverified"])}
    for text in wrong:
        assert sum(rows[text].votes.values()) > 1
        assert rows[text].label == right_label(text)
    n_votes = Counter(sum(one.votes.values()) for one in rows.values())
    assert n_votes[1] > len(TEXTS) / 2
    assert max(n_votes) <= 5
    check_money(row)


def test_a_named_number_of_votes_is_bought_for_every_pick_and_no_more(monkeypatch):
    recorded(monkeypatch)
    row = make(sampling={"k_select": len(TEXTS), "label_samples": 3})
    walk_through(start(row), *ALL)
    assert {sum(one.votes.values()) for one in candidates(row, state__in=["trained", "left_out"])} == {3}
    assert all(one.posterior is None for one in candidates(row))
    check_money(row)


def test_what_remains_possible_after_the_votes_is_the_pairs_target(monkeypatch):
    unsure = {text: [other(right_label(text)), right_label(text)] for text in TEXTS[3:12]}  # it answers them in turn
    recorded(monkeypatch, unsure)
    row = make()
    walk_through(start(row), *ALL)
    pairs = dataset(row)
    soft = {text: pair for text, pair in pairs.items() if "targets" in pair}
    assert soft
    for pair in soft.values():
        assert sum(pair["targets"].values()) == 1_000_000
        assert pair["label"] == max(pair["targets"], key=pair["targets"].__getitem__)
        assert min(pair["targets"].values()) >= 20_000
    assert not {e["input"] for e in GOLD} & soft.keys(), "gold is what it is"


def test_captures_are_labelled_in_rounds_up_to_their_k(monkeypatch):
    recorded(monkeypatch)
    row = make(sampling={"k_select": 32})
    walk_through(start(row), *ALL)
    rows = candidates(row)
    assert sum(one.state in ("trained", "left_out", "unverified") for one in rows) == 32
    why = Counter(one.bought_for for one in rows if one.bought_in is not None)
    assert sum(why.values()) == 12, "20 are labelled before a label is known"
    assert why["random"] > 0
    assert why["uncertain"] > 0
    purchases = step(row, StepName.LABELING).purchases
    bought = [one["n"] for one in purchases if "round" in one and "asked_again" not in one["why"]]
    assert bought == [3, 3, 3, 3]
    assert "stopped_for" in purchases[-1]
    facts = step(row, StepName.LABELING).output["facts"]
    assert [one["n"] for one in facts["purchases"] if "asked_again" not in one["why"]] == bought
    drawn = {one.text: one.label for one in rows if one.bought_for == "random" and one.state != "unverified"}
    pairs = get_jsonl(row.tenant_id, step(row, StepName.LABELING).output["digests"]["random_labels"])
    assert {pair["input"]: pair["label"] for pair in pairs} == drawn
    assert len(pairs) == len(drawn) > 0
    check_money(row)


def test_a_plan_that_decides_begins_small_and_buys_while_it_is_worth_it(monkeypatch):
    recorded(monkeypatch)
    row = make(plan="auto", sampling={})
    run = start(row)
    walk_through(run, *TO_SELECTION)
    assert len(candidates(row, state="picked")) == 20
    walk_through(run, StepName.LABELING)
    labeled = candidates(row, state__in=["trained", "left_out", "unverified"])
    assert len(labeled) > 20
    facts = step(row, StepName.LABELING).output["facts"]
    assert facts["stopped_for"] in {"pool", "flat", "worth", "gate_margin"}
    assert facts["purchases"][0]["round"] == 1
    assert sum(one["n"] for one in facts["purchases"] if "asked_again" not in one["why"]) == len(labeled) - 20
    assert facts["votes"]["n"] >= len(labeled)
    votes = sum(sum(one.votes.values()) for one in labeled)
    assert (facts["at_end"]["n_rows"], facts["at_end"]["n_votes"]) == (len(labeled), votes)
    assert 0 < facts["at_end"]["accuracy_ppm"] <= 1_000_000
    check_money(row)


def test_a_named_k_binds_a_plan_that_decides(monkeypatch):
    recorded(monkeypatch)
    row = make(plan="auto", sampling={"k_select": 26})
    walk_through(start(row), *ALL)
    assert len(candidates(row, state__in=["trained", "left_out", "unverified"])) <= 26
    assert step(row, StepName.LABELING).output["facts"]["stopped_for"] in {"limit", "gate_margin", "flat", "worth"}


def test_rejects_of_written_slices_are_bought_and_stay_drafts(monkeypatch):
    taught_by(monkeypatch, ScriptedTeacher(label=lambda text: [right_label(text)]))
    parts = [{"name": name, "share": 0.5} for name in ("money", "parcels")]
    row = make(plan="auto", captures=None, sampling={"n_candidates": 12}, slices=parts)
    run = start(row)
    walk_through(run, *TO_SELECTION)
    dropped = {one.id for one in candidates(row, state="dropped")}
    assert len(dropped) == 16
    walk_through(run, StepName.LABELING)
    bought = {one.id for one in candidates(row) if one.bought_in is not None}
    assert bought
    assert bought <= dropped
    with tenant_scope(row.tenant_id):
        drafts = dict(Draft.objects.filter(compile_id=row.id).values_list("candidate_id", "is_kept"))
    assert dropped & drafts.keys()
    assert not any(drafts[id] for id in dropped & drafts.keys())
    assert sum(part.k_actual for part in slices(row)) == 8 + len(bought)
    check_money(row)


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_tight_budget_buys_what_it_can_and_leaves_what_training_needs(monkeypatch, share):
    recorded(monkeypatch)
    least, most = (estimate_of(plan="auto", sampling={})[name] for name in ("low_microusd", "expected_microusd"))
    budget = least + round(share * (most - least))
    row = make(plan="auto", sampling={}, budget={"usd": budget / 1e6})
    walk_through(start(row), *ALL)
    fresh(row)
    facts = step(row, StepName.LABELING).output["facts"]
    assert facts["stopped_for"] == "budget"
    assert len(candidates(row, state__in=["trained", "left_out", "unverified"])) < len(TEXTS)
    check_money(row)


def estimate_of(**changes: Any) -> dict[str, int]:
    return make(**changes).estimate["total"]
