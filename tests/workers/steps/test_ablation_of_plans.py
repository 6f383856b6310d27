"""The arms of a compile whose plan decided how many inputs are labelled."""

import pytest

from backend.compiles.lifecycle import ablations
from backend.compiles.models import Compile
from backend.compiles.states import LABELED_STATES
from backend.domain.errors import Conflict
from backend.domain.ids import Prefix, encode_id
from backend.domain.lifecycle import StepName
from backend.domain.planning.ablations import Arm
from backend.tenants.isolation import tenant_scope
from tests.workers.labeling.test_purchases import TEXTS, make, recorded, right_label
from tests.workers.labeling.test_scores import scored
from tests.workers.labeling.test_votes_again import GUESSED, n_asked_again, n_votes
from tests.workers.measured_helpers import TO_LABELING, walked_and_measured
from tests.workers.pipeline_helpers import (
    ScriptedTeacher,
    calls,
    candidates,
    check_money,
    slices,
    start,
    step,
    taught_by,
)
from workers.pipeline import steps_of
from workers.step.durable import begin_step

pytestmark = pytest.mark.usefixtures("committed_db")


def arm_of(source: Compile, arm: Arm) -> Compile:
    """An arm with its labels."""
    with tenant_scope(source.tenant_id):
        row = ablations.start(source, arm, budget_microusd=None, api_key_id=None)
    run = start(row)
    for name in TO_LABELING:
        begin_step(run, name)
        steps_of(row)[name](run)
    return row


def labeled(row: Compile) -> set[str]:
    return {one.text for one in candidates(row, state__in=LABELED_STATES)}


def asked(row: Compile) -> set[str]:
    keys = {call.key.split(":")[1] for call in calls(row) if call.step == StepName.LABELING}
    return {one.text for one in candidates(row) if one.text_key in keys}


@pytest.mark.nightly
def test_arm_fixed_labels_its_k_of_the_captures_and_buys_no_label_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded(monkeypatch)
    row = make(plan="auto", sampling={"k_select": 32, "label_samples": 1})
    source = walked_and_measured(start(row), row)
    arm = arm_of(source, Arm.FIXED)
    assert len(labeled(arm)) == 32
    assert asked(arm) == labeled(arm) - labeled(source)
    purchases = step(arm, StepName.LABELING).purchases
    assert [one["n"] for one in purchases if "round" in one] == [3, 3, 3, 3], "as a compile with a fixed plan"
    check_money(arm)


def test_arm_fixed_picks_what_was_picked_of_written_slices_before_a_label_was_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taught_by(monkeypatch, ScriptedTeacher(label=lambda text: [right_label(text)]))
    parts = [{"name": name, "share": 0.5} for name in ("money", "parcels")]
    row = make(plan="auto", captures=None, sampling={"n_candidates": 12, "label_samples": 1}, slices=parts)
    source = walked_and_measured(start(row), row)
    first = {one.text for one in candidates(source, state__in=LABELED_STATES) if one.bought_in is None}
    assert len(first) == 8 < len(labeled(source))
    arm = arm_of(source, Arm.FIXED)
    assert labeled(arm) == first
    assert asked(arm) == set()
    check_money(arm)


@pytest.mark.nightly
@pytest.mark.parametrize("arm", [Arm.ALL, Arm.RANDOM])
def test_the_baselines_of_a_plan_that_decided_buy_no_rows(monkeypatch: pytest.MonkeyPatch, arm: Arm) -> None:
    recorded(monkeypatch)
    row = make(plan="auto", sampling={"k_select": 26, "label_samples": 1})
    source = walked_and_measured(start(row), row)
    baseline = arm_of(source, arm)
    n = len(TEXTS) if arm is Arm.ALL else sum(part.k_actual for part in slices(source))
    assert len(labeled(baseline)) == n
    assert all(one.bought_in is None for one in candidates(baseline))
    assert (labeled(baseline) == labeled(source)) is False


@pytest.mark.nightly
def test_an_arm_with_another_student_trains_on_the_same_pairs_and_pays_for_no_label(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorded(monkeypatch)
    row = make(plan="auto", sampling={"k_select": 26})
    source = walked_and_measured(start(row), row)
    with (
        tenant_scope(source.tenant_id),
        pytest.raises(Conflict, match=r"adapter already.*Take the arm contrastive or frozen"),
    ):
        ablations.start(source, Arm.ADAPTER, budget_microusd=None, api_key_id=None)
    arm = arm_of(source, Arm.FROZEN)
    ours, theirs = (step(one, StepName.LABELING).output for one in (source, arm))
    assert theirs["digests"] == ours["digests"]
    assert theirs["facts"]["copied_from"] == encode_id(Prefix.COMPILE, source.id)
    states = [{one.text: one.state for one in candidates(side, state__in=LABELED_STATES)} for side in (source, arm)]
    assert states[0] == states[1]
    assert asked(arm) == set()
    assert (arm.spec["train"]["student"], arm.spec["train"]["kind"]) == ("frozen", "encoder")
    check_money(arm)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", [Arm.ALL, Arm.RANDOM, Arm.FIXED])
def test_an_arm_asks_again_about_its_own_inputs_and_about_none_that_it_took_over(
    monkeypatch: pytest.MonkeyPatch, kind: Arm
) -> None:
    recorded(monkeypatch, GUESSED)
    row = make(plan="auto", sampling={"k_select": 26})
    source = walked_and_measured(start(row), row)
    before = n_votes(source)
    assert sum(n_asked_again(source)) > 0
    arm = arm_of(source, kind)
    after = n_votes(arm)
    own = after.keys() - before.keys()
    copied = after.keys() & before.keys()
    assert {text: after[text] for text in copied} == {text: before[text] for text in copied}
    n_again = sum(after[text] > 1 for text in own)  # one call each, of several answers
    assert n_again == sum(n_asked_again(arm)) <= (len(own) + n_again) / 4
    assert n_again > 0 or kind is Arm.FIXED, "which has too few of its own where most were bought before"
    assert asked(arm) == own
    check_money(arm)


@pytest.mark.nightly
@pytest.mark.parametrize("label_samples", [None, 3])
def test_a_capture_that_arm_fixed_buys_later_is_what_its_source_made_of_it(
    monkeypatch: pytest.MonkeyPatch, label_samples: int | None
) -> None:
    """Where votes are weighed with the teacher's log-probs, else with what was no label among its answers."""
    if label_samples is None:
        scored(monkeypatch, dict.fromkeys(TEXTS[::2], 0.8))
    else:
        recorded(monkeypatch, {text: [right_label(text), right_label(text), "?"] for text in TEXTS[::2]})
    row = make(plan="auto", sampling={"k_select": 32, "label_samples": label_samples})
    source = walked_and_measured(start(row), row)
    arm = arm_of(source, Arm.FIXED)
    theirs = {one.text: one for one in candidates(source, state__in=LABELED_STATES)}
    later = [one for one in candidates(arm, state__in=LABELED_STATES) if one.bought_in and one.text in theirs]
    assert later
    columns = ["votes", "label_logprobs", *(["label", "agreement_ppm", "state"] if label_samples else [])]
    for one in later:
        assert [getattr(one, name) for name in columns] == [getattr(theirs[one.text], name) for name in columns]
    assert asked(arm) == labeled(arm) - labeled(source)
    check_money(arm)
