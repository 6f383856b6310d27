"""Inputs and teachers that rounds of labelling have to survive: few captures, one class, labels that say nothing or
contradict gold, a budget that ends."""

from typing import Any

import pytest

from backend.compiles.events import events_after
from backend.compiles.models import Compile
from backend.domain.errors import CustomerError
from backend.domain.lifecycle import StepName
from backend.tenants.isolation import tenant_scope
from tests.compile_factories import LABELS, change, fresh
from tests.workers.labeling.test_purchases import (
    ALL,
    GOLD,
    TEXTS,
    TO_SELECTION,
    dataset,
    make,
    other,
    recorded,
    right_label,
)
from tests.workers.labeling.test_resuming import Killed
from tests.workers.pipeline_helpers import candidates, check_money, start, step, take_over, walk_through
from workers.labeling import purchases

TIMES = [
    f"on {day} in {month}"
    for day in ("Monday", "Friday", "Sunday")
    for month in ("May", "June", "July", "August", "March", "April", "October")
]
OTHERS = ("A chair", "The mirror", "Their website", "The kettle", "Our sofa", "A rug")

pytestmark = pytest.mark.usefixtures("committed_db")


def warnings_of(row: Compile) -> set[str]:
    with tenant_scope(row.tenant_id):
        events = events_after(row.tenant_id, row.id, 0)
    return {event.data["code"] for event in events if event.type == "warning"}


def labeling(row: Compile) -> dict[str, Any]:
    return step(row, StepName.LABELING).output["facts"]


def test_forty_captures_are_all_labelled(monkeypatch):
    recorded(monkeypatch)
    row = make(plan="auto", sampling={}, captures={"inline": TEXTS[:40]})
    walk_through(start(row), *ALL)
    assert len(candidates(row, state__in=["trained", "left_out"])) == 40
    assert labeling(row)["stopped_for"] == "pool"
    check_money(row)


def test_captures_of_one_class_end_early_and_say_so(monkeypatch):
    """Gold alone has the other label."""
    recorded(monkeypatch, {text: [LABELS[0]] for text in TEXTS})
    row = make(plan="auto", sampling={})
    walk_through(start(row), *ALL)
    assert "teacher_constant" in warnings_of(row)
    assert {pair["label"] for pair in dataset(row).values()} == set(LABELS)
    check_money(row)


def test_a_label_that_nothing_has_is_known_before_the_rest_is_spent(monkeypatch):
    recorded(monkeypatch, {text: [LABELS[0]] for text in TEXTS})
    gold = [{**one, "output": LABELS[0]} for one in GOLD]
    gold[0]["output"] = gold[1]["output"] = LABELS[1]
    row = make(plan="auto", sampling={}, examples={"inline": gold, "holdout": 1.0}, gate={"min_heldout": 5})
    with pytest.raises(CustomerError, match="No training pair"):
        walk_through(start(row), *ALL)
    assert "label_missing" in warnings_of(row)
    first = step(row, StepName.LABELING).purchases[0]
    assert first["why"]["rare"] >= 2, "the two nearest to its name were asked about first"
    check_money(row)


@pytest.mark.nightly
def test_two_classes_at_1_to_500_train_with_both(monkeypatch):
    rare = "My cousin came with somebody else's name on it."  # as gold says it
    common = [f"{text[:-1]} {when}." for text in TEXTS[:24] for when in TIMES]
    texts = [*common[:500], rare]
    answers = {text: [LABELS[0]] for text in common} | {rare: [LABELS[1]]}
    recorded(monkeypatch, answers, texts=texts)
    gold = [{"input": f"{text[:-1]} indeed.", "output": LABELS[0]} for text in TEXTS[:20]]
    gold += [{"input": f"{who} came with somebody else's name on it.", "output": LABELS[1]} for who in OTHERS]
    row = make(
        plan="auto", sampling={"k_select": 80}, captures={"inline": texts}, examples={"inline": gold, "holdout": 0.5}
    )
    walk_through(start(row), *ALL)
    bought = {one.text: one for one in candidates(row, state__in=["trained", "left_out", "unverified"])}
    assert rare in bought, "of 501 inputs, 80 of which are bought"
    assert len(bought) <= 80
    assert {pair["label"] for pair in dataset(row).values()} == set(LABELS)
    check_money(row)


def test_labels_that_contradict_the_gold_are_reported_and_gold_wins(monkeypatch):
    twins = [f"{one['input'][:-1]} again." for one in GOLD]
    right = {f"{one['input'][:-1]} again.": one["output"] for one in GOLD}
    recorded(monkeypatch, {text: [other(right[text])] for text in twins}, texts=[*TEXTS, *twins])
    row = make(sampling={"method": "all"}, captures={"inline": [*TEXTS, *twins]})
    walk_through(start(row), *ALL)
    assert "labels_against_gold" in warnings_of(row)
    pairs = dataset(row)
    assert all(pairs[one["input"]]["label"] == one["output"] for one in GOLD if one["input"] in pairs)
    check_money(row)


def test_near_duplicates_with_different_labels_are_not_both_believed(monkeypatch):
    text = TEXTS[18]
    twin = text.replace("This", "That")
    recorded(monkeypatch, {text: [right_label(text)], twin: [other(right_label(text))]}, texts=[*TEXTS, twin])
    row = make(sampling={"method": "all"}, captures={"inline": [*TEXTS, twin]})
    walk_through(start(row), *ALL)
    believed = {one.text: one.posterior for one in candidates(row, state__in=["trained", "left_out", "unverified"])}
    assert max(believed[text].values()) > max(believed[twin].values())
    assert len(believed[twin]) == 2
    check_money(row)


def test_a_budget_that_ends_in_a_round_ends_labelling_and_not_the_compile(monkeypatch):
    recorded(monkeypatch)
    row = make(sampling={"k_select": 40})
    run = start(row)
    walk_through(run, *TO_SELECTION)
    real = purchases.open_round

    def dies(*given: Any) -> None:
        real(*given)
        raise Killed

    monkeypatch.setattr(purchases, "open_round", dies)
    with pytest.raises(Killed):
        walk_through(run, StepName.LABELING)
    monkeypatch.setattr(purchases, "open_round", real)
    n_labeled = len(candidates(row, state="labeled"))
    n_picked = len(candidates(row, state="picked"))
    assert (n_labeled, n_picked) == (20, 5)
    fresh(row)
    change(row, budget_microusd=row.spent_microusd + row.reserved_microusd)
    walk_through(take_over(run, row), StepName.LABELING)
    assert labeling(row)["stopped_for"] == "budget"
    assert len(candidates(row, state__in=["trained", "left_out"])) == 20
    assert not candidates(row, state="picked")
    assert [one.bought_in for one in candidates(row, state="dropped")] == [None] * 28
    check_money(row)


def test_a_budget_that_ends_before_the_start_is_labelled_ends_the_compile(monkeypatch):
    recorded(monkeypatch)
    row = make(plan="auto", sampling={})
    run = start(row)
    walk_through(run, *TO_SELECTION)
    fresh(row)
    change(row, budget_microusd=row.spent_microusd + row.reserved_microusd)
    with pytest.raises(CustomerError) as raised:
        walk_through(run, StepName.LABELING)
    assert raised.value.code == "budget_exhausted"
