"""Which K of N candidates to keep: score and spread together (seed 000, "The selection algorithm").

    two_step   K clusters by average linkage on cosine, the best-scored member of each. The default.
    top_k      the K best scores.
    diverse    greedy: gain(i | S) = s_i - lambda * max over j in S of g_ij, with s the score rescaled to [0, 1]
               over the pool and g = c / (2 - c), c = max(cos, 0): the seed's 1 / (1 + d), rescaled so that a
               duplicate costs 1 and an orthogonal text 0, and charged once, for the nearest pick. lambda = 0 is
               exactly top_k, lambda = inf is farthest-first, at every K.

Before any of them the worst `score_floor` of the pool is dropped (never below K, never one of several equal scores):
one seat per cluster gives every outlier a seat, and the floor is what makes that safe. Candidates are put in canonical
order first, by score and then key, so the result does not depend on the order in which they came; every tie goes to the
earlier in that order. What the pool allowed stands in the report (`selection_report`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from backend.domain import clustering
from backend.domain.clustering import Floats, Ints, Rows
from backend.domain.errors import InvalidInput, Problem
from backend.domain.selection_report import SelectionReport as SelectionReport
from backend.domain.selection_report import Severity as Severity
from backend.domain.selection_report import cohesion_log as cohesion_log
from backend.domain.selection_report import report_on

FLOAT64_ROWS = 3_000  # float64 costs nothing there; above, float32 halves the memory


class Method(StrEnum):
    TWO_STEP = "two_step"
    TOP_K = "top_k"
    DIVERSE = "diverse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """`picks` are indices into the caller's candidates, in the order of selection (best first)."""

    picks: tuple[int, ...]
    report: SelectionReport


def select(
    embeddings: ArrayLike,
    scores: Sequence[float],
    keys: Sequence[str],
    *,
    k: int,
    method: str = Method.TWO_STEP,
    score_floor: float = 1 / 3,
    diversity_lambda: float = 0.3,
    min_distance: float = 0.0,
) -> Selection:
    """Keep `k` of the `n` candidates (all of them, by score, where k >= n).

    `embeddings` `(n, d)`, of any length (zero rows are reported); `scores` finite, higher is better, any scale; `keys`
    break ties and should depend on the text alone (`candidates.text_key`). `min_distance` > 0 refuses a pick closer
    than that to an earlier one, and may then keep fewer than k. To drop K where the pool has fewer groups of
    near-duplicates, call again with `k=min(k, report.n_groups)`.

    Raises InvalidInput naming the rows that are not finite, and for options out of range.

    >>> select([[1, 0], [1, 0.01], [0, 1]], [0.9, 0.8, 0.1], ["a", "b", "c"], k=2, score_floor=0).picks
    (0, 2)
    """
    chosen_method = _checked_options(k, method, score_floor, diversity_lambda, min_distance)
    values, given = _checked_rows(embeddings, scores, keys)
    order = _canonical_order(values, keys, given)
    order = order[: _n_above_floor(values[order], k, score_floor)]
    rows = given[order]
    dendrogram = clustering.average_linkage(rows)
    k_forced = min(k, len(rows))
    labels = clustering.cut(dendrogram, k_forced) if k_forced else np.full(len(rows), -1, dtype=np.int64)
    match chosen_method:
        case Method.TWO_STEP:
            picks = _best_of_each(rows, labels, min_distance)
        case Method.TOP_K:
            picks = _greedy(rows, np.arange(len(rows), 0, -1.0), k_forced, 0.0, min_distance)
        case Method.DIVERSE:
            picks = _greedy(rows, _rescaled(values)[order], k_forced, diversity_lambda, min_distance)
    report = report_on(
        rows,
        dendrogram,
        labels,
        picks,
        order=order,
        scores=values,
        keys=keys,
        zero_rows=np.flatnonzero(~given.any(axis=1)),
        k_requested=k,
        options=(chosen_method, score_floor, diversity_lambda, min_distance),
    )
    return Selection(picks=tuple(order[picks].tolist()), report=report)


def _checked_options(k: int, method: str, score_floor: float, diversity_lambda: float, min_distance: float) -> Method:
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 0:
        raise InvalidInput(f"K must be a whole number of 0 or more, not {k!r}.")
    if method not in tuple(Method):
        raise InvalidInput(f"There is no selection method {method!r}; choose {', '.join(Method)}.")
    if not 0 <= score_floor < 1:
        raise InvalidInput(f"score_floor is the share to drop, from 0 to less than 1, not {score_floor!r}.")
    if not diversity_lambda >= 0:
        raise InvalidInput(f"diversity_lambda must be 0 or more, not {diversity_lambda!r}.")
    if not 0 <= min_distance <= 2:
        raise InvalidInput(f"min_distance is a cosine distance from 0 to 2, not {min_distance!r}.")
    return Method(method)


