"""Average linkage and its statistics against brute force, scipy and scikit-learn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist, squareform
from sklearn.metrics import silhouette_score

from backend.domain import clustering
from backend.domain.errors import InvalidInput

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


def brute_force_merge_heights(rows: np.ndarray) -> list[float]:
    """Join the two clusters with the smallest mean pairwise distance, over and over."""
    distance = np.round(1 - rows @ rows.T, 6)
    clusters, heights = [[i] for i in range(len(rows))], []
    while len(clusters) > 1:
        pairs = [
            (float(distance[np.ix_(a, b)].mean()), i, j)
            for i, a in enumerate(clusters)
            for j, b in enumerate(clusters[:i])
        ]
        height, i, j = min(pairs)
        heights.append(height)
        clusters[j] = clusters[j] + clusters.pop(i)
    return heights


@given(seeds, st.integers(1, 14))
@settings(max_examples=40, deadline=None)
def test_heights_are_those_of_joining_the_closest_pair_over_and_over(seed: int, n: int) -> None:
    rows = random_rows(seed, n)
    assert clustering.average_linkage(rows).heights == pytest.approx(brute_force_merge_heights(rows), abs=1e-5)


@given(seeds, st.integers(2, 60), st.data())
@settings(max_examples=40, deadline=None)
def test_a_cut_gives_exactly_k_clusters_and_agrees_with_scipy(seed: int, n: int, data: st.DataObject) -> None:
    rows, k = random_rows(seed, n), data.draw(st.integers(1, n))
    labels = clustering.cut(clustering.average_linkage(rows), k)
    theirs = fcluster(linkage(pdist(rows, "cosine"), "average"), k, "maxclust")
    assert sorted(set(labels.tolist())) == list(range(k))
    assert list(dict.fromkeys(labels.tolist())) == list(range(k))  # numbered by their first row
    assert len(set(zip(labels.tolist(), theirs.tolist(), strict=True))) == k


@given(seeds, st.integers(3, 40), st.data())
@settings(max_examples=40, deadline=None)
def test_every_silhouette_of_the_one_pass_is_scikit_learns(seed: int, n: int, data: st.DataObject) -> None:
    rows = random_rows(seed, n) if data.draw(st.booleans()) else around(seed, [n - n // 3, n // 3], noise=0.6)
    k_max = data.draw(st.integers(2, n - 1))
    dendrogram = clustering.average_linkage(rows)
    values = clustering.silhouettes_by_k(rows, dendrogram, k_max)
    distance = squareform(pdist(rows, "cosine"))
    for k in range(2, k_max + 1):
        labels = clustering.cut(dendrogram, k)
        expected = silhouette_score(distance, labels, metric="precomputed")
        assert values[k - 2] == pytest.approx(expected, abs=1e-7)
        assert clustering.silhouette(rows, labels) == pytest.approx(expected, abs=1e-7)


@given(seeds)
@settings(max_examples=20, deadline=None)
def test_silhouettes_stay_exact_with_zero_rows_among_the_others(seed: int) -> None:
    rows = random_rows(seed, 9)
    rows[[2, 7]] = 0
    distance = 1 - rows @ rows.T
    np.fill_diagonal(distance, 0)
    dendrogram = clustering.average_linkage(rows)
    for k, value in zip(range(2, 9), clustering.silhouettes_by_k(rows, dendrogram, 8), strict=True):
        labels = clustering.cut(dendrogram, k)
        assert value == pytest.approx(silhouette_score(np.maximum(distance, 0), labels, metric="precomputed"), abs=1e-7)


def test_identical_rows_still_cut_into_as_many_clusters_as_asked() -> None:
    rows = np.repeat(unit(np.ones((1, 4))), 6, axis=0)
    dendrogram = clustering.average_linkage(rows)
    assert len(set(clustering.cut(dendrogram, 4).tolist())) == 4
    assert dendrogram.n_groups() == 1
    assert clustering.natural_clusters(rows, dendrogram, 4).k == 1


@pytest.mark.parametrize("sizes", [[6, 6], [9, 3, 2], [5, 4, 3, 2], [11, 1]])
def test_separate_groups_are_counted(sizes: list[int]) -> None:
    rows = around(1, sizes)
    dendrogram = clustering.average_linkage(rows)
    natural = clustering.natural_clusters(rows, dendrogram, 6)
    assert natural.k == len(sizes)
    assert natural.silhouette is not None
    assert natural.silhouette > 0.8
    assert clustering.n_near_duplicate_groups(rows) == len(sizes)


def test_one_group_is_one_natural_cluster_though_no_silhouette_can_say_so() -> None:
    rows = around(2, [12])
    natural = clustering.natural_clusters(rows, clustering.average_linkage(rows), 4)
    assert (natural.k, natural.silhouette) == (1, None)


def test_a_pool_too_large_for_every_k_is_read_at_the_dendrograms_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = around(3, [30, 25, 20, 15, 10])
    dendrogram = clustering.average_linkage(rows)
    exact = clustering.natural_clusters(rows, dendrogram, 33)
    monkeypatch.setattr(clustering, "ALL_K_CELLS", 10)
    quick = clustering.natural_clusters(rows, dendrogram, 33)
    assert (exact.complete, quick.complete) == (True, False)
    assert (quick.k, quick.silhouette, quick.forced_silhouette) == (5, exact.silhouette, exact.forced_silhouette)


def test_fewer_than_three_rows_have_defined_answers() -> None:
    nothing = clustering.average_linkage(np.empty((0, 3)))
    assert (nothing.n_groups(), nothing.top_merge, clustering.cut(nothing, 0).tolist()) == (0, 0.0, [])
    assert clustering.natural_clusters(np.empty((0, 3)), nothing, 0).k == 0
    one = np.eye(3)[:1]
    assert clustering.natural_clusters(one, clustering.average_linkage(one), 1).k == 1
    apart, twins = np.eye(3)[:2], np.eye(3)[[0, 0]]
    assert clustering.natural_clusters(apart, clustering.average_linkage(apart), 2).k == 2
    assert clustering.natural_clusters(twins, clustering.average_linkage(twins), 2).k == 1


def test_impossible_cuts_and_pools_beyond_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    dendrogram = clustering.average_linkage(np.eye(3))
    for k in (-1, 0, 4):
        with pytest.raises(InvalidInput):
            clustering.cut(dendrogram, k)
    monkeypatch.setattr(clustering, "MAX_ROWS", 2)
    with pytest.raises(InvalidInput, match="3 rows are more than the 2") as refused:
        clustering.average_linkage(np.eye(3))
    assert refused.value.code == "too_many_candidates"


@given(seeds, st.integers(2, 12), st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_a_cut_beyond_the_different_rows_splits_off_the_earliest_twins(seed: int, n: int, n_different: int) -> None:
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, n_different, n)
    rows = np.eye(4)[kind]
    dendrogram = clustering.average_linkage(rows)
    n_kinds = len(set(kind.tolist()))
    twins = [i for i in range(n) if kind[i] in kind[:i]]
    for k in range(n_kinds, n + 1):
        labels = clustering.cut(dendrogram, k).tolist()
        alone = twins[: k - n_kinds]
        assert all(labels.count(labels[i]) == 1 for i in alone)
        assert len(set(labels)) == k
