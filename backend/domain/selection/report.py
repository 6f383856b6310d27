"""The report of a selection: what it was asked, what it did, and what the pool allowed: the cluster-gap report of seed
000, as a value, as JSON of integers (it goes onto receipts) and as the seed's log."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from backend.domain.canonical import sha256_of
from backend.domain.selection import cluster_gap
from backend.domain.selection.cluster_gap import NaturalClusters, natural_clusters, severity_of
from backend.domain.selection.cluster_gap import Severity as Severity
from backend.domain.selection.guarantees import guarantee_of
from backend.domain.selection.linkage import clustering
from backend.domain.selection.linkage.clustering import Floats, Ints, Rows
from backend.domain.selection.options import Options
from backend.domain.selection.pool import Part, Pool

PPM = 1_000_000
_CELLS = 1 << 23  # of a block of distances: 64 MB
_SEVERITIES = (Severity.NONE, Severity.WARNING, Severity.DEGENERATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class StratumReport:
    """One label's share of a stratified selection."""

    label: str
    n: int
    k_requested: int
    k_actual: int
    k_natural: int
    n_groups: int
    severity: Severity

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionReport:
    """The report on what was asked and what the pool allowed. Distances are average-linkage cosine distances among the
    `n - len(floor_dropped)` candidates that were clustered; None marks what is undefined for so few. Indices are the
    caller's. `cluster_of` is -1 for a dropped candidate. Of a stratified selection the counts are sums over the strata,
    the distances the smallest (`top_merge`: the largest), the severity the worst, and the silhouettes None."""

    requested_method: str
    method: str
    method_reason: str  # why auto chose `method`; empty where it was asked for
    guarantee: str  # what is proven about the greedy result; empty where nothing is
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
    mean_pairwise: float | None  # mean cosine distance of two picks
    mean_score: float | None
    score_floor: float
    diversity_lambda: float
    min_distance: float
    overcluster: float
    linkage: str
    penalty: str
    seed: int
    dtype: str
    strata: tuple[StratumReport, ...]
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
            elif name == "strata":
                out[name] = [stratum.to_json() for stratum in value]
            else:
                out[name] = list(value) if isinstance(value, tuple) else value
        return out | {"thresholds": _THRESHOLDS}


