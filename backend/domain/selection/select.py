"""The choice of K of N candidates to keep: score and spread together (seed 000, "The selection algorithm").

One entry point, `select`. What the methods are stands in `options`; how they pick in `greedy_picks`, `dpp`
and `facility_location`; which one `auto` takes in `auto_policy`; what the pool allowed in `report`.

Before any clustering the worst `score_floor` of the pool is dropped (never below K, never one of several equal scores):
one seat per cluster gives every outlier a seat, and the floor is what makes that safe. Candidates are put in canonical
order first, by score and then key, so the result does not depend on the order in which they came; every tie goes to the
earlier in that order.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from backend.domain.errors import InvalidInput
from backend.domain.selection.allocation import allocate_largest_remainder
from backend.domain.selection.auto_policy import AutoChoice, choose
from backend.domain.selection.dpp import dpp_map_picks
from backend.domain.selection.facility_location import MATRIX_ROWS, facility_location_picks
from backend.domain.selection.greedy_picks import diverse_picks, k_center_picks
from backend.domain.selection.linkage import clustering
from backend.domain.selection.linkage.clustering import Dendrogram, Floats, Ints, Rows
from backend.domain.selection.linkage.criteria import Linkage
from backend.domain.selection.options import DEFAULT_LAMBDA, Options, Penalty, checked_options
from backend.domain.selection.options import Method as Method
from backend.domain.selection.pool import Beside as Beside
from backend.domain.selection.pool import Part, Pool, canonical_order, checked_pool, join_pools, rescale
from backend.domain.selection.report import SelectionReport as SelectionReport
from backend.domain.selection.report import cohesion_log as cohesion_log
from backend.domain.selection.report import report_on
from backend.domain.selection.representative import representative_picks

OnProgress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """`picks` are indices into the caller's candidates, best score first (in the order of picking where that is the
    method's own: diverse, dpp, facility_location, k_center, representative)."""

    picks: tuple[int, ...]
    report: SelectionReport


def select(
    embeddings: ArrayLike,
    scores: Sequence[float],
    keys: Sequence[str] | None = None,
    *,
    k: int,
    labels: Sequence[str] | None = None,
    stratify: bool = True,
    k_by_label: Mapping[str, int] | None = None,
    method: str = Method.AUTO,
    linkage: str = Linkage.AVERAGE,
    score_floor: float | None = None,
    diversity_lambda: float = DEFAULT_LAMBDA,
    penalty: str = Penalty.NEAREST,
    min_distance: float = 0.0,
    overcluster: float = 1.0,
    seed: int = 0,
    is_traffic: bool = False,
    beside: Beside | None = None,
    on_progress: OnProgress | None = None,
) -> Selection:
    """Keep `k` of the `n` candidates (all of them, by score, where k >= n).

    `embeddings` `(n, d)`, of any length (zero rows are reported); `scores` finite, higher is better, any scale; `keys`
    break ties and should depend on the text alone (`candidates.text_key`); without any, the embedding does. With
    `labels`, K is shared out over them in proportion, or as `k_by_label` says, and each is selected by itself; with
    `stratify=False` they only inform `auto`. `min_distance` > 0 refuses a pick closer than that to an earlier one, and
    may then keep fewer than k. With `is_traffic` the rows are what people sent, and `auto` keeps what represents them.
    `beside` are candidates of other pools that inform `auto` too, for `labels` whose own pool has one label alone.
    `on_progress(stage, done, total)` is told of neighbours, clustering, picking and reporting. To drop K where the pool
    has fewer groups of near-duplicates, call again with `k=min(k, report.n_groups)`.

    Raises InvalidInput naming the rows that are not finite, for options out of range, and for a `k_by_label` that does
    not add up to k or gives a label more than its rows.

    >>> select([[1, 0], [1, 0.01], [0, 1]], [0.9, 0.8, 0.1], ["a", "b", "c"], k=2, score_floor=0).picks
    (0, 2)
    """
    asked = checked_options(
        k=k,
        method=method,
        linkage=linkage,
        score_floor=score_floor,
        diversity_lambda=diversity_lambda,
        penalty=penalty,
        min_distance=min_distance,
        overcluster=overcluster,
        seed=seed,
        is_traffic=is_traffic,
    )
    pool = checked_pool(embeddings, scores, keys, labels)
    options, ranks, reason = _resolve(pool, asked, beside)
    parts = [
        _select_part(pool, ranks, part, replace(options, k=part_k), name, on_progress)
        for name, part, part_k in _parts(pool, options, stratify, k_by_label)
    ]
    picks = _merge(ranks, parts)
    if on_progress is not None:
        on_progress("reporting", 0, 0)
    report = report_on(pool, parts, picks, asked=asked, used=options, reason=reason)
    return Selection(picks=tuple(picks.tolist()), report=report)


