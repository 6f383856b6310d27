"""How many clusters a pool has, by kolm's rule and by the rules that a user could take instead.

All look at k = 2 to the forced count; the ones that can also say 1. Silhouettes are cosine silhouettes.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import HDBSCAN

from backend.domain.selection import cluster_gap
from backend.domain.selection.cluster_gap import Severity, natural_clusters, severity_of
from backend.domain.selection.linkage.clustering import Dendrogram, cut, linkage_of, silhouettes_by_k
from backend.domain.selection.linkage.criteria import Linkage

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trees:
    """What the rules read. Silhouettes are of k = 2, 3, ..., k_max."""

    rows: Floats
    distances: Floats  # (n, n) cosine
    k_max: int
    average: Dendrogram
    ward: Dendrogram
    of_average: Floats
    of_ward: Floats

    @property
    def joins(self) -> Floats:
        """The average-linkage distance at which k clusters become k - 1, k = 2, 3, ..."""
        return self.average.heights[::-1]


def grow(rows: Floats, k_forced: int) -> Trees:
    k_max = min(max(k_forced, 2), len(rows) - 1)
    average, ward = (linkage_of(rows, linkage) for linkage in (Linkage.AVERAGE, Linkage.WARD))
    return Trees(
        rows=rows,
        distances=np.clip(1 - rows @ rows.T, 0, 2),
        k_max=k_max,
        average=average,
        ward=ward,
        of_average=silhouettes_by_k(rows, average, k_max),
        of_ward=silhouettes_by_k(rows, ward, k_max),
    )


def kolm(trees: Trees) -> int:
    return natural_clusters(trees.rows, trees.average, trees.k_max).k


def kolm_without_ward(trees: Trees) -> int:
    """As above WARD_ROWS rows."""
    limit = cluster_gap.WARD_ROWS
    cluster_gap.WARD_ROWS = 0
    try:
        return kolm(trees)
    finally:
        cluster_gap.WARD_ROWS = limit


def best(scores: Floats) -> int:
    return int(np.argmax(scores)) + 2


def first_near_best(scores: Floats, share: float = 0.95) -> int:
    """The smallest k within 5 % of the best."""
    top = float(scores.max())
    return int(np.argmax(np.round(scores, 6) >= round(top - (1 - share) * abs(top), 6))) + 2


def _one_below(height: float) -> Callable[[Trees], int]:
    return lambda trees: 1 if trees.joins[0] < height else first_near_best(trees.of_average)


def _groups_at(height: float) -> Callable[[Trees], int]:
    return lambda trees: 1 + int(np.count_nonzero(trees.average.heights > height))


def _largest_gap(trees: Trees) -> int:
    joins = trees.joins
    return int(np.argmax(joins[: trees.k_max - 1] - joins[1 : trees.k_max])) + 2


def _macro_silhouette(trees: Trees) -> int:
    """Every cluster counts alike, whatever its size."""
    return best(np.array([_per_cluster(trees, cut(trees.average, k)) for k in range(2, trees.k_max + 1)]))


def _per_cluster(trees: Trees, labels: Ints) -> float:
    member = np.eye(labels.max() + 1)[labels]
    sizes, at = member.sum(axis=0), np.arange(len(labels))
    totals = trees.distances @ member
    own = totals[at, labels] / np.maximum(sizes[labels] - 1, 1)
    means = totals / sizes
    means[at, labels] = np.inf
    other = means.min(axis=1)
    points = np.where(sizes[labels] > 1, (other - own) / np.maximum(np.maximum(own, other), 1e-9), 0)
    return float((points @ member / sizes).mean())


def _calinski_harabasz(trees: Trees) -> int:
    n, total, scores = len(trees.rows), trees.rows.sum(axis=0), []
    for k in range(2, trees.k_max + 1):
        member = np.eye(k)[cut(trees.ward, k)]
        between = float((((member.T @ trees.rows) ** 2).sum(axis=1) / member.sum(axis=0)).sum() - total @ total / n)
        within = float((trees.rows**2).sum() - total @ total / n) - between
        scores.append(between / (k - 1) / max(within / (n - k), 1e-12))
    return best(np.array(scores))


def _eigengap(trees: Trees) -> int:
    """The widest gap of the normalised affinity's eigenvalues, affinity = cos^4."""
    affinity = np.maximum(1 - trees.distances, 0) ** 4
    degree = np.sqrt(affinity.sum(axis=1))
    values = np.sort(np.linalg.eigvalsh(affinity / np.outer(degree, degree)))[::-1][: trees.k_max + 1]
    return int(np.argmax(values[:-1] - values[1:])) + 1


