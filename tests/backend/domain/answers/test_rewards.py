"""The map from what a model said to a score: it keeps the order, needs no units, and is not moved by one outlier."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.answers.rewards import MOST_RATING, RATINGS, Calibration

numbers = st.floats(min_value=-1e9, max_value=1e9)
pools = st.lists(numbers, min_size=1, max_size=30)
tens = st.lists(st.integers(min_value=-1000, max_value=1000).map(lambda n: n / 10), min_size=2, max_size=30)


@given(pools, numbers, numbers)
def test_a_greater_number_never_scores_less_and_all_scores_are_in_the_unit_interval(pool, a, b):
    calibration = Calibration.of(pool)
    low, high = sorted((a, b))
    assert 0.0 <= calibration.score(low) <= calibration.score(high) <= 1.0


@given(tens)
def test_different_numbers_get_different_scores_and_equal_ones_the_same(pool):
    calibration = Calibration.of(pool)
    assert len({calibration.score(raw) for raw in pool}) == len(set(pool))
    assert [calibration.score(raw) for raw in pool] == [Calibration.of(pool[::-1]).score(raw) for raw in pool]


@given(tens, st.floats(min_value=0.01, max_value=100), st.floats(min_value=-100, max_value=100))
def test_a_reward_model_that_counts_in_other_units_gives_the_same_scores(pool, factor, shift):
    plain, scaled = Calibration.of(pool), Calibration.of([factor * raw + shift for raw in pool])
    if len(set(pool)) == 1:
        return
    for raw in pool:
        assert scaled.score(factor * raw + shift) == pytest.approx(plain.score(raw), abs=1e-6)


def test_the_median_scores_a_half_and_one_outlier_squeezes_nobody():
    plain = Calibration.of([1.0, 2.0, 3.0, 4.0, 5.0])
    wild = Calibration.of([1.0, 2.0, 3.0, 4.0, 5000.0])
    assert plain.score(3.0) == wild.score(3.0) == 0.5
    assert wild.score(4.0) - wild.score(2.0) == pytest.approx(plain.score(4.0) - plain.score(2.0), rel=0.3)
    assert 0.99 < wild.score(5000.0) < 1.0


def test_where_all_say_the_same_nothing_is_divided_by_nothing():
    assert Calibration.of([2.5, 2.5]).score(2.5) == 0.5
    assert Calibration.of([]).score(0.0) == 0.5
    assert Calibration.of([0.0, 0.0, 0.0, 1.0]).score(1.0) > Calibration.of([0.0, 0.0, 0.0, 1.0]).score(0.0) == 0.5


def test_a_judges_ratings_keep_their_scale():
    assert [RATINGS.score(raw) for raw in (0.0, 4.5, MOST_RATING)] == [0.0, 0.5, 1.0]
    assert (RATINGS.score(-3.0), RATINGS.score(12.0)) == (0.0, 1.0)


@given(pools)
def test_a_stored_calibration_is_the_same_one(pool):
    calibration = Calibration.of(pool)
    assert Calibration.from_json(calibration.to_json()) == calibration
    assert math.isfinite(calibration.scale or 0.0)
    assert (calibration.scale or 0.0) > 0
