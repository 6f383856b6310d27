import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from backend.domain.rules.certifying import Judged, list_sizes, longest_certified, low_ppm


@settings(deadline=None)
@given(st.integers(1, 400), st.data(), st.sampled_from([0.01, 0.05, 0.2]))
def test_at_the_lower_bound_so_many_right_answers_are_as_rare_as_said(n: int, data: st.DataObject, miss: float) -> None:
    right = data.draw(st.integers(1, n))
    bound = low_ppm(right, n, miss) / 1e6
    assert binom.sf(right - 1, n, bound) <= miss + 1e-6
    assert binom.sf(right - 1, n, min(1.0, bound + 2e-6)) >= miss - 1e-6


def test_fifty_nine_of_fifty_nine_are_the_first_that_show_95_percent() -> None:
    assert low_ppm(58, 58, 0.05) < 950_000 <= low_ppm(59, 59, 0.05)
    assert low_ppm(0, 10, 0.05) == low_ppm(0, 0, 0.05) == 0


def judged(*pairs: tuple[int, int]) -> list[Judged]:
    return [Judged(n=1_000, answered=answered, right=right) for answered, right in pairs]


def test_the_longest_sure_list_is_chosen() -> None:
    best, miss = longest_certified(judged((100, 100), (300, 298), (600, 560)), precision=0.95, miss=0.05)
    assert best == 1
    assert miss == pytest.approx(2 * 0.05 / 3)  # what the first was tested with was handed on
    assert longest_certified(judged((50, 50)), precision=0.95, miss=0.05)[0] == -1
    assert longest_certified([], precision=0.95, miss=0.05)[0] == -1


def test_lists_that_are_not_sure_enough_pass_as_seldom_as_promised() -> None:
    """Six nested lists, each of a true precision just below the bar, 2,000 times."""
    rng = np.random.default_rng(3)
    passed = 0
    for _ in range(2_000):
        is_right = rng.random(1_200) < 0.9499
        lists = [Judged(n=2_000, answered=n, right=int(is_right[:n].sum())) for n in (40, 80, 160, 320, 640, 1_200)]
        passed += longest_certified(lists, precision=0.95, miss=0.05)[0] >= 0
    assert passed <= 0.065 * 2_000  # 0.05 and three standard errors


def test_lists_grow_by_half_to_the_longest_and_are_fewer_where_few_pairs_judge() -> None:
    assert list_sizes(400, n_heldout=2_000) == [23, 35, 52, 79, 118, 177, 266, 400]
    assert list_sizes(400, n_heldout=200) == [100, 200, 400]
    assert list_sizes(2, n_heldout=2_000) == list_sizes(2, n_heldout=10) == [1, 2]
    assert list_sizes(0, n_heldout=10) == []
