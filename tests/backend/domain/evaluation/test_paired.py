"""Paired comparisons against brute force: every figure from the rows themselves."""

import itertools
import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from backend.domain.errors import InvalidInput
from backend.domain.evaluation.classification import PPM, wilson_interval
from backend.domain.evaluation.paired import Paired, compare, mcnemar_p, paired_interval

COUNTS = st.tuples(*[st.integers(0, 60)] * 4)
ROWS = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("abc"), st.sampled_from("abc")), max_size=60)


@given(ROWS)
def test_the_counts_are_those_of_the_rows(rows: list[tuple[str, str, str]]) -> None:
    truths, ours, theirs = ([row[i] for row in rows] for i in range(3))
    found = compare(truths, ours, theirs)
    assert found.n == len(rows)
    assert found.both == sum(t == a == b for t, a, b in rows)
    assert found.first == sum(t == a != b for t, a, b in rows)
    assert found.second == sum(t == b != a for t, a, b in rows)
    right = sum(t == a for t, a, _ in rows) - sum(t == b for t, _, b in rows)
    assert found.difference == pytest.approx(right / len(rows) if rows else 0)


@given(COUNTS)
def test_swapping_the_sides_turns_everything_round(counts: tuple[int, int, int, int]) -> None:
    both, first, second, neither = counts
    one = Paired(both=both, first=first, second=second, neither=neither)
    other = Paired(both=both, first=second, second=first, neither=neither)
    assert one.difference == -other.difference
    assert one.p_value == other.p_value
    assert one.interval == pytest.approx([-bound for bound in reversed(other.interval)], abs=1e-12)
    assert one.is_clear == other.is_clear


@given(COUNTS, st.sampled_from([0.8, 0.95, 0.99]))
def test_the_interval_holds_the_difference_and_stays_within_what_is_possible(
    counts: tuple[int, int, int, int], confidence: float
) -> None:
    both, first, second, neither = counts
    low, high = paired_interval(both, first, second, neither, confidence)
    n = sum(counts)
    assert -1 <= low <= high <= 1
    assert low - 1e-12 <= (first - second) / max(1, n) <= high + 1e-12
    wider = paired_interval(both, first, second, neither, 0.995)
    assert wider[0] <= low + 1e-12
    assert high <= wider[1] + 1e-12


@given(st.integers(0, 14), st.integers(0, 14))
def test_p_is_the_share_of_all_orders_of_the_discordant_rows_at_least_as_uneven(first: int, second: int) -> None:
    n = first + second
    uneven = sum(
        math.comb(n, i) for i in range(n + 1) if abs(2 * i - n) >= abs(first - second)
    )  # of 2^n equally likely ways
    assert mcnemar_p(first, second) == pytest.approx(float(Fraction(uneven, 2**n)))


@pytest.mark.parametrize(("first", "second"), [(0, 0), (1, 0), (700, 650), (3000, 2000), (12, 40)])
def test_p_is_that_of_the_binomial_test(first: int, second: int) -> None:
    expected = binomtest(first, first + second).pvalue if first + second else 1.0
    assert mcnemar_p(first, second) == pytest.approx(expected)


def test_the_interval_is_that_of_the_published_examples() -> None:
    # Bentur et al. 2009, as in Fagerland, Lydersen and Laake 2014; Altman, Statistics with Confidence, p. 52
    assert paired_interval(1, 1, 7, 12) == pytest.approx((-0.507, -0.026), abs=5e-4)
    assert paired_interval(20, 12, 2, 16) == pytest.approx((0.056, 0.329), abs=5e-4)


def test_with_empty_margins_the_interval_is_square_and_add_of_independent_ones() -> None:
    low, _ = wilson_interval(54, 54)
    assert paired_interval(54, 0, 0, 0) == pytest.approx((-(1 - low), 1 - low))
    assert paired_interval(0, 0, 0, 0) == (-1.0, 1.0)


def test_agreement_narrows_the_interval() -> None:
    """The same two accuracies; the more the models agree, the better the difference is known."""
    together, apart = paired_interval(70, 10, 5, 15), paired_interval(60, 20, 15, 5)
    assert together[1] - together[0] < apart[1] - apart[0]


@pytest.mark.parametrize("n", [8, 20])
@pytest.mark.parametrize("shares", [(0.6, 0.15, 0.05, 0.2), (0.8, 0.05, 0.05, 0.1), (0.3, 0.3, 0.1, 0.3)])
def test_the_interval_holds_the_truth_about_as_often_as_it_says(n: int, shares: tuple[float, ...]) -> None:
    """Exactly, over all tables of n rows: nothing is drawn."""
    true = shares[1] - shares[2]
    covered = 0.0
    for both, first, second in itertools.product(range(n + 1), repeat=3):
        if (neither := n - both - first - second) < 0:
            continue
        low, high = paired_interval(both, first, second, neither)
        if low <= true <= high:
            ways = math.factorial(n)
            for count in (both, first, second, neither):
                ways //= math.factorial(count)
            chance = math.prod(p**c for p, c in zip(shares, (both, first, second, neither), strict=True))
            covered += ways * chance
    assert covered >= 0.935


def test_what_is_published_is_integers_rounded_away_from_looking_good() -> None:
    found = Paired(both=40, first=9, second=2, neither=3)
    low, high = found.interval
    assert found.low_ppm <= low * PPM
    assert found.high_ppm >= high * PPM
    assert found.p_value_ppm >= found.p_value * PPM
    figures = (found.low_ppm, found.high_ppm, found.p_value_ppm, found.difference_ppm, found.confidence_ppm)
    assert {type(item) for item in (*figures, found.is_clear)} == {int, bool}
    assert (found.n, found.first, found.second) == (54, 9, 2)


def test_models_that_answered_different_rows_are_not_compared() -> None:
    with pytest.raises(InvalidInput):
        compare(["a"], ["a"], ["a", "b"])
    with pytest.raises(InvalidInput):
        Paired(both=-1, first=0, second=0, neither=1)
