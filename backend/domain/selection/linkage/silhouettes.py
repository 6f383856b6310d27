"""Cosine silhouettes: of one labelling, and of every cut of a dendrogram in one pass.

The cosine distances from x to a cluster C sum to n_C - x.s_C with s_C the sum of its rows, so no n x n matrix is
needed, and the mean distance to a join is the weighted mean of two known ones: never below the smaller of them. Hence
the nearest other cluster of a point can change only when it is joined itself, and even then it stays the nearest while
its mean is no more than the second smallest was when last looked at.
"""

from dataclasses import dataclass

import numpy as np

from backend.domain.selection.linkage.dendrogram import Dendrogram, cut, roots
from backend.domain.selection.linkage.quantised_cosine import QUANTUM, Floats, Ints, Rows

_BLOCK = 1_024
_CELLS = 32_000_000  # point-cluster means held at once: 128 MB in float32
_SMALLEST_PIECE = 64  # points
_RESUM = 64  # steps of a running sum


def silhouette(unit_rows: Rows, labels: Ints) -> float:
    """Mean cosine silhouette of one labelling (numbers 0..k-1); 0 by convention for fewer than two clusters or all
    singletons. O(n k d) time, in blocks."""
    n, k = len(unit_rows), int(labels.max(initial=-1)) + 1
    if k < 2 or k >= n:
        return 0.0
    sums, sizes = _cluster_sums(unit_rows, labels, k)
    centres = (sums / sizes[:, None]).astype(unit_rows.dtype)
    total = 0.0
    for start in range(0, n, _BLOCK):
        rows, own = unit_rows[start : start + _BLOCK], labels[start : start + _BLOCK]
        means = rows @ centres.T
        np.subtract(1, means, out=means)
        means[np.arange(len(rows)), own] = np.inf
        own_totals = _own_totals(rows, sums, sizes, own)
        total += float(_point_silhouettes(own_totals, sizes[own], means.min(axis=1)).sum())
    return total / n