def _resolve(pool: Pool, asked: Options, beside: Beside | None) -> tuple[Options, Floats, str]:
    """The options with `auto` replaced by what it chose, the scores to select with, and why."""
    if asked.method is not Method.AUTO:
        return asked, pool.scores, ""
    choice, ranks = _choose(pool, asked, asked.k)
    if beside is not None and pool.labels is not None and 0 < asked.k < len(pool.scores):
        every = join_pools(pool, beside)
        by_all, of_all = _choose(every, asked, -(-asked.k * len(every.scores) // len(pool.scores)))
        if by_all.is_by_labels:
            choice, ranks = by_all, of_all[: len(pool.scores)]
    floor = choice.score_floor if asked.score_floor is None else asked.score_floor
    options = replace(asked, method=choice.method, score_floor=floor, diversity_lambda=choice.diversity_lambda)
    return options, ranks, choice.reason


def _choose(pool: Pool, asked: Options, k: int) -> tuple[AutoChoice, Floats]:
    """Return what `auto` takes for a pool, and the scores to select with in the order of its candidates."""
    order = canonical_order(pool.scores, pool, np.arange(len(pool.scores)))
    labels = None if pool.labels is None else [pool.labels[i] for i in order.tolist()]
    choice = choose(pool.rows[order], pool.scores[order], k, labels=labels, options=asked)
    ranks = np.empty_like(pool.scores)
    ranks[order] = choice.scores
    return choice, ranks


def _parts(
    pool: Pool, options: Options, stratify: bool, k_by_label: Mapping[str, int] | None
) -> list[tuple[str | None, Ints, int]]:
    """A part that is selected from by itself: name, the caller's indices, and its K. The whole pool where there are no
    labels."""
    everybody = np.arange(len(pool.scores))
    if pool.labels is None or not stratify or len(everybody) == 0:
        return [(None, everybody, options.k)]
    names, inverse, sizes = np.unique(np.asarray(pool.labels), return_inverse=True, return_counts=True)
    shares = (
        allocate_largest_remainder(options.k, sizes.tolist())
        if k_by_label is None
        else _checked_k([k_by_label.get(str(name), 0) for name in names], sizes.tolist(), options.k)
    )
    return [(str(name), np.flatnonzero(inverse == i), shares[i]) for i, name in enumerate(names)]


def _checked_k(asked: list[int], sizes: Sequence[int], k: int) -> list[int]:
    if sum(asked) != min(k, sum(sizes)) or any(not 0 <= own <= n for own, n in zip(asked, sizes, strict=True)):
        raise InvalidInput(f"K of each label must be at most its number of rows and add up to {k}.")
    return asked


def _select_part(
    pool: Pool, ranks: Floats, members: Ints, options: Options, name: str | None, on_progress: OnProgress | None
) -> Part:
    order = canonical_order(ranks, pool, members)
    n_asked = len(order) if options.method is Method.ALL else options.k
    order = order[: _n_above_floor(ranks[order], n_asked, options.floor)]
    if options.method is Method.FACILITY_LOCATION and len(order) > MATRIX_ROWS:
        raise InvalidInput(
            f"facility_location takes at most {MATRIX_ROWS:,} candidates above the score floor and there are "
            f"{len(order):,}; use diverse, or divide the pool by label.",
            code="too_many_candidates",
        )
    rows = pool.rows[order]
    average = clustering.linkage_of(rows, Linkage.AVERAGE, on_progress=on_progress)
    split = average
    if options.method is Method.TWO_STEP and options.linkage is not Linkage.AVERAGE:
        split = clustering.linkage_of(rows, options.linkage, on_progress=on_progress)
    k = min(n_asked, len(rows))
    labels = clustering.cut(split, k) if k else np.full(len(rows), -1, dtype=np.int64)
    if on_progress is not None:
        on_progress("picking", 0, 0)
    picks = _picks(rows, ranks[order], split, k, options)
    return Part(
        name=name, order=order, dendrogram=average, labels=labels, picks=picks, k_requested=options.k, n=len(members)
    )


def _picks(rows: Rows, ranks: Floats, split: Dendrogram, k: int, options: Options) -> Ints:
    """Rows to keep, of rows in canonical order."""
    weight, apart = options.diversity_lambda, options.min_distance
    if k == 0 or (k == len(rows) and apart == 0):
        return np.arange(k, dtype=np.int64)
    match options.method:
        case Method.TWO_STEP:
            n_clusters = min(len(rows), math.ceil(k * options.overcluster))
            return _best_of_each(rows, clustering.cut(split, n_clusters), apart)[:k]
        case Method.TOP_K:
            return diverse_picks(rows, np.arange(len(rows), 0, -1.0), k, weight=0.0, min_distance=apart)
        case Method.DIVERSE:
            gains = rescale(ranks)
            return diverse_picks(rows, gains, k, weight=weight, penalty=options.penalty, min_distance=apart)
        case Method.DPP:
            return dpp_map_picks(rows, rescale(ranks), k, weight=weight, min_distance=apart)
        case Method.FACILITY_LOCATION:
            return facility_location_picks(rows, rescale(ranks), k, weight=weight, min_distance=apart)
        case Method.K_CENTER:
            return k_center_picks(rows, k, min_distance=apart)
        case Method.REPRESENTATIVE:
            return representative_picks(rows, k, groups=clustering.cut(split, split.n_groups()), min_distance=apart)
        case Method.RANDOM:
            drawn = np.random.default_rng(options.seed).permutation(len(rows))[:k]
            return np.sort(drawn).astype(np.int64)
        case Method.ALL:
            return np.arange(len(rows), dtype=np.int64)
        case Method.AUTO:
            raise ValueError("auto was not resolved")


def _n_above_floor(descending: Floats, k: int, floor: float) -> int:
    """Return how many to keep: n less the worst share, at least k, and all who tie with the last one kept."""
    n = len(descending)
    n_kept = min(n, max(k, n - math.floor(n * floor + 1e-9)))
    if n_kept == 0:
        return 0
    return int(np.count_nonzero(descending >= descending[n_kept - 1]))


def _best_of_each(rows: Rows, labels: Ints, min_distance: float) -> Ints:
    """The first, that is best, row of each cluster; with a minimum distance, the best that respects it, if any does."""
    if min_distance == 0:
        return np.sort(np.unique(labels[labels >= 0], return_index=True)[1]).astype(np.int64)
    distance = np.full(len(rows), np.inf)
    open_to = np.ones(len(rows), dtype=bool)
    picks: list[int] = []
    for i, label in enumerate(labels.tolist()):
        if label >= 0 and open_to[i] and distance[i] >= min_distance:
            picks.append(i)
            open_to[labels == label] = False
            np.minimum(distance, clustering.quantised_distances(rows @ rows[i]), out=distance)
    return np.array(picks, dtype=np.int64)


def _merge(ranks: Floats, parts: Sequence[Part]) -> Ints:
    """The caller's indices of all picks: one part in its own order, several by rank within the part, best parts' picks
    first."""
    if len(parts) == 1:
        return parts[0].order[parts[0].picks]
    picked = [(nth, i) for part in parts for nth, i in enumerate(part.order[part.picks].tolist())]
    return np.array([i for nth, i in sorted(picked, key=lambda p: (p[0], -ranks[p[1]]))], dtype=np.int64)