def _checked_rows(embeddings: ArrayLike, scores: Sequence[float], keys: Sequence[str]) -> tuple[Floats, Rows]:
    """The scores as float64 and the rows brought to length 1 (zero rows stay zero). float64 to 3,000 rows, float32
    above."""
    try:
        values = np.array(scores, dtype=np.float64).reshape(len(scores))
        rows = np.array(embeddings, dtype=np.float64)
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"Embeddings must be n rows of one width and scores n numbers: {error}") from error
    if len(values) == 0 and rows.size == 0:
        rows = rows.reshape(0, 0)
    if rows.ndim != 2 or not len(rows) == len(values) == len(keys):
        shapes = f"embeddings {rows.shape}, {len(values)} scores, {len(keys)} keys"
        raise InvalidInput(f"Each candidate needs one embedding row, one score and one key; got {shapes}.")
    _refuse_rows("scores", np.logical_not(np.isfinite(values)))
    _refuse_rows("embeddings", np.asarray(np.logical_not(np.isfinite(rows)).any(axis=1)))
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    rows /= np.where(largest > 0, largest, 1.0)  # first, so that squaring neither overflows nor vanishes
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    rows /= np.where(lengths > 0, lengths, 1.0)
    return values, rows if len(rows) <= FLOAT64_ROWS else rows.astype(np.float32)


def _refuse_rows(name: str, bad: NDArray[np.bool_]) -> None:
    where = np.flatnonzero(bad).tolist()
    if where:
        listed = ", ".join(map(str, where[:10])) + (f" and {len(where) - 10} more" if len(where) > 10 else "")
        message = "This row is not finite."
        problems = tuple(Problem(pointer=f"/{name}/{i}", message=message, code="not_finite") for i in where[:100])
        raise InvalidInput(f"Rows of {name} that are not finite: {listed}.", code="not_finite", problems=problems)


def _canonical_order(values: Floats, keys: Sequence[str], rows: Rows) -> Ints:
    """Best score first, then key; candidates equal in both are told apart by their embedding, and are the same if it is
    equal too."""
    names: list[tuple[Any, ...]] = list(zip((-values).tolist(), keys, strict=True))
    if len(set(names)) < len(names):
        names = [(*name, row.tobytes()) for name, row in zip(names, rows, strict=True)]
    return np.array(sorted(range(len(names)), key=names.__getitem__), dtype=np.int64)


def _n_above_floor(descending: Floats, k: int, score_floor: float) -> int:
    """How many to keep: n less the worst share, at least k, and all who tie with the last one kept."""
    n = len(descending)
    n_kept = min(n, max(k, n - math.floor(n * score_floor + 1e-9)))
    if n_kept == 0:
        return 0
    return int(np.count_nonzero(descending >= descending[n_kept - 1]))


def _rescaled(values: Floats) -> Floats:
    """Scores on [0, 1] over the pool; all zeros where they are all equal. Halved first: the range may exceed the
    largest float."""
    if len(values) == 0:
        return values
    low, high = values.min() / 2, values.max() / 2
    return (values / 2 - low) / (high - low) if high > low else np.zeros_like(values)


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


def _greedy(rows: Rows, gains: Floats, k: int, weight: float, min_distance: float) -> Ints:
    """One pick at a time: the greatest `gains - weight * nearest-pick penalty`, the earliest row of equals. O(n d) a
    pick."""
    penalty, distance = np.zeros(len(rows)), np.full(len(rows), np.inf)
    taken = np.zeros(len(rows), dtype=bool)
    picks: list[int] = []
    while len(picks) < k:
        # an infinite weight compares penalties first; rows are in order of gain, so the earliest of equals is the best
        # of them
        worth = gains - weight * penalty if math.isfinite(weight) else -penalty
        worth[taken | (distance < min_distance)] = -np.inf
        pick = int(worth.argmax())
        if worth[pick] == -np.inf:
            break
        picks.append(pick)
        taken[pick] = True
        if weight > 0 or min_distance > 0:
            np.minimum(distance, clustering.quantised_distances(rows @ rows[pick]), out=distance)
            penalty = nearest_pick_penalty(distance)
    return np.array(picks, dtype=np.int64)


def nearest_pick_penalty(distance: Floats) -> Floats:
    """g = c / (2 - c) with c = max(1 - distance, 0): 1 for a duplicate of a pick, 0 from a right angle on."""
    cosine = np.maximum(1.0 - distance, 0.0)
    return np.asarray(cosine / (2.0 - cosine))