def _hdbscan(trees: Trees) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = HDBSCAN(min_cluster_size=3, metric="precomputed", allow_single_cluster=True, copy=True)
        return max(1, int(model.fit(trees.distances).labels_.max()) + 1)


RULES: dict[str, Callable[[Trees], int]] = {
    "**kolm**": kolm,
    "kolm above 2,000 rows: without Ward's tree": kolm_without_ward,
    "silhouette argmax, average (the seed)": lambda trees: best(trees.of_average),
    "silhouette argmax, Ward": lambda trees: best(trees.of_ward),
    "first k >= .95 of the best, average": lambda trees: first_near_best(trees.of_average),
    "first k >= .95 of the best, Ward": lambda trees: first_near_best(trees.of_ward),
    "first .95 average, top merge < .30 is one": _one_below(0.30),
    "first .95 average, top merge < .35 is one": _one_below(0.35),
    "macro silhouette argmax, average": _macro_silhouette,
    "eigengap of cos^4": _eigengap,
    "largest dendrogram gap": _largest_gap,
    "Calinski-Harabasz, Ward": _calinski_harabasz,
    "HDBSCAN, smallest cluster 3": _hdbscan,
    "average linkage cut at .3": _groups_at(0.3),
    "average linkage cut at .4": _groups_at(0.4),
    "average linkage cut at .5": _groups_at(0.5),
}


def is_cut_of_ward(trees: Trees, sizes: tuple[int, ...]) -> bool:
    """Whether Ward's tree has the true clusters at all: where it has not, no reading of the tree finds them."""
    true = np.repeat(np.arange(len(sizes)), sizes)
    return np.array_equal(cut(trees.ward, len(sizes)), true)


def severity_at(trees: Trees, k: int) -> Severity:
    """What kolm says of a split into k."""
    return severity_of(natural_clusters(trees.rows, trees.average, k), trees.average, k)


def first_rule_warns(trees: Trees, k: int) -> bool:
    """What kolm said before it was calibrated: near-duplicate groups, or a lower count by the average-linkage
    silhouette with a ratio under 0.6 or a silhouette lost by more than 0.04."""
    values = trees.of_average[: k - 1]
    n_natural = 1 if trees.joins[0] < 0.3 else first_near_best(values)
    is_artificial = closest(trees, k) < 0.6 * trees.joins[0] or values.max() - values[k - 2] > 0.04
    return trees.average.n_groups() < k or (n_natural < k and is_artificial)


def closest(trees: Trees, k: int) -> float:
    """The smallest average-linkage distance between two of the k clusters."""
    return float(trees.joins[k - 2])


SIGNS: dict[str, Callable[[Trees, int], float]] = {
    "smallest inter-cluster distance": lambda trees, k: -closest(trees, k),
    "the same over the top merge": lambda trees, k: -closest(trees, k) / max(float(trees.joins[0]), 1e-6),
    "forced silhouette": lambda trees, k: -float(trees.of_average[k - 2]),
    "best less forced silhouette": lambda trees, k: float(trees.of_average[: k - 1].max() - trees.of_average[k - 2]),
    "K over kolm's count": lambda trees, k: k / natural_clusters(trees.rows, trees.average, k).k,
}
"""Each is larger where the split is more artificial."""
