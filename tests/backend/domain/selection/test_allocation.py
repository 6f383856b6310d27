"""One K, shared out over labels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.errors import InvalidInput
from backend.domain.selection.allocation import allocate_largest_remainder
from backend.domain.selection.select import select

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
