"""The clusters of a round of `reciprocal_nn`, and which is nearest to which.

float32 products only propose. Candidates closer than `MARGIN` are told apart by float64 inner products, summed outside
BLAS and quantised to 1e-6, so the tree does not depend on the number of threads. Equal ones go to the smallest i xor j
of the clusters' first rows: an order of pairs, not of rows, so that many equal rows pair up in one round (the lowest
index would join one pair a round).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.domain.selection.linkage.criteria import Linkage
from backend.domain.selection.linkage.knn_lists import Floats32, lists_of, lists_of_all
from backend.domain.selection.linkage.nn_chain import Progress
from backend.domain.selection.linkage.quantised_cosine import STEPS, Floats, Ints, Rows

SEARCH_STAGE = "neighbours"  # named to on_progress
MARGIN = 4e-6  # of a cosine; float32 products of one pair differ by up to 5e-7 between shapes and thread counts
_CHUNK = 1_024  # pairs
_CROWD = 64  # rows


@dataclass(slots=True, kw_only=True)
class Clusters:
    """The clusters of a round, in the order of their first rows. `near`, `cost` (m, LIST) are their lists; a listed
    cost is out of date where not `fresh`; nothing outside a list costs less than `bound`. `nearest` (m,) costs
    `least`."""

    linkage: Linkage
    means: Floats32
    sizes: Floats
    squares: Floats  # of the means' lengths, a zero row counting as a unit row at right angles to all others
    first: Ints
    near: Ints
    cost: Floats32
    fresh: NDArray[np.bool_]
    bound: Floats32
    nearest: Ints
    least: Floats32

    def __len__(self) -> int:
        return len(self.first)

    def tile(self, rows: Ints, columns: slice) -> Floats32:
        """`(r, c)` costs of joining some clusters with a range of them, by BLAS."""
        is_range = int(rows[-1] - rows[0]) + 1 == len(rows)
        some = self.means[rows[0] : rows[-1] + 1] if is_range else self.means[rows]
        return np.asarray(self.cost_from(some @ self.means[columns].T, rows[:, None], columns))

    def costs(self, a: Ints, b: Ints, dtype: type[np.floating[Any]] = np.float32) -> Rows:
        """`(p,)` costs of joining single pairs, summed in one order whatever the threads."""
        out = np.empty(len(a), dtype)
        for start in range(0, len(a), _CHUNK):
            i, j = a[start : start + _CHUNK], b[start : start + _CHUNK]
            out[start : start + _CHUNK] = self.cost_from(
                np.einsum("ij,ij->i", self.means[i], self.means[j], dtype=dtype), i, j
            )
        return out

    def margin(self, rows: Ints) -> Floats32:
        """Ward's cost multiplies the rounding of a product by no more than the smaller size."""
        return np.asarray(MARGIN * (self.sizes[rows] if self.linkage is Linkage.WARD else 1.0), np.float32)

    def cost_from(self, products: Any, a: Any, b: Any) -> Any:
        """Compute in place 1 less the mean similarity, or what Ward's sum of squares grows by."""
        if self.linkage is Linkage.AVERAGE:
            return np.subtract(1, products, out=products)
        n_a, n_b = self.sizes[a].astype(products.dtype), self.sizes[b].astype(products.dtype)
        products *= -2
        products += self.squares[a].astype(products.dtype)
        products += self.squares[b].astype(products.dtype)
        products *= n_a * n_b / (n_a + n_b)
        return products


def search_all(clusters: Clusters, on_progress: Progress | None) -> None:
    m = len(clusters)
    advance = None if on_progress is None else lambda done: on_progress(SEARCH_STAGE, done, m)
    clusters.near, clusters.cost = lists_of_all(clusters.tile, m, advance)
    clusters.fresh = np.ones(clusters.near.shape, bool)
    clusters.bound = clusters.cost[:, -1].copy()
    _decide(clusters, np.arange(m), np.arange(m))


def rank(clusters: Clusters, touched: Ints) -> None:
    """New nearest neighbours for the clusters that a join has touched."""
    row, slot = np.nonzero(~clusters.fresh[touched])
    a = touched[row]
    b = clusters.near[a, slot]
    clusters.cost[a, slot] = np.where(a == b, np.inf, clusters.costs(a, b))
    clusters.fresh[touched] = True
    least = clusters.cost[touched].min(axis=1)
    lost = touched[least + clusters.margin(touched) >= clusters.bound[touched]]
    if len(lost):
        clusters.near[lost], clusters.cost[lost] = lists_of(clusters.tile, lost, len(clusters))
        clusters.bound[lost] = clusters.cost[lost, -1]
    _decide(clusters, touched, lost)


def _decide(clusters: Clusters, rows: Ints, searched: Ints) -> None:
    """The nearest of each row's list; ties by float64, then by i xor j. Where a list just searched for ends within the
    margin, there are more equals than it holds, and they are all looked at."""
    cost = clusters.cost[rows]
    clusters.least[rows] = least = cost.min(axis=1)
    clusters.nearest[rows] = clusters.near[rows, cost.argmin(axis=1)]
    close = cost <= (least + clusters.margin(rows))[:, None]
    row, slot = np.nonzero(close & (close.sum(axis=1) > 1)[:, None])
    a = rows[row]
    b = clusters.near[a, slot]
    exact = np.rint(clusters.costs(a, b, np.float64) * STEPS)
    order = np.lexsort((clusters.first[a] ^ clusters.first[b], exact, a))
    best = order[np.flatnonzero(np.diff(a[order], prepend=-1))]
    clusters.nearest[a[best]] = b[best]
    crowded = searched[clusters.least[searched] + clusters.margin(searched) >= clusters.bound[searched]]
    for start in range(0, len(crowded), _CROWD):
        _decide_among_many(clusters, crowded[start : start + _CROWD])
    clusters.bound[crowded] = -np.inf  # to be searched again when touched


def _decide_among_many(clusters: Clusters, rows: Ints) -> None:
    costs = clusters.tile(rows, slice(0, len(clusters)))
    costs[np.arange(len(rows)), rows] = np.inf
    close = costs <= (costs.min(axis=1) + clusters.margin(rows))[:, None]
    partner = clusters.first[rows][:, None] ^ clusters.first
    clusters.nearest[rows] = np.where(close, partner, np.iinfo(np.int64).max).argmin(axis=1)