_RATIOS = frozenset(
    {"silhouette_natural", "silhouette_forced", "silhouette_best", "min_inter_cluster", "top_merge", "coverage_radius"}
    | {"mean_pairwise", "mean_score", "score_floor", "diversity_lambda", "min_distance", "overcluster"}
)
_THRESHOLDS = {
    "near_duplicate_cut_ppm": round(clustering.NEAR_DUPLICATE_CUT * PPM),
    "one_cluster_reach_ppm": round(cluster_gap.ONE_CLUSTER_REACH * PPM),
    "near_best_ppm": round(cluster_gap.NEAR_BEST * PPM),
    "gap_ratio_ppm": round(cluster_gap.GAP_RATIO * PPM),
    "gap_factor_ppm": cluster_gap.GAP_FACTOR * PPM,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gap:
    """The figures of one part's dendrogram."""

    natural: NaturalClusters
    severity: Severity
    min_inter_cluster: float | None
    k_forced: int


def report_on(
    pool: Pool, parts: Sequence[Part], picks: Ints, *, asked: Options, used: Options, reason: str
) -> SelectionReport:
    """The report on `picks` (the caller's indices). `asked` are the options as they were given, `used` with `auto`
    resolved."""
    gaps = [_gap_of(pool.rows[part.order], part) for part in parts]
    only = gaps[0].natural if len(gaps) == 1 else None
    severity = max((gap.severity for gap in gaps), key=_SEVERITIES.index)
    closest = [gap.min_inter_cluster for gap in gaps if gap.min_inter_cluster is not None]
    order = np.concatenate([part.order for part in parts])
    nearest, n_twins, radius = _spread(pool.rows[order], pool.rows[picks])
    chosen = picks.tolist()
    return SelectionReport(
        requested_method=asked.method,
        method=used.method,
        method_reason=reason,
        guarantee=guarantee_of(used),
        n=len(pool.scores),
        k_requested=asked.k,
        k_actual=len(chosen),
        k_natural=sum(gap.natural.k for gap in gaps),
        silhouette_natural=None if only is None else only.silhouette,
        silhouette_forced=None if only is None else only.forced_silhouette,
        silhouette_best=None if only is None else only.best_silhouette,
        all_k_scanned=all(gap.natural.complete for gap in gaps),
        min_inter_cluster=min(closest, default=None),
        top_merge=max(part.dendrogram.top_merge for part in parts),
        gap_detected=severity is not Severity.NONE,
        severity=severity,
        n_groups=sum(part.dendrogram.n_groups() for part in parts),
        cluster_sizes=tuple(size for part in parts for size in _sizes(part.labels)),
        cluster_of=_cluster_of(len(pool.scores), parts, gaps),
        floor_dropped=tuple(np.setdiff1d(np.arange(len(pool.scores)), order).tolist()),
        zero_rows=tuple(np.flatnonzero(~pool.rows.any(axis=1)).tolist()),
        nearest_pick=nearest,
        n_twin_picks=n_twins,
        coverage_radius=radius,
        mean_pairwise=_mean_pairwise(pool.rows[picks]),
        mean_score=math.fsum(pool.scores[chosen].tolist()) / len(chosen) if chosen else None,
        score_floor=used.floor,
        diversity_lambda=used.diversity_lambda,
        min_distance=used.min_distance,
        overcluster=used.overcluster,
        linkage=used.linkage,
        penalty=used.penalty,
        seed=used.seed,
        dtype=str(pool.rows.dtype),
        strata=() if pool.labels is None or parts[0].name is None else _strata(parts, gaps),
        picks_sha256=sha256_of([pool.keys[i] for i in chosen]),
    )


def cohesion_log(report: SelectionReport, slice_name: str) -> str:
    """The report of one slice as the seed's cluster-gap log prints it."""
    natural = "" if report.silhouette_natural is None else f" (silhouette {report.silhouette_natural:.2f})"
    lines = [
        f"slice {slice_name}",
        f"  candidates: {report.n}   K target: {report.k_requested}   kept: {report.k_actual} by {report.method}",
        f"  natural clusters: {report.k_natural}{natural}   near-duplicate groups: {report.n_groups}",
    ]
    if report.silhouette_forced is not None:
        lines.append(f"  forced K={len(report.cluster_sizes)} split: silhouette {report.silhouette_forced:.2f}")
    if report.min_inter_cluster is not None:
        lines.append(f"  smallest inter-cluster distance: {report.min_inter_cluster:.2f}")
    if report.gap_detected:
        lines.append(f"  WARN cluster gap detected; {report.severity} split")
    return "\n".join(lines)


def _gap_of(rows: Rows, part: Part) -> _Gap:
    k_forced = int(part.labels.max(initial=-1)) + 1
    natural = natural_clusters(rows, part.dendrogram, k_forced)
    return _Gap(
        natural=natural,
        severity=severity_of(natural, part.dendrogram, k_forced),
        min_inter_cluster=part.dendrogram.min_inter_cluster(k_forced),
        k_forced=k_forced,
    )


def _sizes(labels: Ints) -> list[int]:
    sizes: list[int] = np.bincount(labels[labels >= 0]).tolist()
    return sizes


def _cluster_of(n: int, parts: Sequence[Part], gaps: Sequence[_Gap]) -> tuple[int, ...]:
    """Cluster numbers that no two strata share."""
    out, first = np.full(n, -1, dtype=np.int64), 0
    for part, gap in zip(parts, gaps, strict=True):
        out[part.order] = np.where(part.labels >= 0, part.labels + first, -1)
        first += gap.k_forced
    return tuple(out.tolist())


def _strata(parts: Sequence[Part], gaps: Sequence[_Gap]) -> tuple[StratumReport, ...]:
    return tuple(
        StratumReport(
            label=part.name or "",
            n=part.n,
            k_requested=part.k_requested,
            k_actual=len(part.picks),
            k_natural=gap.natural.k,
            n_groups=part.dendrogram.n_groups(),
            severity=gap.severity,
        )
        for part, gap in zip(parts, gaps, strict=True)
    )


def _spread(rows: Rows, picked: Rows) -> tuple[tuple[float | None, ...], int, float | None]:
    """Each pick's distance to its nearest other pick, how many picks repeat an earlier one, and the coverage radius."""
    k = len(picked)
    if k == 0:
        return (), 0, None
    nearest: list[float | None] = []
    n_twins, radius, block = 0, 0.0, max(1, _CELLS // k)
    for start in range(0, len(rows), block):
        closest = (rows[start : start + block] @ picked.T).max(axis=1)
        radius = max(radius, float(clustering.quantised_distances(closest).max()))
    for start in range(0, k, block):
        cosines = picked[start : start + block] @ picked.T
        at = np.arange(len(cosines))
        cosines[at, at + start] = -np.inf
        distances = clustering.quantised_distances(cosines)
        nearest += [None if k == 1 else d for d in distances.min(axis=1).tolist()]
        earlier = np.arange(k) < (at + start)[:, None]
        n_twins += int(((distances == 0) & earlier).any(axis=1).sum())
    return tuple(nearest), n_twins, radius


def _mean_pairwise(picked: Rows) -> float | None:
    """Compute the mean from the sum of the rows: the cosines of all pairs add up to (|sum|^2 - sum of |x|^2) / 2."""
    k = len(picked)
    if k < 2:
        return None
    total: Floats = picked.sum(axis=0, dtype=np.float64)
    own = float(np.einsum("ij,ij->", picked, picked, dtype=np.float64))
    return 1.0 - (float(total @ total) - own) / (k * (k - 1))


def _ppm(value: float | None) -> int | None:
    return None if value is None or not math.isfinite(value) else round(value * PPM)
