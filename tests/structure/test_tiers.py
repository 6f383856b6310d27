"""Which cases of a test run daily: some always, the same ones each time, never more than their share of a day."""

from hypothesis import given
from hypothesis import strategies as st

from tests.tiers import DAILY_S, evenly


@given(st.integers(1, 2_000), st.floats(0, 100))
def test_the_daily_cases_fit_into_their_share_or_are_one(n: int, seconds_each: float) -> None:
    daily = evenly(n, seconds_each)
    assert len(daily) == 1 or len(daily) * seconds_each <= DAILY_S
    assert sorted(set(daily)) == daily
    assert set(daily) <= set(range(n))
    assert daily[0] == 0


def test_all_cases_run_daily_where_nothing_is_known_of_them() -> None:
    assert evenly(5, 0.0) == [0, 1, 2, 3, 4]
    assert evenly(10, DAILY_S / 4) == [0, 2, 5, 7]
