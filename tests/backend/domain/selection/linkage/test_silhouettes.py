"""Silhouettes of one labelling and of every cut, against scikit-learn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import pdist, squareform
from sklearn.metrics import silhouette_score

from backend.domain.selection.linkage import clustering, silhouettes
from backend.domain.selection.linkage.silhouettes import silhouette, silhouettes_by_k
from tests.backend.domain.selection.linkage.test_clustering import around, mixture, random_rows

seeds = st.integers(0, 10_000)


@given(seeds, st.integers(3, 40), st.data())
def test_every_silhouette_of_the_one_pass_is_scikit_learns(seed: int, n: int, data: st.DataObject) -> None:
    rows = random_rows(seed, n) if data.draw(st.booleans()) else around(seed, [n - n // 3, n // 3], noise=0.6)
    k_max = data.draw(st.integers(2, n - 1))
    dendrogram = clustering.linkage_of(rows, data.draw(st.sampled_from(["average", "complete", "ward"])))
    values = silhouettes_by_k(rows, dendrogram, k_max)
    distance = squareform(pdist(rows, "cosine"))
    for k in range(2, k_max + 1):
        labels = clustering.cut(dendrogram, k)
        expected = silhouette_score(distance, labels, metric="precomputed")
        assert values[k - 2] == pytest.approx(expected, abs=1e-7)
        assert silhouette(rows, labels) == pytest.approx(expected, abs=1e-7)


@given(seeds, st.integers(20, 90), st.integers(1, 3_000))
def test_a_pool_read_in_pieces_has_the_same_silhouettes(seed: int, n: int, cells: int) -> None:
    rows = mixture(seed, n, 6)
    dendrogram, k_max = clustering.linkage_of(rows), n // 2
    whole = silhouettes_by_k(rows, dendrogram, k_max)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(silhouettes, "_CELLS", cells)
        patch.setattr(silhouettes, "_SMALLEST_PIECE", 7)
        assert silhouettes_by_k(rows, dendrogram, k_max) == pytest.approx(whole, abs=1e-12)


@given(seeds)
def test_silhouettes_stay_exact_with_zero_rows_among_the_others(seed: int) -> None:
    rows = random_rows(seed, 9)
    rows[[2, 7]] = 0
    distance = 1 - rows @ rows.T
    np.fill_diagonal(distance, 0)
    dendrogram = clustering.average_linkage(rows)
    for k, value in zip(range(2, 9), silhouettes_by_k(rows, dendrogram, 8), strict=True):
        labels = clustering.cut(dendrogram, k)
        assert value == pytest.approx(silhouette_score(np.maximum(distance, 0), labels, metric="precomputed"), abs=1e-7)
        assert value == pytest.approx(silhouette(rows, labels), abs=1e-12)


def test_in_float32_the_running_means_do_not_drift() -> None:
    """1,300 steps down, checked at the ends and between against one labelling in float64."""
    rows = mixture(1, 4_000, 32)
    single = rows.astype(np.float32)
    dendrogram = clustering.linkage_of(single)
    values = silhouettes_by_k(single, dendrogram, 1_333)
    for k in (2, 3, 10, 100, 700, 1_333):
        assert values[k - 2] == pytest.approx(silhouette(rows, clustering.cut(dendrogram, k)), abs=1e-6)


@pytest.mark.parametrize("labels", [[], [0], [0, 0, 0], [0, 1, 2]])
def test_a_silhouette_is_0_where_it_is_undefined(labels: list[int]) -> None:
    assert silhouette(np.eye(4)[: len(labels)], np.array(labels, dtype=np.int64)) == 0.0


def test_identical_rows_have_a_silhouette_of_0_however_they_are_split() -> None:
    rows = np.tile(random_rows(1, 1, 8), (12, 1))
    assert silhouettes_by_k(rows, clustering.linkage_of(rows), 6).tolist() == [0.0] * 5
