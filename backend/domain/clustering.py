"""Average-linkage clustering on cosine distance, and how many clusters a pool naturally has.

One dendrogram answers everything: the K clusters of a forced split, the smallest distance between them at every K (the
next merge's height), the number of near-duplicate groups, and the silhouette at every k in one pass. Rows are expected
in canonical order (`selection.select` sorts them); similarities are quantised to 1e-6 because re-embedding the same
text in another batch, or another thread count, moves a float32 cosine by up to 5e-7. Thresholds were measured on MiniLM
embeddings of real sentences.

Not here: scores. Which member of a cluster is kept is `selection`'s business.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import linkage

from backend.domain.errors import InvalidInput

Rows = NDArray[np.floating[Any]]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

STEPS = 1_000_000  # similarities are multiples of 1e-6
QUANTUM = 1 / STEPS
NEAR_DUPLICATE_CUT = 0.2  # average-linkage cosine distance under which texts are variants of one sentence
ONE_CLUSTER_CUT = 0.30  # a pool whose top merge is lower than this is one natural cluster
NEAR_BEST = 0.95  # the natural count is the smallest k this close to the best silhouette; argmax alone over-counts
MAX_ROWS = 20_000  # two float64 condensed matrices: 3.2 GB there, 0.8 GB at 10,000
ALL_K_CELLS = (
    50_000_000  # n x K up to which every k's silhouette is computed: 1.3 s and 0.9 GB at n = 10,000, K = n / 3
)
N_GAP_CANDIDATES = 16
_BLOCK = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class Dendrogram:
    """`merges` (n-1, 2): ids of the two clusters joined at step i; ids below n are rows, n + i is the cluster born at
    step i. `heights` (n-1,): average cosine distance of the two, ascending."""

    n: int
    merges: Ints
    heights: Floats

    @property
    def top_merge(self) -> float:
        """The distance of the last two clusters; 0 for fewer than two rows."""
        return float(self.heights[-1]) if self.n > 1 else 0.0

    def min_inter_cluster(self, k: int) -> float | None:
        """The smallest average distance between two of the k clusters; None where there are not two."""
        return float(self.heights[self.n - k]) if 2 <= k <= self.n else None

    def n_groups(self, cut: float = NEAR_DUPLICATE_CUT) -> int:
        """How many clusters remain when every pair at `cut` or less has been joined."""
        return self.n - int(np.count_nonzero(self.heights <= cut + QUANTUM / 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class NaturalClusters:
    """`k` natural clusters with their silhouette; the best silhouette seen and the one at the forced count, None where
    undefined. `complete` is False when the pool was too large to try every k and only the dendrogram's largest gaps
    were."""

    k: int
    silhouette: float | None
    best_silhouette: float | None
    forced_silhouette: float | None
    complete: bool


def average_linkage(unit_rows: Rows) -> Dendrogram:
    """Exact average linkage on cosine distance. `(n, d)`, unit or zero rows; a zero row is at distance 1 from every
    other.

    scipy's nearest-neighbour chain on a BLAS-made condensed matrix: O(n^2 d) time, 8 n^2 bytes."""
    n = len(unit_rows)
    if n > MAX_ROWS:
        raise InvalidInput(
            f"{n:,} rows are more than the {MAX_ROWS:,} that can be clustered at once.", code="too_many_candidates"
        )
    if n < 2:
        return Dendrogram(n=n, merges=np.empty((0, 2), np.int64), heights=np.empty(0))
    z = linkage(_condensed_distances(unit_rows), method="average")
    merges, heights = z[:, :2].astype(np.int64), np.maximum.accumulate(z[:, 2])
    return Dendrogram(n=n, merges=_twins_split_in_order(n, merges, heights), heights=heights)


def cut(dendrogram: Dendrogram, k: int) -> Ints:
    """`(n,)` cluster numbers 0..k-1, numbered by their first row. Always exactly k clusters, identical rows or not
    (scipy's `maxclust` may return fewer)."""
    if not 0 <= k <= dendrogram.n or (k == 0) != (dendrogram.n == 0):
        raise InvalidInput(f"{dendrogram.n} rows cannot be cut into {k} clusters.")
    _, first, inverse = np.unique(_roots(dendrogram, k), return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse].astype(np.int64)


def n_near_duplicate_groups(unit_rows: Rows, cut: float = NEAR_DUPLICATE_CUT) -> int:
    """The number a pool's K may be dropped to without losing coverage; the silhouette's count loses up to 12 points of
    accuracy."""
    return average_linkage(unit_rows).n_groups(cut)