def silhouettes_by_k(unit_rows: Rows, dendrogram: Dendrogram, k_max: int) -> Floats:
    """Mean silhouettes for k = 2..k_max (`(k_max - 1,)`, k_max < n) in one pass down from k_max.

    O(n k_max d) for the first means, then about n k_max for the pass; 128 MB beside the rows at any n."""
    labels = cut(dendrogram, k_max)
    sums, sizes = _cluster_sums(unit_rows, labels, k_max)
    joins, leaf_order = _joins(dendrogram, labels, k_max)
    rank = np.empty(k_max, np.int64)
    rank[leaf_order] = np.arange(k_max)
    order = np.argsort(rank[labels], kind="stable")  # every cluster of every cut becomes a run of rows
    ends = np.cumsum(sizes[leaf_order]).astype(np.int64)
    spans = np.empty((k_max, 2), np.int64)
    spans[leaf_order] = np.stack([np.concatenate(([0], ends[:-1])), ends], axis=1)
    values = np.zeros(k_max - 1)
    height = max(_CELLS // k_max, _SMALLEST_PIECE)
    for start in range(0, len(order), height):
        at = order[start : start + height]
        points = _Points.at(unit_rows[at], labels[at], sums, sizes)
        values += _summed_by_k(points, joins, np.clip(spans - start, 0, len(at)), sizes)
    return values / len(order)


@dataclass(slots=True, kw_only=True)
class _Points:
    """`means` (m, c) mean distance of each point to each cluster, inf for its own and for those that are no more;
    `own` (m,) total distance to its own, of `own_size`; the nearest other is in column `nearest` at `least`, and none
    but it is below `second`."""

    means: Rows
    own: Floats
    own_size: Floats
    nearest: Ints
    least: Floats
    second: Floats
    values: Floats

    @classmethod
    def at(cls, rows: Rows, labels: Ints, sums: Floats, sizes: Floats) -> "_Points":
        m = len(rows)
        means = rows @ (sums / sizes[:, None]).astype(rows.dtype).T
        np.subtract(1, means, out=means)
        means[np.arange(m), labels] = np.inf
        points = cls(
            means=means,
            own=_own_totals(rows, sums, sizes, labels),
            own_size=sizes[labels],
            nearest=np.empty(m, np.int64),
            least=np.empty(m),
            second=np.empty(m),
            values=np.zeros(m),
        )
        for start in range(0, m, _BLOCK):
            points.look_again(np.arange(start, min(start + _BLOCK, m)))
        points.revalue(np.arange(m))
        return points

    def look_again(self, at: Ints) -> None:
        means, every = self.means[at], np.arange(len(at))
        nearest = means.argmin(axis=1)
        self.nearest[at], self.least[at] = nearest, means[every, nearest]
        means[every, nearest] = np.inf
        self.second[at] = means.min(axis=1)

    def revalue(self, at: Ints) -> float:
        """The silhouettes of some points; returns what their sum has grown by."""
        before = self.values[at].sum()
        self.values[at] = _point_silhouettes(self.own[at], self.own_size[at], self.least[at])
        return float(self.values[at].sum() - before)

    def join(self, p: int, q: int, n_p: float, n_q: float, in_p: slice, in_q: slice) -> Ints:
        """Column p becomes that of p and q together. Returns the points whose silhouette that changes."""
        to_p, to_q = self.means[:, p], self.means[:, q]
        self.own[in_p] += n_q * to_q[in_p]
        self.own[in_q] += n_p * to_p[in_q]
        self.own_size[in_p] = self.own_size[in_q] = n_p + n_q
        joined = to_p * (n_p / (n_p + n_q)) + to_q * (n_q / (n_p + n_q))
        self.means[:, p], self.means[:, q] = joined, np.inf
        moved = np.flatnonzero((self.nearest == p) | (self.nearest == q))
        self.nearest[moved], self.least[moved] = p, joined[moved]
        self.look_again(moved[self.least[moved] > self.second[moved]])
        inside = [np.arange(part.start, part.stop) for part in (in_p, in_q)]
        return np.unique(np.concatenate([moved, *inside]))

    def close_up(self, alive: Ints) -> None:
        position = np.zeros(self.means.shape[1], np.int64)
        position[alive] = np.arange(len(alive))
        self.means, self.nearest = self.means[:, alive], position[self.nearest]


def _summed_by_k(points: _Points, joins: list[tuple[int, int]], spans: Ints, sizes: Floats) -> Floats:
    """`(k_max - 1,)` sums of the points' silhouettes for k = 2..k_max. `spans` (k_max, 2): which points are in each
    cluster."""
    k_max = len(sizes)
    sums = np.empty(k_max - 1)
    span, size = spans.tolist(), sizes.tolist()
    column, alive = list(range(k_max)), np.arange(k_max)  # where each cluster is; which cluster each column holds
    is_alive = np.ones(k_max, bool)
    sums[-1] = total = float(points.values.sum())
    for k, (p, q) in zip(range(k_max - 1, 1, -1), joins, strict=False):
        changed = points.join(column[p], column[q], size[p], size[q], slice(*span[p]), slice(*span[q]))
        total += points.revalue(changed)
        if k % _RESUM == 0:
            total = float(points.values.sum())
        sums[k - 2] = total
        size[p] += size[q]
        span[p] = [min(span[p][0], span[q][0]), max(span[p][1], span[q][1])]
        is_alive[q] = False
        if k * 2 < points.means.shape[1] and k > 16:
            kept = np.flatnonzero(is_alive[alive])
            points.close_up(kept)
            alive = alive[kept]
            for at, cluster in enumerate(alive.tolist()):
                column[cluster] = at
    return sums


def _joins(dendrogram: Dendrogram, labels: Ints, k_max: int) -> tuple[list[tuple[int, int]], Ints]:
    """The joins below k_max clusters as pairs of the clusters' numbers at k_max, the first of which stands for both
    from then on; and those numbers in the order of the tree's leaves."""
    n = dendrogram.n
    number = dict(zip(roots(dendrogram, k_max).tolist(), labels.tolist(), strict=True))
    leaves = {node: [label] for node, label in number.items()}
    joins = []
    for at, (a, b) in enumerate(dendrogram.merges[n - k_max :].tolist(), start=n - k_max):
        joins.append((number[a], number[b]))
        number[n + at] = number[a]
        short, long = sorted((leaves.pop(a), leaves.pop(b)), key=len)
        long.extend(short)
        leaves[n + at] = long
    (leaf_order,) = leaves.values()
    return joins, np.array(leaf_order, dtype=np.int64)


def _cluster_sums(unit_rows: Rows, labels: Ints, k: int) -> tuple[Floats, Floats]:
    """`(k, d)` sums of each cluster's rows and `(k,)` sizes, float64."""
    order = np.argsort(labels, kind="stable")
    sizes = np.bincount(labels, minlength=k)
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    sums = np.add.reduceat(unit_rows[order], starts, axis=0, dtype=np.float64)
    return sums, sizes.astype(np.float64)


def _own_totals(rows: Rows, sums: Floats, sizes: Floats, own: Ints) -> Floats:
    """`(m,)` the summed distance to the other members of each row's cluster. 1 - x.x is 0 for a unit row (but for
    rounding) and 1 for a zero row."""
    out = np.empty(len(rows))
    for start in range(0, len(rows), _BLOCK):
        part, at = rows[start : start + _BLOCK], own[start : start + _BLOCK]
        others = sums[at] - part
        out[start : start + _BLOCK] = sizes[at] - 1 - np.einsum("ij,ij->i", part, others, dtype=np.float64)
    return out


def _point_silhouettes(own_totals: Floats, own_sizes: Floats, nearest_mean: Rows) -> Floats:
    a = np.maximum(own_totals, 0.0) / np.maximum(own_sizes - 1.0, 1.0)
    b = np.maximum(nearest_mean, 0.0)
    widest = np.maximum(a, b)
    # below the quantum both means are rounding noise around identical rows; a singleton's silhouette is 0 by definition
    defined = (own_sizes > 1.0) & (widest > QUANTUM)
    return np.asarray(np.where(defined, (b - a) / np.where(defined, widest, 1.0), 0.0))
