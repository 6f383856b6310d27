"""Facility location: K rows that are good, and near to everything in the pool.

    F(S) = sum over j in S of s_j + weight * (2 K / n) * coverage(S)
    coverage(S) = sum over all i of max over j in S of c_ij

with s in [0, 1] and c = max(cos, 0): a row is covered as well as its most similar pick covers it. K / n puts both terms
on one scale at every n and K: K picks earn at most K by their scores and at most 2 K by coverage. F is monotone and
submodular (Krause & Golovin 2014), so each pick is the one that adds most.
"""

import math
from typing import Any

import numpy as np

from backend.domain.selection.greedy_picks import diverse_picks
from backend.domain.selection.lazy_greedy import GridRows, distance_steps
from backend.domain.selection.linkage.clustering import STEPS, Floats, Ints, Rows

MATRIX_ROWS = 20_000  # rows up to which the similarities are held: 4 n^2 bytes, 1.6 GB there
_BLOCK = 256
_FLOAT64_ROWS = 2_000  # float32 halves the memory, float64 saves the conversions
_GREATEST_WEIGHT = 1e200
_BALANCE = 2.0  # at weight 1, about half of the coverage that weight infinity would add to the top K


def facility_location_picks(
    rows: Rows,
    gains: Floats,
    k: int,
    *,
    weight: float,
    min_distance: float = 0.0,
    matrix_rows: int = MATRIX_ROWS,
    sizes: Ints | None = None,
) -> Ints:
    """Return up to `k` rows in order of picking: the one that adds most to F, the lowest of equals.

    `rows` (n, d) unit or zero rows in canonical order (a zero row covers itself and nothing else); `gains` (n,) in
    [0, 1]; `weight` 0 is exactly top-K, infinity coverage alone. Above `matrix_rows` the similarities are computed
    again whenever they are needed, with the same picks: about 6 n^2 d multiplications and O(n d) bytes. `min_distance`
    as in `diverse_picks`. `sizes` (n,) says how many rows each stands for, in the coverage; one without.

    Bound (Nemhauser, Wolsey, Fisher 1978): F of the picks is at least 1 - 1/e of the greatest F of any K rows, without
    a minimum distance."""
    n = len(rows)
    k = min(max(k, 0), n)
    if weight == 0 or k == 0:
        return diverse_picks(rows, gains, k, weight=0.0, min_distance=min_distance)
    clients = np.ones(n) if sizes is None else sizes.astype(np.float64)
    similarities = _Similarities(rows, clients, is_held=n <= matrix_rows)
    worth = np.zeros(n) if math.isinf(weight) else gains.astype(np.float64)
    scale = (1.0 if math.isinf(weight) else _BALANCE * min(weight, _GREATEST_WEIGHT)) * k / n / STEPS
    added = similarities.totals  # what each row would add to the coverage, in whole millionths: exact
    covered: Rows = np.zeros_like(similarities.of(0))
    picks: list[int] = []
    while len(picks) < k:
        total = added * scale
        total += worth
        pick = int(total.argmax())
        if total[pick] == -np.inf:
            break
        picks.append(pick)
        worth[pick] = -np.inf
        to_pick = similarities.of(pick)
        if min_distance > 0:
            worth[similarities.distances(pick) < min_distance * STEPS] = -np.inf
        better = np.flatnonzero(to_pick > covered)
        for start in range(0, len(better), _BLOCK):
            ids = better[start : start + _BLOCK]
            added -= _no_longer_added(similarities[ids], covered[ids], to_pick[ids], clients[ids])
        covered[better] = to_pick[better]
    return np.array(picks, dtype=np.int64)


def _no_longer_added(similarities: Rows, before: Rows, after: Rows, weights: Floats) -> Floats:
    """Return what each row loses now that these clients are covered better. `similarities` (m, n), of the clients to
    all rows, is overwritten; `weights` (m,) are whole numbers, so that the sums are exact."""
    np.maximum(similarities, before[:, None], out=similarities)
    np.minimum(similarities, after[:, None], out=similarities)
    lost = _weighted_sum(similarities, weights)
    lost -= float(before.astype(np.float64) @ weights)
    return np.asarray(lost)


def _weighted_sum(block: Rows, weights: Floats) -> Floats:
    """The sum of the block's rows `(m, n)` with their weights, exact for whole numbers."""
    if (weights == 1.0).all():
        return np.asarray(np.add.reduce(block, axis=0, dtype=np.float64))
    return np.asarray(weights @ block.astype(np.float64))


class _Similarities:
    """max(cos, 0) of some rows to all rows, in whole millionths: float32 holds those exactly. `totals` (n,) over all
    rows, by their weights."""

    def __init__(self, rows: Rows, weights: Floats, *, is_held: bool) -> None:
        n = len(rows)
        self._rows = GridRows(rows)[np.arange(n)]
        self._is_zero = np.logical_not(self._rows.any(axis=1))
        self._dtype: type[np.floating[Any]] = np.float64 if n <= _FLOAT64_ROWS else np.float32
        self.totals = np.zeros(n)
        self._held = np.empty((n, n), dtype=self._dtype) if is_held else None
        for start in range(0, n, _BLOCK):
            ids = slice(start, start + _BLOCK)
            block = self._compute(ids)
            self.totals += _weighted_sum(block, weights[ids])  # the similarities are symmetric
            if self._held is not None:
                self._held[ids] = block

    def __getitem__(self, ids: Ints) -> Rows:
        return self._compute(ids) if self._held is None else self._held[ids]

    def of(self, row: int) -> Rows:
        rows: Rows = self._compute(np.array([row])) if self._held is None else self._held[row : row + 1]
        return np.asarray(rows[0])

    def distances(self, row: int) -> Floats:
        return distance_steps(self._rows @ self._rows[row])

    def _compute(self, ids: Ints | slice) -> Rows:
        steps = distance_steps(self._rows[ids] @ self._rows.T)
        np.subtract(STEPS, steps, out=steps)
        np.maximum(steps, 0.0, out=steps)
        zero = np.flatnonzero(self._is_zero[ids])
        steps[zero, np.arange(len(self._rows))[ids][zero]] = STEPS
        return np.asarray(steps, dtype=self._dtype)
