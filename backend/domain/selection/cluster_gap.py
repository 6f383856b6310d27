"""The number of clusters that a pool has by itself, and whether a forced split makes more of them than there are.

The cluster gap of seed 000: a forced split of a pool that has fewer clusters than K yields near-duplicates. It is
DEGENERATE when two of the clusters are variants of one sentence, and worth a WARNING when the natural count is below K
and either the closest two clusters are near for this pool or K is at least twice the count. The forced silhouette is
reported and not used: it is a poor sign. The natural count is a warning only: the number to drop K to is that of the
near-duplicate groups.

Thresholds were measured on MiniLM embeddings (docs/decisions/0008-cluster-gap.md); another embedder needs its own.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from backend.domain.selection.linkage.clustering import linkage_of
from backend.domain.selection.linkage.criteria import Linkage
from backend.domain.selection.linkage.dendrogram import Dendrogram, cut
from backend.domain.selection.linkage.quantised_cosine import QUANTUM, Floats, Rows
from backend.domain.selection.linkage.silhouettes import silhouette, silhouettes_by_k

NEAR_BEST = 0.95  # a count whose score is this close to the best is as good: the smallest is taken, argmax over-counts
JOIN_WEIGHT = 0.25  # of the drop in join distance below a cut, beside its silhouette
ONE_CLUSTER_REACH = 0.42  # cosine distance at which one cluster is imagined to have its nearest neighbour
GAP_RATIO = 0.6  # smallest distance between forced clusters over the top merge, under which the split is artificial
GAP_FACTOR = 2  # K over the natural count from which it is, too
WARD_ROWS = 2_000  # up to which Ward's tree is read as well; a count costs about twice as much with it
ALL_K_CELLS = 500_000_000  # n x k up to which every k's silhouette is computed


class Severity(StrEnum):
    NONE = "none"
    WARNING = "warning"  # the forced split has more clusters than the pool
    DEGENERATE = "degenerate"  # and some of them are variants of one sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class NaturalClusters:
    """`k` natural clusters with their silhouette; the best silhouette seen and the one at the forced count, None where
    undefined. `complete` is False when the pool was too large to try every k up to the forced one."""

    k: int
    silhouette: float | None
    best_silhouette: float | None
    forced_silhouette: float | None
    complete: bool


def natural_clusters(unit_rows: Rows, average: Dendrogram, k_forced: int) -> NaturalClusters:
    """Return how many clusters the `(n, d)` unit rows have by themselves, looked for up to the forced count; `average`
    is their average-linkage dendrogram.

    1 if all rows together have a silhouette near the best one of any cut, where b is ONE_CLUSTER_REACH. Else the
    smallest k whose score is within 5 % of the best. The score is the silhouette of a cut plus a quarter of the drop in
    join distance just below it, as a share of the top join; the better of two trees counts: average linkage, which sets
    outliers apart, and up to 2,000 rows Ward's, which sees loose clusters.

    Costs Ward's linkage and one or two passes of `silhouettes_by_k`, to at most ALL_K_CELLS / n clusters."""
    n = average.n
    k_max = min(max(k_forced, 2), n - 1)
    if k_max < 2:  # the silhouette of one or two rows is undefined: the distance alone decides
        k = 1 if n == 2 and average.top_merge < ONE_CLUSTER_REACH else n
        return NaturalClusters(k=k, silhouette=None, best_silhouette=None, forced_silhouette=None, complete=True)
    k_scanned = min(k_max, max(2, ALL_K_CELLS // n))
    of_average = silhouettes_by_k(unit_rows, average, k_scanned)
    values, scores = of_average, of_average + _drops(average.heights, k_scanned)
    if n <= WARD_ROWS:
        ward = linkage_of(unit_rows, Linkage.WARD)
        of_ward = silhouettes_by_k(unit_rows, ward, k_scanned)
        # Ward's heights are sums of squares
        values, scores = np.maximum(values, of_ward), np.maximum(scores, of_ward + _drops(ward.heights**0.5, k_scanned))
    is_one = _first_near_best(np.concatenate(([_silhouette_of_one(unit_rows)], values))) == 0
    k = 1 if is_one else _first_near_best(scores) + 2
    return NaturalClusters(
        k=k,
        silhouette=None if is_one else round(float(values[k - 2]), 6),
        best_silhouette=round(float(values.max()), 6),
        forced_silhouette=_forced_silhouette(unit_rows, average, k_forced, of_average),
        complete=k_scanned == k_max,
    )


def severity_of(natural: NaturalClusters, average: Dendrogram, k_forced: int) -> Severity:
    """Are more clusters forced than there are? `average` is the average-linkage dendrogram of the rows."""
    closest = average.min_inter_cluster(k_forced)
    if closest is None:
        return Severity.NONE
    if average.n_groups() < k_forced:
        return Severity.DEGENERATE
    is_near = closest < GAP_RATIO * average.top_merge
    # K = n keeps every candidate: nothing was split
    is_multiple = GAP_FACTOR * natural.k <= k_forced < average.n
    return Severity.WARNING if natural.k < k_forced and (is_near or is_multiple) else Severity.NONE


def _drops(joins: Floats, k_max: int) -> Floats:
    """JOIN_WEIGHT times how much farther apart the next two of k clusters are than the last two that were joined, for
    k = 2..k_max < n, as a share of the top join; 0 where every row is the same."""
    downwards = joins[::-1][:k_max]
    return JOIN_WEIGHT * (downwards[:-1] - downwards[1:]) / max(float(joins[-1]), QUANTUM)


def _silhouette_of_one(unit_rows: Rows) -> float:
    """Mean of (b - a) / max(a, b) with a the mean distance to the other rows and b = ONE_CLUSTER_REACH."""
    others = len(unit_rows) - 1
    to_self = np.einsum("ij,ij->i", unit_rows, unit_rows)
    cosines = np.asarray(unit_rows @ unit_rows.sum(axis=0) - to_self, dtype=np.float64)
    a = np.maximum(1 - cosines / others, 0.0)
    return float(((ONE_CLUSTER_REACH - a) / np.maximum(ONE_CLUSTER_REACH, a)).mean())


def _first_near_best(scores: Floats) -> int:
    """The first place whose score is within 5 % of the best; rounded, so that noise never moves it."""
    rounded = np.round(scores, 6)
    best = float(rounded.max())
    return int(np.argmax(rounded >= best - (1 - NEAR_BEST) * abs(best)))


def _forced_silhouette(unit_rows: Rows, average: Dendrogram, k_forced: int, scanned: Floats) -> float | None:
    """Return the silhouette of the average-linkage cut; None for fewer than two clusters, 0 by convention for as many
    as rows."""
    if k_forced < 2:
        return None
    if k_forced >= average.n:
        return 0.0
    if k_forced - 2 < len(scanned):
        return round(float(scanned[k_forced - 2]), 6)
    return round(silhouette(unit_rows, cut(average, k_forced)), 6)
