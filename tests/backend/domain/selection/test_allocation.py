"""One count, divided over labels or slices."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.errors import InvalidInput
from backend.domain.selection.allocation import allocate_by_shares, allocate_largest_remainder
from backend.domain.selection.select import select

SHARES = st.lists(st.integers(0, 100), min_size=1, max_size=9).map(lambda parts: [part / 100 for part in parts])
sizes_of_strata = st.lists(st.integers(0, 40), min_size=1, max_size=9)


@given(st.integers(0, 200), sizes_of_strata)
def test_shares_sum_to_k_and_no_stratum_gets_more_than_it_has(k: int, sizes: list[int]) -> None:
    shares = allocate_largest_remainder(k, sizes)
    assert sum(shares) == min(k, sum(sizes))
    assert all(0 <= share <= size for share, size in zip(shares, sizes, strict=True))


@given(st.integers(0, 200), sizes_of_strata)
def test_every_label_has_a_seat_while_k_allows_and_else_the_largest_have(k: int, sizes: list[int]) -> None:
    shares = allocate_largest_remainder(k, sizes)
    n_seated = sum(share > 0 for share in shares)
    assert n_seated == min(k, sum(size > 0 for size in sizes))
    without = [size for size, share in zip(sizes, shares, strict=True) if share == 0]
    assert max(without, default=0) <= min((s for s, share in zip(sizes, shares, strict=True) if share), default=40)


@given(st.integers(1, 200), st.lists(st.integers(20, 40), min_size=1, max_size=6))
def test_where_nobody_is_too_small_each_is_within_one_of_its_proportion(k: int, sizes: list[int]) -> None:
    k = max(k, len(sizes)) if k < sum(sizes) else sum(sizes)
    wanted = [k * size / sum(sizes) for size in sizes]
    if min(wanted) >= 1:
        assert all(
            abs(share - want) < 1 for share, want in zip(allocate_largest_remainder(k, sizes), wanted, strict=True)
        )


def test_shares_of_a_great_k_are_found_at_once() -> None:
    assert sum(allocate_largest_remainder(33_333, [1_000 - i for i in range(150)])) == 33_333


def test_negative_counts_are_refused() -> None:
    with pytest.raises(InvalidInput):
        allocate_largest_remainder(-1, [3])
    with pytest.raises(InvalidInput):
        allocate_largest_remainder(1, [-3])


@given(st.integers(0, 10_000), st.integers(1, 30), st.sampled_from(["two_step", "diverse", "dpp", "top_k", "random"]))
def test_each_label_is_selected_by_itself(seed: int, k: int, method: str) -> None:
    rng = np.random.default_rng(seed)
    rows, scores = rng.standard_normal((30, 6)), rng.random(30)
    keys, labels = [f"{i:02}" for i in range(30)], rng.choice(["a", "b", "c"], 30, p=[0.6, 0.3, 0.1]).tolist()
    selection = select(rows, scores, keys, k=k, labels=labels, method=method, seed=3)
    report = selection.report
    assert sorted(stratum.label for stratum in report.strata) == sorted(set(labels))
    assert sum(stratum.k_actual for stratum in report.strata) == report.k_actual == min(k, 30)
    for stratum in report.strata:
        members = [i for i in range(30) if labels[i] == stratum.label]
        alone = select(
            rows[members], scores[members], [keys[i] for i in members], k=stratum.k_requested, method=method, seed=3
        )
        assert {members[i] for i in alone.picks} == {i for i in selection.picks if labels[i] == stratum.label}
        assert (stratum.n, stratum.n_groups) == (len(members), alone.report.n_groups)
    numbered = {labels[i] + str(c) for i, c in enumerate(report.cluster_of) if c >= 0}
    assert len(numbered) == len({c for c in report.cluster_of if c >= 0}), "no cluster number belongs to two labels"


def test_labels_need_not_stratify() -> None:
    rows, labels = np.eye(8), ["a"] * 7 + ["b"]
    scores = [8.0, 7, 6, 5, 4, 3, 2, 1]
    assert 7 in select(rows, scores, k=2, labels=labels, method="top_k").picks
    assert select(rows, scores, k=2, labels=labels, method="top_k", stratify=False).picks == (0, 1)
    assert select(rows, scores, k=2, labels=labels, method="top_k", stratify=False).report.strata == ()


@given(st.integers(0, 500), SHARES, st.data())
def test_what_shares_divide_sums_to_the_total_within_the_bounds(total: int, shares: list[float], data: st.DataObject):
    most = data.draw(st.lists(st.integers(0, 60), min_size=len(shares), max_size=len(shares)))
    least = [data.draw(st.integers(0, high)) for high in most]
    counts = allocate_by_shares(total, shares, most=most)
    assert sum(counts) == min(total, sum(most))
    assert all(0 <= count <= high for count, high in zip(counts, most, strict=True))
    if sum(least) <= min(total, sum(most)):
        counts = allocate_by_shares(total, shares, least=least, most=most)
        assert sum(counts) == min(total, sum(most))
        assert all(low <= count <= high for low, count, high in zip(least, counts, most, strict=True))


@given(st.integers(0, 500), SHARES)
def test_each_share_has_one_while_the_total_allows_and_else_the_largest_have(total: int, shares: list[float]):
    counts = allocate_by_shares(total, shares)
    n_positive = sum(share > 0 for share in shares)
    if n_positive:
        assert sum(count > 0 for count in counts) == min(total, n_positive)
        assert all(count == 0 for count, share in zip(counts, shares, strict=True) if share == 0)
    for (one, many), (other, few) in product(zip(shares, counts, strict=True), repeat=2):
        assert one <= other or many >= few, "a larger share never gets fewer"


@given(st.integers(1, 500), SHARES)
def test_a_share_that_no_bound_meets_is_within_one_of_its_proportion(total: int, shares: list[float]):
    exact = [Fraction(str(share)) for share in shares]
    wanted = [total * share / sum(exact) for share in exact] if sum(exact) else []
    if wanted and min(wanted) >= 1:
        counts = allocate_by_shares(total, shares)
        assert all(abs(count - want) < 1 for count, want in zip(counts, wanted, strict=True))


@given(st.integers(0, 60), st.lists(st.integers(1, 30), min_size=1, max_size=6))
def test_one_more_of_a_total_is_at_most_one_seat_more_or_less_for_each(total: int, parts: list[int]):
    """Largest remainder is not monotone in the total (the Alabama paradox): a seat may move, no more than one."""
    before, after = allocate_by_shares(total, parts), allocate_by_shares(total + 1, parts)
    assert all(abs(one - other) <= 1 for one, other in zip(before, after, strict=True))


@given(SHARES.filter(any), st.integers(1, 300), st.integers(2, 9))
def test_only_the_proportions_of_shares_count(shares: list[float], total: int, factor: int):
    assert allocate_by_shares(total, shares) == allocate_by_shares(total, [factor * 10 * share for share in shares])


def test_equal_shares_divide_equally_whatever_their_floats_sum_to():
    for n in range(1, 40):
        assert allocate_by_shares(12 * n, [round(1 / n, 4)] * n) == [12] * n


def test_a_total_below_what_each_must_have_is_refused():
    with pytest.raises(InvalidInput):
        allocate_by_shares(3, [0.5, 0.5], least=[2, 2])
    with pytest.raises(InvalidInput):
        allocate_by_shares(3, [0.5, -0.5])
    with pytest.raises(InvalidInput):
        allocate_by_shares(9, [0.5, 0.5], least=[2, 2], most=[1, 9])


def test_k_of_each_label_may_be_said() -> None:
    rng = np.random.default_rng(3)
    rows, labels = rng.standard_normal((12, 4)), ["a"] * 8 + ["b"] * 4
    selection = select(rows, rng.random(12), k=5, labels=labels, k_by_label={"a": 1, "b": 4}, method="two_step")
    assert sorted(labels[i] for i in selection.picks) == ["a", "b", "b", "b", "b"]
    for wrong in ({"a": 1, "b": 5}, {"a": 1, "b": 3}, {"b": 5}):
        with pytest.raises(InvalidInput):
            select(rows, rng.random(12), k=5, labels=labels, k_by_label=wrong, method="two_step")
