"""What a selection was asked, what it did, and what the pool allowed: the cluster-gap report of seed 000.

A forced split of a pool that has fewer clusters than K yields near-duplicates. Two signs give it away: two clusters
that average linkage would join at the distance of variants of one sentence (DEGENERATE), and a natural count below K
with either a next merge far below the top one or a silhouette lost by forcing (WARNING). The forced silhouette alone is
a poor sign. The natural count is a warning only: the number to drop K to is that of the near-duplicate groups.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from backend.domain import clustering
from backend.domain.canonical import sha256_of
from backend.domain.clustering import Dendrogram, Floats, Ints, NaturalClusters, Rows

GAP_RATIO = 0.6  # smallest distance between forced clusters over the top merge, under which the split is artificial
SILHOUETTE_LOSS = 0.04  # best silhouette less the forced one, above which it is, too
PPM = 1_000_000
_BLOCK = 1_024


class Severity(StrEnum):
    NONE = "none"
    WARNING = "warning"  # the forced split has more clusters than the pool
    DEGENERATE = "degenerate"  # and some of them are variants of one sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionReport:
    """What was asked, what the pool allowed. Distances are cosine distances among the `n - len(floor_dropped)`
    candidates that were clustered; None marks what is undefined for so few. Indices are the caller's. `cluster_of` is
    -1 for a dropped candidate."""

    method: str
    n: int
    k_requested: int
    k_actual: int
    k_natural: int
    silhouette_natural: float | None
    silhouette_forced: float | None
    silhouette_best: float | None
    all_k_scanned: bool
    min_inter_cluster: float | None
    top_merge: float
    gap_detected: bool
    severity: Severity
    n_groups: int  # near-duplicate groups: what drop_k may drop to
    cluster_sizes: tuple[int, ...]
    cluster_of: tuple[int, ...]
    floor_dropped: tuple[int, ...]
    zero_rows: tuple[int, ...]  # embeddings of length 0: at distance 1 from everything
    nearest_pick: tuple[float | None, ...]  # each pick's distance to the nearest other pick
    n_twin_picks: int  # picks that repeat the embedding of an earlier pick
    coverage_radius: float | None  # the farthest that a kept or unkept candidate is from its nearest pick
    mean_score: float | None
    score_floor: float
    diversity_lambda: float
    min_distance: float
    picks_sha256: str

    def to_json(self) -> dict[str, Any]:
        """Integers only: every ratio and distance in parts per million, under `*_ppm`. An infinite lambda is null."""
        out: dict[str, Any] = {}
        for name in self.__slots__:
            value = getattr(self, name)
            if name in _RATIOS:
                out[f"{name}_ppm"] = _ppm(value)
            elif name == "nearest_pick":
                out["nearest_pick_ppm"] = [_ppm(v) for v in value]
            else:
                out[name] = list(value) if isinstance(value, tuple) else value
        return out | {"thresholds": _THRESHOLDS}


_RATIOS = frozenset(
    {"silhouette_natural", "silhouette_forced", "silhouette_best", "min_inter_cluster", "top_merge", "coverage_radius"}
    | {"mean_score", "score_floor", "diversity_lambda", "min_distance"}
)
_THRESHOLDS = {
    "near_duplicate_cut_ppm": round(clustering.NEAR_DUPLICATE_CUT * PPM),
    "one_cluster_cut_ppm": round(clustering.ONE_CLUSTER_CUT * PPM),
    "near_best_ppm": round(clustering.NEAR_BEST * PPM),
    "gap_ratio_ppm": round(GAP_RATIO * PPM),
    "silhouette_loss_ppm": round(SILHOUETTE_LOSS * PPM),
}


def report_on(
    rows: Rows,
    dendrogram: Dendrogram,
    labels: Ints,
    picks: Ints,
    *,
    order: Ints,
    scores: Floats,
    keys: Sequence[str],
    zero_rows: Ints,
    k_requested: int,
    options: tuple[str, float, float, float],
) -> SelectionReport:
    """The report on `picks` of the clustered `rows`; `order` leads from rows to the caller's indices, and `scores` and
    `keys` are the caller's. `options` are method, score_floor, diversity_lambda and min_distance, as they were
    given."""
    method, score_floor, diversity_lambda, min_distance = options
    k_forced = int(labels.max(initial=-1)) + 1
    natural = clustering.natural_clusters(rows, dendrogram, k_forced)
    severity = severity_of(natural, dendrogram, k_forced)
    nearest, n_twins, radius = _spread(rows, picks)
    cluster_of = np.full(len(scores), -1, dtype=np.int64)
    cluster_of[order] = labels
    chosen = order[picks].tolist()
    return SelectionReport(
        method=method,
        n=len(scores),
        k_requested=k_requested,
        k_actual=len(chosen),
        k_natural=natural.k,
        silhouette_natural=natural.silhouette,
        silhouette_forced=natural.forced_silhouette,
        silhouette_best=natural.best_silhouette,
        all_k_scanned=natural.complete,
        min_inter_cluster=dendrogram.min_inter_cluster(k_forced),
        top_merge=dendrogram.top_merge,
        gap_detected=severity is not Severity.NONE,
        severity=severity,
        n_groups=dendrogram.n_groups(),
        cluster_sizes=tuple(np.bincount(labels).tolist()) if k_forced else (),
        cluster_of=tuple(cluster_of.tolist()),
        floor_dropped=tuple(np.setdiff1d(np.arange(len(scores)), order).tolist()),
        zero_rows=tuple(zero_rows.tolist()),
        nearest_pick=nearest,
        n_twin_picks=n_twins,
        coverage_radius=radius,
        mean_score=math.fsum(scores[chosen].tolist()) / len(chosen) if chosen else None,
        score_floor=score_floor,
        diversity_lambda=diversity_lambda,
        min_distance=min_distance,
        picks_sha256=sha256_of([keys[i] for i in chosen]),
    )


def cohesion_log(report: SelectionReport, slice_name: str) -> str:
    """The report of one slice as the seed's cluster-gap log prints it."""
    natural = "" if report.silhouette_natural is None else f" (silhouette {report.silhouette_natural:.2f})"
    lines = [
        f"slice {slice_name}",
        f"  candidates: {report.n}   K target: {report.k_requested}   kept: {report.k_actual}",
        f"  natural clusters: {report.k_natural}{natural}   near-duplicate groups: {report.n_groups}",
    ]
    if report.silhouette_forced is not None:
        lines.append(f"  forced K={len(report.cluster_sizes)} split: silhouette {report.silhouette_forced:.2f}")
    if report.min_inter_cluster is not None:
        lines.append(f"  smallest inter-cluster distance: {report.min_inter_cluster:.2f}")
    if report.gap_detected:
        lines.append(f"  WARN cluster gap detected; {report.severity} split")
    return "\n".join(lines)


