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
    sizes: Ints | None = None,
    taken: Ints | None = None,
    matrix_rows: int = MATRIX_ROWS,
) -> Ints:
    """Return up to `k` rows in order of picking: the one that adds most to F, the lowest of equals.

    `rows` (n, d) unit or zero rows in canonical order (a zero row covers itself and nothing else); `gains` (n,) in
    [0, 1]; `weight` 0 is exactly top-K, infinity coverage alone. Above `matrix_rows` the similarities are computed
    again whenever they are needed, with the same picks: about 6 n^2 d multiplications and O(n d) bytes. `min_distance`
    as in `diverse_picks`. `sizes` (n,) is how many rows each stands for in the coverage, 1 where None; `taken` are rows
    that cover already, and are not returned.

    Bound (Nemhauser, Wolsey, Fisher 1978): F of the picks is at least 1 - 1/e of the greatest F of any K rows, without
    a minimum distance."""
    n = len(rows)
    k = min(max(k, 0), n)
    if weight == 0 or k == 0:
        return diverse_picks(rows, gains, k, weight=0.0, min_distance=min_distance)
    coverage = _Coverage(_Similarities(rows, is_held=n <= matrix_rows), sizes)
    worth = np.zeros(n) if math.isinf(weight) else gains.astype(np.float64)
    scale = (1.0 if math.isinf(weight) else _BALANCE * min(weight, _GREATEST_WEIGHT)) * k / n / STEPS
    for row in [] if taken is None else taken.tolist():
        worth[row] = -np.inf
        coverage.take(row)
    picks: list[int] = []
    while len(picks) < k:
        total = coverage.added * scale
        total += worth
        pick = int(total.argmax())
        if total[pick] == -np.inf:
            break
        picks.append(pick)
        worth[pick] = -np.inf
        if min_distance > 0:
            worth[coverage.similarities.distances(pick) < min_distance * STEPS] = -np.inf
        coverage.take(pick)
    return np.array(picks, dtype=np.int64)


class _Coverage:
    """`added` (n,) is what each row would add to the coverage, in whole millionths: exact."""

    def __init__(self, similarities: "_Similarities", sizes: Ints | None) -> None:
        self.similarities = similarities
        self._sizes = None if sizes is None else sizes.astype(np.float64)
        self.added = similarities.totals(self._sizes)
        self._covered: Rows = np.zeros_like(similarities.of(0))

    def take(self, row: int) -> None:
        to_row = self.similarities.of(row)
        better = np.flatnonzero(to_row > self._covered)
        for start in range(0, len(better), _BLOCK):
            clients = better[start : start + _BLOCK]
            sizes = None if self._sizes is None else self._sizes[clients]
            self.added -= _no_longer_added(self.similarities[clients], self._covered[clients], to_row[clients], sizes)
        self._covered[better] = to_row[better]


def _no_longer_added(similarities: Rows, before: Rows, after: Rows, sizes: Floats | None) -> Floats:
    """Return what each row loses now that these clients are covered better. `similarities` (m, n), of the clients to
    all rows, is overwritten."""
    np.maximum(similarities, before[:, None], out=similarities)
    np.minimum(similarities, after[:, None], out=similarities)
    if sizes is not None:
        return np.asarray(sizes @ similarities - sizes @ before.astype(np.float64))
    lost = np.add.reduce(similarities, axis=0, dtype=np.float64)
    lost -= before.sum(dtype=np.float64)
    return np.asarray(lost)


class _Similarities:
    """max(cos, 0) of some rows to all rows, in whole millionths: float32 holds those exactly."""

    def __init__(self, rows: Rows, *, is_held: bool) -> None:
        n = len(rows)
        self._rows = GridRows(rows)[np.arange(n)]
        self._is_zero = np.logical_not(self._rows.any(axis=1))
        self._dtype: type[np.floating[Any]] = np.float64 if n <= _FLOAT64_ROWS else np.float32
        self._held: Rows | None = None
        if is_held:
            self._held = np.empty((n, n), dtype=self._dtype)
            for start in range(0, n, _BLOCK):
                self._held[start : start + _BLOCK] = self._compute(slice(start, start + _BLOCK))

    def totals(self, sizes: Floats | None) -> Floats:
        """`(n,)` the sum over all rows, each as often as its size."""
        totals = np.empty(len(self._rows))
        for start in range(0, len(totals), _BLOCK):
            ids = slice(start, start + _BLOCK)
            block = self._compute(ids) if self._held is None else self._held[ids]
            totals[ids] = block.sum(axis=1, dtype=np.float64) if sizes is None else block @ sizes
        return totals

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
