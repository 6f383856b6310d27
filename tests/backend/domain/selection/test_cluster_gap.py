"""The natural count and the severity of a forced split, on rows whose clusters are known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import silhouette_score

from backend.domain.selection import cluster_gap
from backend.domain.selection.cluster_gap import NaturalClusters, Severity, natural_clusters, severity_of
from backend.domain.selection.linkage.clustering import average_linkage, cut
from backend.domain.selection.linkage.dendrogram import Dendrogram

seeds = st.integers(0, 10_000)


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def random_rows(seed: int, n: int, d: int = 5) -> np.ndarray:
    return unit(np.random.default_rng(seed).standard_normal((n, d)))


def around(seed: int, sizes: list[int], *, noise: float = 0.1, d: int = 32) -> np.ndarray:
    """Rows in well separated directions, `sizes[i]` of them around direction i."""
    rng = np.random.default_rng(seed)
    centres = np.eye(d)[: len(sizes)]
    return unit(np.repeat(centres, sizes, axis=0) + noise / np.sqrt(d) * rng.standard_normal((sum(sizes), d)))


def natural(rows: np.ndarray, k_forced: int) -> NaturalClusters:
    return natural_clusters(rows, average_linkage(rows), k_forced)


def severity(rows: np.ndarray, k_forced: int) -> Severity:
    dendrogram = average_linkage(rows)
    return severity_of(natural_clusters(rows, dendrogram, k_forced), dendrogram, k_forced)


@given(st.integers(2, 20), st.integers(1, 25))
def test_identical_rows_are_one_cluster_whatever_is_forced(n: int, k_forced: int) -> None:
    assert natural(np.repeat(unit(np.ones((1, 4))), n, axis=0), k_forced).k == 1


@given(seeds, st.lists(st.integers(2, 12), min_size=2, max_size=8), st.sampled_from([0.05, 0.2, 0.5]))
def test_separate_groups_are_counted(seed: int, sizes: list[int], noise: float) -> None:
    rows = around(seed, sizes, noise=noise)
    found = natural(rows, len(sizes) + 3)
    assert found.k == len(sizes)
    assert found.silhouette is not None
    assert found.silhouette > 0.6
    assert found.best_silhouette == found.silhouette


@given(seeds, st.integers(5, 12))
def test_an_outlier_beside_a_tight_group_is_a_cluster_of_its_own(seed: int, n: int) -> None:
    assert natural(around(seed, [n, 1], noise=0.3), 4).k == 2


@given(seeds, st.integers(3, 30), st.integers(1, 12))
def test_a_tight_group_is_one_natural_cluster_though_no_silhouette_can_say_so(seed: int, n: int, k: int) -> None:
    found = natural(around(seed, [n]), k)
    assert (found.k, found.silhouette) == (1, None)


def test_unrelated_rows_are_not_one_cluster() -> None:
    assert natural(np.eye(12), 4).k > 1


@given(seeds, st.integers(3, 40), st.integers(1, 45))
def test_what_is_reported_is_in_range_and_the_forced_silhouette_is_scikit_learns(seed: int, n: int, k: int) -> None:
    rows = random_rows(seed, n)
    found = natural(rows, k)
    assert 1 <= found.k <= max(2, min(k, n - 1))
    assert found.complete
    assert found.best_silhouette is not None
    assert found.silhouette is None or found.silhouette <= found.best_silhouette
    if k == 1:
        assert found.forced_silhouette is None
    elif k >= n:
        assert found.forced_silhouette == 0
    else:
        labels = cut(average_linkage(rows), k)
        assert found.forced_silhouette == pytest.approx(silhouette_score(rows, labels, metric="cosine"), abs=2e-6)


@given(seeds, st.integers(3, 30), st.integers(2, 10))
def test_rounding_noise_of_another_batch_does_not_move_the_count(seed: int, n: int, k: int) -> None:
    rows = random_rows(seed, n, d=24)
    noise = np.random.default_rng(seed + 1).uniform(-2e-9, 2e-9, rows.shape)
    assert natural(rows, k).k == natural(unit(rows + noise), k).k


def test_fewer_than_three_rows_have_defined_answers() -> None:
    nothing, one = np.empty((0, 3)), np.eye(3)[:1]
    apart, twins = np.eye(3)[:2], np.eye(3)[[0, 0]]
    assert [natural(rows, len(rows)).k for rows in (nothing, one, apart, twins)] == [0, 1, 2, 1]
    undefined = natural(apart, 2)
    assert (undefined.silhouette, undefined.best_silhouette, undefined.forced_silhouette) == (None, None, None)
    assert [severity(rows, len(rows)) for rows in (nothing, one, apart)] == [Severity.NONE] * 3
    assert severity(twins, 2) is Severity.DEGENERATE


def test_zero_rows_are_at_distance_one_from_everything() -> None:
    rows = np.zeros((6, 8))
    rows[:3] = np.eye(8)[0]
    assert natural(rows, 5).k == 4  # three twins and three zero rows


def test_a_pool_too_large_for_every_k_is_searched_as_far_as_the_budget_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = around(3, [30, 25, 20, 15, 10])
    exact = natural(rows, 33)
    monkeypatch.setattr(cluster_gap, "ALL_K_CELLS", 8 * len(rows))
    quick = natural(rows, 33)
    assert (exact.complete, quick.complete) == (True, False)
    assert (quick.k, quick.silhouette, quick.forced_silhouette) == (5, exact.silhouette, exact.forced_silhouette)
    monkeypatch.setattr(cluster_gap, "ALL_K_CELLS", 0)
    assert natural(rows, 33).k == 2


def test_without_wards_tree_clear_groups_are_counted_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_gap, "WARD_ROWS", 0)
    assert natural(around(4, [12, 9, 3, 1]), 8).k == 4


@given(seeds, st.integers(2, 25), st.integers(1, 27))
def test_a_split_is_degenerate_exactly_if_two_of_its_clusters_are_near_duplicates(seed: int, n: int, k: int) -> None:
    rows = around(seed, [n // 2, n - n // 2], noise=0.7) if seed % 2 else random_rows(seed, n)
    dendrogram = average_linkage(rows)
    has_two = 2 <= k <= n
    assert (severity(rows, k) is Severity.DEGENERATE) == (has_two and dendrogram.n_groups() < k)


RANK = {Severity.NONE: 0, Severity.WARNING: 1, Severity.DEGENERATE: 2}


@given(seeds, st.integers(4, 30), st.integers(1, 6))
def test_forcing_more_clusters_than_a_count_never_lessens_the_severity(seed: int, n: int, n_natural: int) -> None:
    rows = random_rows(seed, n)
    dendrogram = average_linkage(rows)
    fixed = NaturalClusters(k=n_natural, silhouette=None, best_silhouette=0.5, forced_silhouette=0.1, complete=True)
    ranks = [RANK[severity_of(fixed, dendrogram, k)] for k in range(2, n)]
    assert ranks == sorted(ranks)


def eight_rows_joined_at(closest: float, k_forced: int) -> Dendrogram:
    """The k clusters are variants at 0.25 or less, `closest` is where the nearest two are joined, 1 the top merge."""
    heights = [min(closest, 0.25)] * (8 - k_forced) + [closest] + [1.0] * (k_forced - 2)
    return Dendrogram(n=8, merges=np.zeros((7, 2), np.int64), heights=np.array(heights))


@pytest.mark.parametrize(
    ("k_natural", "k_forced", "closest", "expected"),
    [
        (2, 3, 0.59, Severity.WARNING),  # the next two clusters are near for this pool
        (2, 3, 0.61, Severity.NONE),
        (3, 3, 0.30, Severity.NONE),  # no more are forced than there are
        (2, 4, 0.90, Severity.WARNING),  # twice the count
        (1, 2, 1.00, Severity.WARNING),
        (3, 5, 0.90, Severity.NONE),
        (5, 3, 0.10, Severity.DEGENERATE),  # near-duplicates, whatever the count says
        (1, 8, 0.90, Severity.NONE),  # every candidate is kept: nothing was split
    ],
)
def test_the_rule(k_natural: int, k_forced: int, closest: float, expected: Severity) -> None:
    found = NaturalClusters(k=k_natural, silhouette=None, best_silhouette=None, forced_silhouette=None, complete=True)
    assert severity_of(found, eight_rows_joined_at(closest, k_forced), k_forced) is expected