def severity_of(natural: NaturalClusters, dendrogram: Dendrogram, k_forced: int) -> Severity:
    """Are more clusters forced than there are? DEGENERATE when two of them are variants of one sentence; WARNING when
    the silhouette count is lower and either the closest two clusters or the lost silhouette say that the split is
    artificial."""
    closest = dendrogram.min_inter_cluster(k_forced)
    if closest is None:
        return Severity.NONE
    if dendrogram.n_groups() < k_forced:
        return Severity.DEGENERATE
    best, forced = natural.best_silhouette, natural.forced_silhouette
    # k = n has a silhouette of 0 by convention, which says nothing about the split
    lost = best - forced if best is not None and forced is not None and k_forced < dendrogram.n else 0.0
    is_artificial = lost > SILHOUETTE_LOSS or closest < GAP_RATIO * dendrogram.top_merge
    return Severity.WARNING if natural.k < k_forced and is_artificial else Severity.NONE


def _spread(rows: Rows, picks: Ints) -> tuple[tuple[float | None, ...], int, float | None]:
    """Each pick's distance to its nearest other pick, how many picks repeat an earlier one, and the coverage radius."""
    if len(picks) == 0:
        return (), 0, None
    nearest, n_twins, radius = [], 0, 0.0
    for start in range(0, len(rows), _BLOCK):
        distances = clustering.quantised_distances(rows[start : start + _BLOCK] @ rows[picks].T)
        radius = max(radius, float(distances.min(axis=1).max()))
    for start in range(0, len(picks), _BLOCK):
        distances = clustering.quantised_distances(rows[picks[start : start + _BLOCK]] @ rows[picks].T)
        at = np.arange(len(distances))
        distances[at, at + start] = np.inf
        nearest += [None if d == np.inf else d for d in distances.min(axis=1).tolist()]
        earlier = np.arange(len(picks)) < (at + start)[:, None]
        n_twins += int(((distances == 0) & earlier).any(axis=1).sum())
    return tuple(nearest), n_twins, radius


def _ppm(value: float | None) -> int | None:
    return None if value is None or not math.isfinite(value) else round(value * PPM)
