"""Average linkage and its statistics against brute force, scipy and scikit-learn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist

from backend.domain.errors import InvalidInput
from backend.domain.selection.linkage import clustering

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


def mixture(seed: int, n: int, d: int) -> np.ndarray:
    """Groups of uneven tightness and size: what embeddings of sentences look like, without their ties."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((max(2, n // 8), d))
    return unit(
        centres[rng.integers(0, len(centres), n)] + rng.uniform(0.05, 0.8, (n, 1)) * rng.standard_normal((n, d))
    )


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
def test_heights_are_those_of_joining_the_closest_pair_over_and_over(seed: int, n: int) -> None:
    rows = random_rows(seed, n)
    assert clustering.average_linkage(rows).heights == pytest.approx(brute_force_merge_heights(rows), abs=1e-5)


@given(seeds, st.integers(2, 60), st.data())
def test_a_cut_gives_exactly_k_clusters_and_agrees_with_scipy(seed: int, n: int, data: st.DataObject) -> None:
    rows, k = random_rows(seed, n), data.draw(st.integers(1, n))
    labels = clustering.cut(clustering.average_linkage(rows), k)
    theirs = fcluster(linkage(pdist(rows, "cosine"), "average"), k, "maxclust")
    assert sorted(set(labels.tolist())) == list(range(k))
    assert list(dict.fromkeys(labels.tolist())) == list(range(k))  # numbered by their first row
    assert len(set(zip(labels.tolist(), theirs.tolist(), strict=True))) == k


def test_identical_rows_still_cut_into_as_many_clusters_as_asked() -> None:
    rows = np.repeat(unit(np.ones((1, 4))), 6, axis=0)
    dendrogram = clustering.average_linkage(rows)
    assert len(set(clustering.cut(dendrogram, 4).tolist())) == 4
    assert dendrogram.n_groups() == 1


def test_fewer_than_three_rows_have_defined_answers() -> None:
    nothing = clustering.average_linkage(np.empty((0, 3)))
    assert (nothing.n_groups(), nothing.top_merge, clustering.cut(nothing, 0).tolist()) == (0, 0.0, [])


def test_impossible_cuts_and_pools_beyond_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    dendrogram = clustering.average_linkage(np.eye(3))
    for k in (-1, 0, 4):
        with pytest.raises(InvalidInput):
            clustering.cut(dendrogram, k)
    monkeypatch.setattr(clustering, "MAX_ROWS", 2)
    monkeypatch.setattr(clustering, "MAX_ROWS_COMPLETE", 1)
    for name, limit in (("average", 2), ("ward", 2), ("complete", 1)):
        with pytest.raises(InvalidInput, match=f"3 rows are more than the {limit} .* with {name} linkage") as refused:
            clustering.linkage_of(np.eye(3), name)
        assert refused.value.code == "too_many_candidates"


def test_a_linkage_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="single"):
        clustering.linkage_of(np.eye(3), "single")


@pytest.mark.parametrize("linkage", ["average", "complete", "ward"])
def test_two_rows_are_joined_at_their_cosine_distance_whatever_the_linkage(linkage: str) -> None:
    for n in (0, 1):
        assert clustering.linkage_of(np.eye(3)[:n], linkage).top_merge == 0.0
    rows = unit(np.array([[1.0, 0, 0], [1.0, 1.0, 0]]))
    assert clustering.linkage_of(rows, linkage).top_merge == pytest.approx(1 - np.sqrt(0.5), abs=1e-6)
    assert clustering.linkage_of(rows * [[1], [0]], linkage).top_merge == 1.0
    assert clustering.linkage_of(rows[[0, 0]], linkage).top_merge == 0.0


@given(seeds, st.integers(2, 12), st.integers(1, 4))
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