def silhouette(unit_rows: Rows, labels: Ints) -> float:
    """Mean cosine silhouette of one labelling (numbers 0..k-1); 0 by convention for fewer than two clusters or all
    singletons."""
    n, k = len(unit_rows), int(labels.max(initial=-1)) + 1
    if k < 2 or k >= n:
        return 0.0
    sums, sizes = _cluster_sums(unit_rows, labels, k)
    total = 0.0
    for start in range(0, n, _BLOCK):
        rows, own = unit_rows[start : start + _BLOCK], labels[start : start + _BLOCK]
        at = np.arange(len(rows))
        totals = sizes - (rows @ sums.T)
        own_totals = totals[at, own] - _self_distance(rows)
        means = totals / sizes
        means[at, own] = np.inf
        total += float(_point_silhouettes(own_totals, sizes[own], means.min(axis=1)).sum())
    return total / n


def silhouettes_by_k(unit_rows: Rows, dendrogram: Dendrogram, k_max: int) -> Floats:
    """Mean silhouettes for k = 2..k_max (`(k_max - 1,)`, k_max < n) in one pass down from k_max.

    The cosine distances from x to a cluster sum to n_C - x.s_C, so no n x n matrix is needed, and joining p and q only
    adds two columns. The joined mean is no smaller than both old ones: a point's nearest other cluster changes only if
    it was p or q."""
    n = dendrogram.n
    labels = cut(dendrogram, k_max)
    column = dict(zip(_roots(dendrogram, k_max).tolist(), labels.tolist(), strict=True))
    ids = sorted(column, key=column.__getitem__)
    sums, sizes = _cluster_sums(unit_rows, labels, k_max)
    totals = np.asarray(sizes[:, None] - sums @ unit_rows.T, dtype=np.float64)
    self_distance, at = _self_distance(unit_rows), np.arange(n)
    own = totals[labels, at] - self_distance
    nearest, nearest_mean = _nearest_other(totals, sizes, labels)
    values = np.empty(k_max - 1)
    for k in range(k_max, 1, -1):
        values[k - 2] = _point_silhouettes(own, sizes[labels], nearest_mean).mean()
        if k == 2:
            break
        a, b = dendrogram.merges[n - k].tolist()
        p, q = sorted((column.pop(a), column.pop(b)))
        stale = np.flatnonzero((nearest == p) | (nearest == q))
        totals[p] += totals[q]
        sizes[p] += sizes[q]
        labels[labels == q] = p
        last = k - 1
        if q != last:  # the last column moves into the gap, so that the live ones stay a prefix
            totals[q], sizes[q], ids[q] = totals[last], sizes[last], ids[last]
            labels[labels == last] = q
            nearest[nearest == last] = q
            column[ids[q]] = q
        ids[p] = 2 * n - k
        column[ids[p]] = p
        joined = labels == p
        own[joined] = totals[p, joined] - self_distance[joined]
        nearest[stale], nearest_mean[stale] = _nearest_other(totals[:last, stale], sizes[:last], labels[stale])
    return values


def natural_clusters(unit_rows: Rows, dendrogram: Dendrogram, k_forced: int) -> NaturalClusters:
    """How many clusters the rows have by themselves, looked for up to the forced count.

    The smallest k in 2..min(k_forced, n-1) whose silhouette is within 5 % of the best; 1 when even the top merge joins
    near-paraphrases (its height is under 0.30), which no silhouette can say. Right in about 0.9 of pools with distinct
    modes; overlapping ones no detector finds."""
    n = dendrogram.n
    is_one = n < 2 or dendrogram.top_merge < ONE_CLUSTER_CUT
    k_max = min(max(k_forced, 2), n - 1)
    if k_max < 2:  # the silhouette of one or two rows is undefined: the distance alone decides
        k = n if n < 2 or not is_one else 1
        return NaturalClusters(k=k, silhouette=None, best_silhouette=None, forced_silhouette=None, complete=True)
    complete = n * k_max <= ALL_K_CELLS
    if complete:
        ks = np.arange(2, k_max + 1)
        values = silhouettes_by_k(unit_rows, dendrogram, k_max)
    else:
        ks = _largest_gaps(dendrogram, k_max)
        values = np.array([silhouette(unit_rows, cut(dendrogram, int(k))) for k in ks])
    values = np.round(values, 6)  # so that rounding noise never moves the natural count
    best = float(values.max())
    at = int(np.argmax(values >= best - (1 - NEAR_BEST) * abs(best)))
    forced = float(values[-1]) if k_max == k_forced else 0.0 if k_forced >= n else None
    return NaturalClusters(
        k=1 if is_one else int(ks[at]),
        silhouette=None if is_one else float(values[at]),
        best_silhouette=best,
        forced_silhouette=forced,
        complete=complete,
    )


