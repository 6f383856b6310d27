import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.labeling.neighbourhoods import densities
from backend.domain.selection.linkage.clustering import Floats, Rows
from tests.backend.domain.labeling.test_linear_head import clusters
from tests.backend.domain.selection.test_greedy_picks import pools


def by_definition(rows: Rows, k: int) -> Floats:
    cosines = rows @ rows.T
    k = min(k, len(rows) - 1)
    others = [np.delete(cosines[i], i) for i in range(len(rows))]
    return np.array([np.sort(other)[::-1][:k].mean() if k > 0 else 0.0 for other in others])


@given(pools(), st.integers(1, 12))
def test_density_is_the_mean_cosine_to_the_nearest(pool: tuple[Rows, Floats], k: int) -> None:
    rows, _ = pool
    np.testing.assert_allclose(densities(rows.astype(float), n_neighbours=k), by_definition(rows, k), atol=2e-6)


@pytest.mark.parametrize("n", [255, 256, 600])
def test_blocks_are_seamless_and_no_order_changes_a_bit(n: int) -> None:
    rows, _ = clusters(n, 24, 5, seed=n)
    here = densities(rows)
    np.testing.assert_allclose(here, by_definition(rows, 10), atol=2e-6)
    order = np.random.default_rng(1).permutation(n)
    assert np.array_equal(densities(rows[order]), here[order])


def test_what_is_far_from_everything_is_least_dense() -> None:
    rows, _ = clusters(200, 24, 1, seed=3)
    rows[7] = -rows.mean(axis=0) / np.linalg.norm(rows.mean(axis=0))
    rows[8] = 0.0
    assert np.argsort(densities(rows))[:2].tolist() == [7, 8]
