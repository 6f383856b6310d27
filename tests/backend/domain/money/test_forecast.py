"""A forecast is never below what was used, says nothing early, and covers about what it says it covers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.money.forecast import COVERAGE, LEAST_DAYS, forecast

days = st.lists(st.integers(0, 10**9), min_size=1, max_size=30)


@given(whole=days, today=st.integers(0, 10**9))
def test_it_is_within_its_interval_and_never_below_what_was_used(whole: list[int], today: int) -> None:
    made = forecast(whole, today, n_days=31)
    assert made.so_far_microusd == sum(whole) + today
    if not made.is_known:
        assert made.why.startswith("too early to say")
        return
    ends = (made.so_far_microusd, made.low_microusd or 0, made.expected_microusd or 0, made.high_microusd or 0)
    assert sorted(ends) == list(ends)


@pytest.mark.parametrize(("n", "is_known"), [(0, False), (LEAST_DAYS - 1, False), (LEAST_DAYS, True)])
def test_it_says_nothing_before_some_whole_days_are_over(n: int, is_known: bool) -> None:
    assert forecast([10] * n, 5, n_days=30).is_known is is_known


def test_one_large_day_is_no_trend() -> None:
    assert not forecast([0, 0, 10**6, 0, 0, 0], 0, n_days=30).is_known


def test_the_formula_by_hand() -> None:
    """d = 5, r = 25, mean 20, s = sqrt(250); t(0.9, 4) = 1.533."""
    made = forecast([0, 10, 20, 30, 40], 0, n_days=30)
    assert made.expected_microusd == 100 + 20 * 25
    assert made.high_microusd == pytest.approx(600 + 1.5332 * 250**0.5 * (25 + 125) ** 0.5, abs=1)


def test_alike_days_have_no_spread() -> None:
    made = forecast([7] * 10, 7, n_days=20)
    assert made.low_microusd == made.expected_microusd == made.high_microusd == 140


def test_independent_days_end_within_the_interval_as_often_as_it_says() -> None:
    rng = np.random.default_rng(5)
    n_within = 0
    for _ in range(2_000):
        used = [max(0, int(x)) for x in rng.normal(1_000, 200, 30)]
        made = forecast(used[:12], 0, n_days=30)
        n_within += (made.low_microusd or 0) <= sum(used) <= (made.high_microusd or 0)
    assert abs(n_within / 2_000 - COVERAGE) < 0.03