def _condensed_distances(unit_rows: Rows) -> Floats:
    """`(n (n-1) / 2,)` quantised cosine distances, row by row above the diagonal, in blocks of BLAS products."""
    n = len(unit_rows)
    out = np.empty(n * (n - 1) // 2)
    filled = 0
    for start in range(0, n, _BLOCK):
        distances = quantised_distances(unit_rows[start : start + _BLOCK] @ unit_rows[start:].T)
        for i, row in enumerate(distances):
            width = n - 1 - start - i
            out[filled : filled + width] = row[i + 1 :]
            filled += width
    return out


def quantised_distances(cosines: Rows) -> Floats:
    """1 - cos as a multiple of 1e-6 in [0, 2], float64."""
    return np.clip(np.rint((1.0 - cosines.astype(np.float64)) * STEPS), 0, 2 * STEPS) / STEPS


def _twins_split_in_order(n: int, merges: Ints, heights: Floats) -> Ints:
    """The same tree, with the merges of identical rows (height 0) put in such an order that a cut into more clusters
    than there are different rows splits off the earliest twins: in canonical order, the best of them. scipy's order
    among them is arbitrary."""
    n_zero = int(np.count_nonzero(heights == 0))
    if n_zero == 0:
        return merges
    old = _roots(Dendrogram(n=n, merges=merges, heights=heights), n - n_zero)
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
    return out


def _roots(dendrogram: Dendrogram, k: int) -> Ints:
    """`(n,)` the id of each row's cluster after n - k merges."""
    n = dendrogram.n
    root = list(range(2 * n - k))
    for i, (a, b) in reversed(list(enumerate(dendrogram.merges[: n - k].tolist()))):
        root[a] = root[b] = root[n + i]
    return np.array(root[:n], dtype=np.int64)


def _cluster_sums(unit_rows: Rows, labels: Ints, k: int) -> tuple[Rows, Floats]:
    """`(k, d)` sums of each cluster's rows and `(k,)` sizes."""
    order = np.argsort(labels, kind="stable")
    sizes = np.bincount(labels, minlength=k)
    sums = np.add.reduceat(unit_rows[order], np.concatenate(([0], np.cumsum(sizes)[:-1])), axis=0)
    return sums, sizes.astype(np.float64)


def _self_distance(rows: Rows) -> Floats:
    """What 1 - x.x adds to a row's distance total: 0 for a unit row (but for rounding), 1 for a zero row."""
    return np.asarray(1.0 - np.einsum("ij,ij->i", rows, rows), dtype=np.float64)


def _nearest_other(totals: Floats, sizes: Floats, labels: Ints) -> tuple[Ints, Floats]:
    """Of `(k, m)` distance totals: each column's cluster with the smallest mean distance that is not its own, and that
    mean."""
    at = np.arange(totals.shape[1])
    means = totals / sizes[:, None]
    means[labels, at] = np.inf
    nearest = means.argmin(axis=0)
    return nearest, means[nearest, at]


def _point_silhouettes(own_totals: Floats, own_sizes: Floats, nearest_mean: Floats) -> Floats:
    a = np.maximum(own_totals, 0.0) / np.maximum(own_sizes - 1.0, 1.0)
    b = np.maximum(nearest_mean, 0.0)
    widest = np.maximum(a, b)
    # below the quantum both means are rounding noise around identical rows; a singleton's silhouette is 0 by definition
    defined = (own_sizes > 1.0) & (widest > QUANTUM)
    return np.asarray(np.where(defined, (b - a) / np.where(defined, widest, 1.0), 0.0))


def _largest_gaps(dendrogram: Dendrogram, k_max: int) -> Ints:
    """Ascending: the counts 2..k_max after which joining once more costs most over the join before, and k_max
    itself."""
    ks = np.arange(2, k_max + 1)
    heights, n = dendrogram.heights, dendrogram.n
    gaps = heights[n - ks] - heights[n - ks - 1]
    widest = ks[np.argsort(-gaps, kind="stable")[:N_GAP_CANDIDATES]]
    return np.union1d(widest, [k_max]).astype(np.int64)
