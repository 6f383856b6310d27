"""What an arm is, what it labels and what it costs."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.errors import InvalidInput
from backend.domain.evaluation.paired import Paired
from backend.domain.lifecycle import StepName
from backend.domain.planning.ablations import (
    STUDENT_ARMS,
    Arm,
    Comparison,
    Outcome,
    Paid,
    Pool,
    arm_name,
    arm_spec,
    estimate_arm,
    n_to_label,
)
from backend.domain.planning.estimates import estimate
from backend.domain.spec.defaults import buys_in_rounds
from backend.domain.spec.parsing import canonical_spec, parse_spec
from tests.compile_factories import small_spec

ARMS = st.sampled_from(list(Arm))
POOLS = st.lists(
    st.integers(0, 50).flatmap(
        lambda n: st.builds(
            Pool, n=st.just(n), k=st.integers(0, n), k_fixed=st.integers(0, n), is_captured=st.booleans()
        )
    ),
    min_size=1,
    max_size=6,
)
PAID = Paid(
    labels=[100, 140], training=2000, evaluation=300, n_pairs=30, n_gold=12, n_passes=7, job=0, passes=lambda n: 7
)


@given(st.from_regex(r"[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?", fullmatch=True), ARMS)
def test_the_spec_of_an_arm_is_a_valid_spec_with_a_name_of_its_own(name: str, arm: Arm) -> None:
    plan = {"kind": "auto", "point_usd": 2}
    spec = parse_spec(small_spec(name=name, plan=plan, sampling={"n_candidates": 12, "k_distill": 4}))
    assert buys_in_rounds(spec)
    found = arm_spec(spec, arm)
    assert parse_spec(canonical_spec(found)) == found
    assert found.name == arm_name(name, arm) != name
    assert found.sampling.method == (arm if arm in (Arm.ALL, Arm.RANDOM) else spec.sampling.method)
    assert found.sampling.k_distill == (None if arm is Arm.ALL else 4)
    assert found.sampling.label_samples == spec.sampling.label_samples
    assert buys_in_rounds(found) is (arm in STUDENT_ARMS)  # whose labelling is copied
    assert not found.draft_cache.enabled
    own = set() if arm in STUDENT_ARMS else {"train"}
    same = (
        own
        | {"task", "family", "output", "examples", "slices", "teacher", "gate", "verifiers", "budget"}
        | (set() if arm in STUDENT_ARMS else {"train"})
    )
    before, after = canonical_spec(spec), canonical_spec(found)
    assert {part: before[part] for part in same} == {part: after[part] for part in same}


@given(POOLS)
def test_all_labels_every_candidate_and_random_as_many_as_were_selected(pools: list[Pool]) -> None:
    assert n_to_label(pools, Arm.ALL)[0] == sum(pool.n for pool in pools)
    assert n_to_label(pools, Arm.RANDOM)[0] == sum(pool.k for pool in pools)
    for arm in Arm:
        n, new = n_to_label(pools, arm)
        assert 0 <= new <= n


def test_a_fixed_plan_takes_its_k_and_of_captures_it_may_take_others() -> None:
    written = Pool(n=12, k=9, k_fixed=4)
    captured = Pool(n=30, k=20, k_fixed=10, is_captured=True)
    assert n_to_label([written, captured], Arm.FIXED) == (14, pytest.approx(10 * (1 - 20 / 30)))


def test_a_draw_meets_labels_that_are_there_as_often_as_chance_says() -> None:
    # of 12 candidates 4 have labels: a draw of 4 holds 4 * 4/12 of them
    assert n_to_label([Pool(n=12, k=4)], Arm.RANDOM)[1] == pytest.approx(4 - 4 * 4 / 12)


@given(POOLS, ARMS)
def test_an_estimate_is_ordered_and_asks_nothing_for_what_is_copied(pools: list[Pool], arm: Arm) -> None:
    base = estimate(parse_spec(small_spec()))
    found = estimate_arm(base, arm, pools, PAID)
    for amount in found.steps.values():
        assert 0 <= amount.low <= amount.expected <= amount.high
    for step in (StepName.SLICING, StepName.SYNTHESIS, StepName.VERIFICATION, StepName.SELECTION):
        assert found.steps[step].high == 0
    assert found.price_version == base.price_version


def test_all_trains_longer_by_the_pairs_it_adds() -> None:
    base = estimate(parse_spec(small_spec()))
    pools = [Pool(n=48, k=18)]
    both = {arm: estimate_arm(base, arm, pools, PAID).steps for arm in Arm}
    assert both[Arm.RANDOM][StepName.DISTILLATION].expected == 2000
    assert both[Arm.ALL][StepName.DISTILLATION].expected == 2000 * (48 + 12) // 30
    assert both[Arm.ALL][StepName.LABELING].expected == (48 - 18) * 120
    fewer = replace(PAID, n_passes=20, passes=lambda n: 20 if n < 50 else 7)  # few pairs are gone over more often
    assert estimate_arm(base, Arm.ALL, pools, fewer).steps[StepName.DISTILLATION].expected == 1400
    head = replace(PAID, n_passes=1, job=900)  # a frozen head reads its pairs once; a job has its fee
    assert estimate_arm(base, Arm.ADAPTER, pools, head).steps[StepName.DISTILLATION].expected == 900 + 7 * 1100
    fixed = estimate_arm(base, Arm.FIXED, [Pool(n=48, k=30, k_fixed=16)], PAID).steps
    assert fixed[StepName.DISTILLATION].expected == math.ceil(2000 * (16 + 12) / 30)
    assert fixed[StepName.LABELING].expected == 0
    for arm in STUDENT_ARMS:
        assert both[arm][StepName.DISTILLATION].expected == 2000
        assert both[arm][StepName.LABELING].high == 0


def outcome(correct: int, **changes: int) -> Outcome:
    fields = {"n_labels": 36, "n_labels_reused": 0, "label_cost_microusd": 400, "n_pairs": 50, "k_score_ppm": 900_000}
    return Outcome(correct=correct, n=50, **(fields | changes))


def test_a_comparison_is_selected_less_arm() -> None:
    paired = Paired(both=40, first=4, second=1, neither=5)
    found = Comparison(
        selected=outcome(44), arm=outcome(41, label_cost_microusd=1200, k_score_ppm=880_000), paired=paired
    )
    assert found.label_cost_difference_microusd == -800
    assert found.k_score_difference_ppm == 20_000
    assert found.paired.difference_ppm == 60_000
    assert found.selected.accuracy_ppm == 880_000
    assert found.selected.accuracy_low_ppm < 880_000 < found.selected.accuracy_high_ppm


def test_sides_of_different_rows_are_not_compared() -> None:
    with pytest.raises(InvalidInput):
        Comparison(selected=outcome(44), arm=outcome(41), paired=Paired(both=1, first=0, second=0, neither=0))


@pytest.mark.parametrize("arm", STUDENT_ARMS)
def test_the_spec_of_another_student_changes_the_student_alone(arm: Arm) -> None:
    spec = parse_spec(small_spec())
    mine = arm_spec(spec, arm)
    assert (mine.train.student, mine.train.kind) == (arm.value, "encoder")
    assert (mine.sampling, mine.plan) == (spec.sampling, spec.plan)
