import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.domain.selection.facility_location import facility_location_picks
from backend.domain.selection.linkage.clustering import Floats, Rows
from tests.backend.domain.selection.test_greedy_picks import WEIGHTS, crowded_pool, pools, steps_between


def similarities(rows: Rows) -> Floats:
    """max(cos, 0) in millionths; every row covers itself, zero rows too."""
    steps = np.maximum(1_000_000 - steps_between(rows), 0.0)
    np.fill_diagonal(steps, 1_000_000)
    return steps


def value(rows: Rows, gains: Floats, picks: tuple[int, ...], k: int, weight: float) -> float:
    """F of the docstring."""
    coverage = similarities(rows)[list(picks)].max(axis=0, initial=0.0).sum() / 1e6
    if math.isinf(weight):
        return float(coverage)
    return float(gains[list(picks)].sum() + weight * 2 * k / len(rows) * coverage)


@settings(deadline=None)
@given(pools(), st.integers(0, 14), WEIGHTS)
def test_each_pick_adds_the_most(pool: tuple[Rows, Floats], k: int, weight: float) -> None:
    rows, gains = pool
    picks = facility_location_picks(rows, gains, k, weight=weight).tolist()
    k = min(k, len(rows))
    assert len(picks) == len(set(picks)) == k
    for m, pick in enumerate(picks):
        before = value(rows, gains, tuple(picks[:m]), k, weight)
        adds = {
            i: value(rows, gains, (*picks[:m], i), k, weight) - before for i in range(len(rows)) if i not in picks[:m]
        }
        tolerance = 1e-9 * max(1.0, 0.0 if math.isinf(weight) else weight)
        assert adds[pick] >= max(adds.values()) - tolerance
        assert not any(i < pick and more > adds[pick] + tolerance for i, more in adds.items())


@given(pools(n_max=9), st.integers(1, 4), WEIGHTS)
def test_greedy_is_within_one_minus_one_over_e_of_the_best_k(pool: tuple[Rows, Floats], k: int, weight: float) -> None:
    rows, gains = pool
    k = min(k, len(rows))
    best = max(value(rows, gains, s, k, weight) for s in itertools.combinations(range(len(rows)), k)) if k else 0.0
    picks = tuple(facility_location_picks(rows, gains, k, weight=weight).tolist())
    greedy = value(rows, gains, picks, k, weight) if k else 0.0
    assert greedy >= (1 - 1 / math.e) * best - 1e-9


@given(pools(n_max=7), st.data())
def test_the_objective_is_monotone_and_submodular(pool: tuple[Rows, Floats], data: st.DataObject) -> None:
    """What the bound stands on: a row adds something to every set, and no more to a larger one."""
    rows, gains = pool
    if len(rows) < 2:
        return
    everybody = list(range(len(rows)))
    large = data.draw(st.lists(st.sampled_from(everybody[:-1]), unique=True, max_size=len(rows) - 1))
    small = large[: len(large) // 2]
    new = everybody[-1]

    def added_to(picks: list[int]) -> float:
        return value(rows, gains, (*picks, new), 3, 1.0) - value(rows, gains, tuple(picks), 3, 1.0)

    assert added_to(small) >= added_to(large) - 1e-9
    assert added_to(large) >= -1e-9


@settings(deadline=None)
@given(pools(), st.integers(0, 14), WEIGHTS, st.sampled_from([0.0, 0.3]))
def test_with_and_without_the_matrix_the_picks_are_the_same(
    pool: tuple[Rows, Floats], k: int, weight: float, apart: float
) -> None:
    rows, gains = pool
    held = facility_location_picks(rows, gains, k, weight=weight, min_distance=apart)
    again = facility_location_picks(rows, gains, k, weight=weight, min_distance=apart, matrix_rows=0)
    assert again.tolist() == held.tolist()


def test_float32_and_blocks_change_nothing_above_the_small_pools() -> None:
    rows, gains = crowded_pool(2_100, 16, seed=11)
    held = facility_location_picks(rows, gains, 120, weight=1.0)
    again = facility_location_picks(rows, gains, 120, weight=1.0, matrix_rows=0)
    assert again.tolist() == held.tolist()


@settings(deadline=None)
@given(pools(), st.integers(0, 14))
def test_weight_zero_is_exactly_top_k(pool: tuple[Rows, Floats], k: int) -> None:
    rows, gains = pool
    assert facility_location_picks(rows, gains, k, weight=0.0).tolist() == list(range(min(k, len(rows))))


@settings(deadline=None)
@given(pools(), st.integers(0, 14))
def test_an_infinite_weight_ignores_scores(pool: tuple[Rows, Floats], k: int) -> None:
    rows, gains = pool
    picks = facility_location_picks(rows, gains, k, weight=math.inf)
    assert picks.tolist() == facility_location_picks(rows, np.zeros(len(rows)), k, weight=1.0).tolist()


@settings(deadline=None)
@given(pools(), WEIGHTS, st.floats(0.01, 2.0))
def test_a_minimum_distance_holds_and_only_it_leaves_seats_empty(
    pool: tuple[Rows, Floats], weight: float, apart: float
) -> None:
    rows, gains = pool
    picks = facility_location_picks(rows, gains, len(rows), weight=weight, min_distance=apart)
    steps = steps_between(rows)
    assert all(steps[i, j] >= apart * 1e6 for i, j in itertools.combinations(picks.tolist(), 2))
    for row in set(range(len(rows))) - set(picks.tolist()):
        assert (steps[row, picks] < apart * 1e6).any()


@pytest.mark.parametrize("weight", [0.0, 1.0, 1e308, math.inf])
def test_identical_rows_come_in_canonical_order(weight: float) -> None:
    rows = np.tile([0.6, 0.8], (5, 1))
    assert facility_location_picks(rows, np.zeros(5), 5, weight=weight).tolist() == [0, 1, 2, 3, 4]


def test_a_zero_row_is_covered_by_nothing_but_itself() -> None:
    rows = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    assert facility_location_picks(rows, np.zeros(4), 2, weight=math.inf).tolist() == [0, 3]


@given(pools(), st.integers(0, 8), st.data())
def test_a_size_counts_like_so_many_copies(pool: tuple[Rows, Floats], k: int, data: st.DataObject) -> None:
    rows, _ = pool
    sizes = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(rows), max_size=len(rows))), dtype=np.int64)
    no_gains = np.zeros(len(rows))
    for matrix_rows in (0, 100):
        picks = facility_location_picks(
            rows, no_gains, k, weight=math.inf, sizes=sizes, matrix_rows=matrix_rows
        ).tolist()
        assert len(set(picks)) == min(k, len(rows))
        near = similarities(rows)
        for m, pick in enumerate(picks):
            before = near[picks[:m]].max(axis=0, initial=0.0)
            adds = (np.maximum(near, before) - before) @ sizes
            adds[picks[:m]] = -1
            assert pick == adds.argmax()


@given(pools(), st.integers(0, 8), st.data())
def test_rows_that_are_taken_cover_and_are_not_returned(pool: tuple[Rows, Floats], k: int, data: st.DataObject) -> None:
    rows, _ = pool
    n = len(rows)
    no_gains = np.zeros(n)
    first = facility_location_picks(rows, no_gains, data.draw(st.integers(0, n)), weight=math.inf)
    later = facility_location_picks(rows, no_gains, k, weight=math.inf, taken=first)
    whole = facility_location_picks(rows, no_gains, len(first) + k, weight=math.inf)
    assert [*first.tolist(), *later.tolist()] == whole.tolist()
