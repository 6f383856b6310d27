"""Determinantal point processes: K rows that are good and span much volume together.

    L_ij = q_i q_j / (2 - cos_ij),   q_i = exp((0.3 / weight) z_i),   z the scores' z-scores

1 / (2 - cos) = sum of cos^t / 2^(t+1) is 1 / (1 + d) for the cosine distance d. Every power of a Gram matrix is
positive semi-definite (Schur), so this is definite for rows that differ, at every width d: K > d works, where the plain
cosine kernel has no volume left after d picks. Kernel and factor follow from the rows alone; the scores only add
2 log q_i to the log of what a row adds to the determinant.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from backend.domain.errors import InvalidInput
from backend.domain.selection.greedy_picks import diverse_picks
from backend.domain.selection.lazy_greedy import GridRows, distance_steps, lazy_greedy_picks, panel_for, stale_chunks
from backend.domain.selection.linkage.clustering import Floats, Ints, Rows

QUALITY_SCALE = 0.3  # the exponent on z-scores at weight 1: the best of those measured on BANKING77 and CLINC150
SPENT = 1e-6  # a residual variance below it is that of a duplicate, to within the quantum of similarities
MAX_CELLS = 200_000_000  # n x K of the factor: 1.6 GB of float64
MAX_SAMPLED_ROWS = 2_000  # an eigendecomposition of n x n
_GAIN_STEPS = 1e6  # gains (in log determinant) closer than 1e-6 are equal
_STEEPEST = 1e100
_PANELS = (96, 256)  # the fastest at n = 1,000 and from 5,000 on; n / 16 between
_CHUNK = 128  # rows brought up to date by one product
_WIDTH = 256  # columns of the factor solved for at once


def dpp_map_picks(
    rows: Rows, gains: Floats, k: int, *, weight: float, min_distance: float = 0.0, panel_size: int | None = None
) -> Ints:
    """Greedy MAP: up to `k` rows, each the one that multiplies the determinant of the picks' kernel most, the lowest of
    equals (Chen, Zhang, Zhou 2018, with the lazy panels of `lazy_greedy`).

    `rows` (n, d) unit or zero rows in canonical order (a zero row is at distance 1 from all others); `gains` (n,) on
    any scale; `weight` 0 is exactly top-K, infinity the kernel without scores. A row that the picks span (residual
    variance below `SPENT`: a duplicate, or n rows in very few dimensions) is counted at `SPENT`, so that such rows come
    by score, and after all others unless their q^2 is 1e6 times larger. At most n K^2 multiplications and 8 n K bytes.

    Bound: none. log det is submodular, but not monotone: a pick multiplies the determinant by q^2 times its residual
    variance, which is below 1 for all but the best rows.

    Raises InvalidInput above `MAX_CELLS` = n x K."""
    n = len(rows)
    k = min(max(k, 0), n)
    if weight == 0:
        return diverse_picks(rows, gains, k, weight=0.0, min_distance=min_distance)
    if n * k > MAX_CELLS:
        raise InvalidInput(
            f"dpp holds n x K numbers: {n:,} x {k:,} are more than {MAX_CELLS:,}. Take a smaller K, or diverse.",
            code="too_many_candidates",
        )
    objective = _Determinant(rows, _log_quality(gains, weight), k, min_distance)
    panel = panel_for(n, min(max(n // 16, _PANELS[0]), _PANELS[1]))
    return lazy_greedy_picks(objective, k, panel_size=panel_size or panel)


def k_dpp_sample(rows: Rows, gains: Floats, k: int, *, weight: float, seed: int) -> Ints:
    """One exact draw of k rows, ascending, with probability in proportion to det L_S (Kulesza & Taskar 2012, algorithm
    8; the elementary symmetric polynomials as logarithms). For research: draws cost 3 to 5 points of accuracy against
    `dpp_map_picks`.

    `weight` above 0. O(n^3). Raises InvalidInput above `MAX_SAMPLED_ROWS` rows, for weight 0, and where the kernel has
    no k independent rows."""
    n = len(rows)
    if n > MAX_SAMPLED_ROWS:
        raise InvalidInput(
            f"A k-DPP is drawn from at most {MAX_SAMPLED_ROWS:,} candidates; there are {n:,}.",
            code="too_many_candidates",
        )
    if not weight > 0:
        raise InvalidInput("A k-DPP needs a diversity weight above 0.")
    k = min(max(k, 0), n)
    if k == 0:
        return np.empty(0, dtype=np.int64)
    log_quality = _log_quality(gains, weight)
    quality = np.exp(log_quality - log_quality.max())  # a common factor changes no probability
    on_grid = GridRows(rows)[np.arange(n)]
    kernel = _kernel(on_grid @ on_grid.T, is_self=True)
    own = np.einsum("ij,ij->i", on_grid, on_grid)  # 1 to within the grid: taken as it is, so that twins are no more
    np.fill_diagonal(kernel, np.where(own > 0, 1 / (2 - own), 1.0))  # independent than their rows
    values, vectors = np.linalg.eigh(quality[:, None] * kernel * quality)
    is_positive = values > values[-1] * n * np.finfo(np.float64).eps
    if np.count_nonzero(is_positive) < k:
        raise InvalidInput(f"Only {np.count_nonzero(is_positive)} of the rows are independent; {k} were asked for.")
    rng = np.random.default_rng(seed)
    chosen = _drawn_eigenvectors(np.log(values[is_positive]), k, rng)
    return _drawn_rows(vectors[:, is_positive][:, chosen], rng)


class _Determinant:
    """Rows of the Cholesky factor of the picks' kernel, as long as a row has seen picks: `_factor[i, :_seen[i]]`. A
    residual variance is 1 less the squares of its row, and only falls."""

    def __init__(self, rows: Rows, log_quality: Floats, k: int, min_distance: float) -> None:
        n = len(rows)
        self._rows, self._k, self._min_distance = GridRows(rows), k, min_distance
        self._offsets = 2 * _GAIN_STEPS * log_quality  # -inf for rows that are taken or refused
        self._factor = np.empty((n, k))  # pages that no row reaches are never touched
        self._variance = np.ones(n)
        self._seen = np.zeros(n, dtype=np.int64)
        self._picks: list[int] = []
        self._is_spent: list[bool] = []
        self.bounds = np.rint(self._offsets)

    def refresh(self, ids: Ints) -> None:
        now = len(self._picks)
        for chunk, first in stale_chunks(self._seen, ids, now, _CHUNK):
            for start in range(first, now, _WIDTH):
                self._extend(chunk, start, min(start + _WIDTH, now))
            gains = np.empty(len(chunk))
            _gains_into(gains, self._variance[chunk], self._offsets[chunk])
            self.bounds[chunk] = gains
            self._seen[chunk] = now

    def open_panel(self, ids: Ints) -> Floats:
        now = len(self._picks)
        rows = self._rows[ids]
        cosines = rows @ rows.T
        self._refused = _closer(cosines, self._min_distance)
        self._unexplained = _kernel(cosines, is_self=True)
        if now:
            known = self._factor[ids, :now]
            self._unexplained -= known @ known.T
        self._ids, self._n_taken = ids, 0
        self._columns = np.empty((min(len(ids), self._k - now), len(ids)))
        self._panel, self._panel_variance = self.bounds[ids], self._variance[ids]
        self._panel_offsets = self._offsets[ids]
        return self._panel

    def take(self, at: int) -> None:
        taken, variance = self._n_taken, float(self._panel_variance[at])
        column, before = self._columns[taken], self._columns[:taken]
        if variance < SPENT:  # it spans nothing new: the others keep their variance
            column[:] = 0.0
            column[at] = 1.0
        else:
            np.dot(before[:, at], before, out=column)
            np.subtract(self._unexplained[at], column, out=column)
            column *= 1.0 / math.sqrt(variance)
            self._panel_variance -= column * column
        self._picks.append(int(self._ids[at]))
        self._is_spent.append(variance < SPENT)
        self._panel_offsets[at] = -np.inf
        if self._refused is not None:
            self._panel_offsets[self._refused[at]] = -np.inf
        _gains_into(self._panel, self._panel_variance, self._panel_offsets)
        self._n_taken += 1

    def close_panel(self) -> None:
        now = len(self._picks)
        self._factor[self._ids, now - self._n_taken : now] = self._columns[: self._n_taken].T
        self._variance[self._ids], self._offsets[self._ids] = self._panel_variance, self._panel_offsets
        self.bounds[self._ids] = self._panel
        self._seen[self._ids] = now

    def _extend(self, ids: Ints, start: int, stop: int) -> None:
        """Let rows see picks `start` to `stop`. Those that have seen some of them are not charged again."""
        picks = np.array(self._picks[start:stop])
        cosines = self._rows[ids] @ self._rows[picks].T
        refused = _closer(cosines, self._min_distance)
        if refused is not None:
            self._offsets[ids[refused.any(axis=1)]] = -np.inf
        left = _kernel(cosines)
        left -= self._factor[ids, :start] @ self._factor[picks, :start].T
        pivots = self._factor[picks, start:stop]
        new = solve_triangular(pivots, left.T, lower=True, check_finite=False).T
        new[:, self._is_spent[start:stop]] = 0.0
        self._factor[ids, start:stop] = new
        new[np.arange(start, stop) < self._seen[ids][:, None]] = 0.0
        self._variance[ids] -= np.einsum("ij,ij->i", new, new)


def _gains_into(gains: Floats, variances: Floats, offsets: Floats) -> None:
    """`gains` becomes what each row adds to the log determinant, log(q^2 variance), in whole millionths."""
    np.maximum(variances, SPENT, out=gains)
    np.log(gains, out=gains)
    gains *= _GAIN_STEPS
    gains += offsets
    np.rint(gains, out=gains)


def _log_quality(gains: Floats, weight: float) -> Floats:
    spread = float(gains.std()) if len(gains) else 0.0
    if spread == 0 or math.isinf(weight):
        return np.zeros(len(gains))
    return np.asarray(min(QUALITY_SCALE / weight, _STEEPEST) * ((gains - gains.mean()) / spread))


def _kernel(cosines: Floats, is_self: bool = False) -> Floats:
    """1 / (2 - cos); 1 on the diagonal of rows with themselves, zero rows too. Overwrites `cosines`."""
    np.subtract(2.0, cosines, out=cosines)
    np.reciprocal(cosines, out=cosines)
    if is_self:
        np.fill_diagonal(cosines, 1.0)
    return cosines


def _closer(cosines: Floats, min_distance: float) -> NDArray[np.bool_] | None:
    return distance_steps(cosines.copy()) < min_distance * 1e6 if min_distance > 0 else None


def _drawn_eigenvectors(log_values: Floats, k: int, rng: np.random.Generator) -> Ints:
    """k of the eigenvectors, with probability in proportion to the product of their values."""
    n = len(log_values)
    log_e = np.full((n + 1, k + 1), -np.inf)  # log of e_j of the first m values
    log_e[:, 0] = 0.0
    for m in range(1, n + 1):
        log_e[m, 1:] = np.logaddexp(log_e[m - 1, 1:], log_values[m - 1] + log_e[m - 1, :-1])
    chosen: list[int] = []
    for m in range(n, 0, -1):
        left = k - len(chosen)
        if left == 0:
            break
        if left == m or math.log(rng.random()) < log_values[m - 1] + log_e[m - 1, left - 1] - log_e[m, left]:
            chosen.append(m - 1)
    return np.array(chosen, dtype=np.int64)


def _drawn_rows(vectors: Floats, rng: np.random.Generator) -> Ints:
    """One draw of the projection DPP of orthonormal columns `(n, k)`: row by row in proportion to the squared length
    that the rows before do not span. O(n k^2)."""
    n, k = vectors.shape
    residual = np.einsum("ij,ij->i", vectors, vectors)
    columns = np.empty((k, n))
    drawn: list[int] = []
    for step in range(k):
        residual = np.maximum(residual, 0.0)
        residual[drawn] = 0.0
        total = np.cumsum(residual)
        row = int(np.searchsorted(total, rng.random() * total[-1], side="right"))
        column = vectors @ vectors[row] - columns[:step, row] @ columns[:step]
        columns[step] = column / math.sqrt(residual[row])
        residual = residual - columns[step] ** 2
        drawn.append(row)
    return np.sort(np.array(drawn, dtype=np.int64))
