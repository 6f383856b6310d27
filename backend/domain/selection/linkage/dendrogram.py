"""The tree that agglomerative clustering leaves, and what can be read off it without the rows."""

from dataclasses import dataclass

import numpy as np

from backend.domain.errors import InvalidInput
from backend.domain.selection.linkage.quantised_cosine import QUANTUM, Floats, Ints

NEAR_DUPLICATE_CUT = 0.2  # average-linkage cosine distance under which texts are variants of one sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Dendrogram:
    """`merges` (n-1, 2): ids of the two clusters joined at step i; ids below n are rows, n + i is the cluster born at
    step i. `heights` (n-1,), ascending. What a height is depends on the linkage:

        average   mean cosine distance of the two clusters' rows
        complete  largest cosine distance between them
        ward      growth of the within-cluster sum of squares; the cosine distance for two rows, above 2 for large
                  clusters

    `min_inter_cluster` and `n_groups` at the near-duplicate cut mean what reports say they mean on an average-linkage
    dendrogram only."""

    n: int
    merges: Ints
    heights: Floats

    @property
    def top_merge(self) -> float:
        """The distance of the last two clusters; 0 for fewer than two rows."""
        return float(self.heights[-1]) if self.n > 1 else 0.0

    def min_inter_cluster(self, k: int) -> float | None:
        """The smallest distance between two of the k clusters; None where there are not two."""
        return float(self.heights[self.n - k]) if 2 <= k <= self.n else None

    def n_groups(self, cut: float = NEAR_DUPLICATE_CUT) -> int:
        """Return how many clusters remain when every pair at `cut` or less has been joined."""
        return self.n - int(np.count_nonzero(self.heights <= cut + QUANTUM / 2))


def cut(dendrogram: Dendrogram, k: int) -> Ints:
    """`(n,)` cluster numbers 0..k-1, numbered by their first row. Always exactly k clusters, identical rows or not
    (scipy's `maxclust` may return fewer)."""
    if not 0 <= k <= dendrogram.n or (k == 0) != (dendrogram.n == 0):
        raise InvalidInput(f"{dendrogram.n} rows cannot be cut into {k} clusters.")
    _, first, inverse = np.unique(roots(dendrogram, k), return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse].astype(np.int64)


def roots(dendrogram: Dendrogram, k: int) -> Ints:
    """`(n,)` the id of each row's cluster after n - k merges."""
    n = dendrogram.n
    root = list(range(2 * n - k))
    for i, (a, b) in reversed(list(enumerate(dendrogram.merges[: n - k].tolist()))):
        root[a] = root[b] = root[n + i]
    return np.array(root[:n], dtype=np.int64)


def dendrogram_of(n: int, joined: Ints, heights: Floats) -> Dendrogram:
    """The tree of `(n-1, 2)` joins in any order in which parts come before wholes; each names its two clusters by their
    first rows, the lower one first. Sorted by height; equal heights stay in the order given. A whole is never lower
    than its parts, whatever rounding says."""
    low, high = joined.T.tolist()
    raised = heights.tolist()
    height_of = [0.0] * n  # of the cluster whose first row this is
    for i, (a, b) in enumerate(zip(low, high, strict=True)):
        height_of[a] = raised[i] = max(raised[i], height_of[a], height_of[b])
    sorted_heights = np.array(raised)
    order = np.argsort(sorted_heights, kind="stable")
    id_of = list(range(n))
    for i, at in enumerate(order.tolist()):
        a, b = low[at], high[at]
        low[at], high[at] = id_of[a], id_of[b]
        id_of[a] = n + i
    merges = np.sort(np.array([low, high], dtype=np.int64).T[order], axis=1)
    return with_twins_in_order(n, merges, sorted_heights[order])


def with_twins_in_order(n: int, merges: Ints, heights: Floats) -> Dendrogram:
    """The same tree, with the merges of identical rows (height 0) put in such an order that a cut into more clusters
    than there are different rows splits off the earliest twins: in canonical order, the best of them. Their order is
    arbitrary before."""
    tree = Dendrogram(n=n, merges=merges, heights=heights)
    n_zero = int(np.count_nonzero(heights == 0))
    if n_zero == 0:
        return tree
    old = roots(tree, n - n_zero)
    _, first, inverse = np.unique(old, return_index=True, return_inverse=True)
    group = first[inverse].tolist()  # of each row: the first row identical to it
    node = list(range(n))  # of each first row: the id of its group so far
    out = merges.copy()
    for at, row in enumerate(row for row in reversed(range(n)) if group[row] != row):
        out[at] = node[group[row]], row
        node[group[row]] = n + at
    renamed = np.arange(2 * n)
    renamed[old] = np.array(node)[group]
    out[n_zero:] = renamed[merges[n_zero:]]
    return Dendrogram(n=n, merges=out, heights=heights)
