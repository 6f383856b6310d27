"""Greedy picking by score less closeness to what is picked already.

    nearest   gain(i | S) = s_i - weight * max over j in S of g_ij, with g = (1 - d) / (1 + d) for d < 1, else 0: the
              seed's 1 / (1 + d), rescaled so that a duplicate costs 1 and an orthogonal text 0, and charged once, for
              the nearest pick. weight = 0 is exactly top-K, infinity farthest-first (k-center), at every K.
    sum       gain(i | S) = s_i - weight * sum over j in S of 1 / (1 + d_ij): the seed's text, literally. It grows as
              K^2, so one weight means something else at every K, and from K = 80 on it is no diversity: it prefers
              what is far from the average, twins included (45 % of picks have a twin at K = 80 of 240, 82 % at 320 of
              960).

Neither has a bound on how far greedy is from the best K: the nearest-pick gain depends on the order of picking, so it
belongs to no set function; the pair sum does, and is submodular, but not monotone.
"""

import math

import numpy as np

from backend.domain.selection.lazy_greedy import (
    GridRows,
    best_bounds,
    distance_steps,
    lazy_greedy_picks,
    panel_for,
    stale_chunks,
)
from backend.domain.selection.linkage.clustering import STEPS, Floats, Ints, Rows

_PANEL = 256  # of 64 to 512 the fastest at n = 5,000
_CHUNK = 128  # rows brought up to date by one product
_WIDTH = 4_096  # picks in one product: 4 MB of cosines a chunk
_TERM_STEPS = 2.0**30  # pair terms are multiples of 2^-30, so that sums of up to 2^22 of them are exact in any order
_LEAST_TERM = 1 / 3  # 1 / (1 + d) for opposite rows: counted from there, sums stay small
_AHEAD = 64  # candidates whose pair terms are computed in one product
_AHEAD_BYTES = 2**28  # pair terms held for rows that may be picked next
_GREATEST_WEIGHT = 1e200  # a finite weight above it acts like it: the sum of 2^22 penalties stays a number


def diverse_picks(
    rows: Rows,
    gains: Floats,
    k: int,
    *,
    weight: float,
    penalty: str = "nearest",
    min_distance: float = 0.0,
    panel_size: int | None = None,
) -> Ints:
    """Return up to `k` rows, in order of picking: greatest gain first, the lowest row of equals.

    `rows` (n, d) unit or zero rows; `gains` (n,) in [0, 1], descending (canonical order); `weight` from 0 to infinity;
    `min_distance` a cosine distance: no pick is closer to an earlier one, and fewer than k may come back. Rows are held
    as they came: beside them it needs O(n + panel^2), and at most n k d multiplications. `panel_size` never changes
    the picks.

    Bound: none (see the module), but for weight 0 (the best K scores) and weight infinity with `nearest` (see
    `k_center_picks`)."""
    if weight == 0 and min_distance == 0:
        return np.argsort(-gains, kind="stable")[: max(k, 0)].astype(np.int64)
    if penalty == "sum" and weight > 0:
        n_ahead = panel_size or panel_for(len(rows), _AHEAD)
        return _pair_sum_picks(rows, gains, k, weight, min_distance, n_ahead)
    objective = _NearestPick(rows, gains, weight, min_distance)
    return lazy_greedy_picks(objective, k, panel_size=panel_size or panel_for(len(rows), _PANEL))


def k_center_picks(rows: Rows, k: int, *, min_distance: float = 0.0) -> Ints:
    """Farthest-first from row 0, the best: each pick is the row whose nearest pick is farthest, the lowest of equals.

    Bound (Gonzalez 1985): the greatest chord sqrt(2 d) from a row to its nearest pick, with everything beyond a right
    angle counted as equally far, is at most twice that of the best K rows, to within the quantum of the distances."""
    return diverse_picks(rows, np.zeros(len(rows)), k, weight=math.inf, min_distance=min_distance)


class _NearestPick:
    """Bounds are gains less the penalty for the picks that a row has seen: they only fall, so what it has not seen can
    wait until the row is among the best."""

    def __init__(self, rows: Rows, gains: Floats, weight: float, min_distance: float) -> None:
        self._rows = GridRows(rows)
        self._gains, self._weight = _finite(gains, weight)
        self._refused_below = min_distance * STEPS
        self._seen = np.zeros(len(rows), dtype=np.int64)
        self._picks: list[int] = []
        self.bounds = self._gains.copy()

    def refresh(self, ids: Ints) -> None:
        now = len(self._picks)
        for chunk, first in stale_chunks(self._seen, ids, now, _CHUNK):
            for start in range(first, now, _WIDTH):
                picks = np.array(self._picks[start : start + _WIDTH])
                # rounding is monotone: the nearest first, then its rounding
                nearest = (self._rows[chunk] @ self._rows[picks].T).max(axis=1)
                worth = self._worth(nearest, self._gains[chunk])
                self.bounds[chunk] = np.minimum(self.bounds[chunk], worth)
            self._seen[chunk] = now

    def open_panel(self, ids: Ints) -> Floats:
        rows = self._rows[ids]
        self._ids, self._panel = ids, self.bounds[ids]
        self._after = self._worth(rows @ rows.T, self._gains[ids])
        return self._panel

    def take(self, at: int) -> None:
        self._picks.append(int(self._ids[at]))
        np.minimum(self._panel, self._after[at], out=self._panel)
        self._panel[at] = -np.inf

    def close_panel(self) -> None:
        self.bounds[self._ids] = self._panel
        self._seen[self._ids] = len(self._picks)

    def _worth(self, cosines: Floats, gains: Floats) -> Floats:
        """Return what rows at these cosines from a pick are still worth. Overwrites `cosines`."""
        steps = distance_steps(cosines)
        refused = steps < self._refused_below if self._refused_below > 0 else None
        above = steps + STEPS  # in whole millionths: g is the quotient of two exact integers
        np.subtract(STEPS, steps, out=steps)
        np.maximum(steps, 0.0, out=steps)
        steps /= above
        steps *= -self._weight
        steps += gains
        if refused is not None:
            steps[refused] = -np.inf
        return steps


def _pair_sum_picks(rows: Rows, gains: Floats, k: int, weight: float, min_distance: float, n_ahead: int) -> Ints:
    """Every row is brought up to date at every pick: the sum moves all of them by about as much, so bounds that have
    not seen the last pick say nothing. The terms of the `n_ahead` best candidates are computed in one product."""
    everybody = GridRows(rows)[np.arange(len(rows))]
    left, weight = _finite(gains, weight)
    sums, worth = np.zeros(len(rows)), left.copy()
    ahead: dict[int, Floats] = {}
    picks: list[int] = []
    while len(picks) < k:
        pick = int(worth.argmax()) if len(worth) else -1
        if pick < 0 or worth[pick] == -np.inf:
            break
        if pick not in ahead:
            if len(ahead) * sums.nbytes > _AHEAD_BYTES:
                ahead.clear()
            best = best_bounds(worth, n_ahead)[0]
            new = [row for row in best.tolist() if row not in ahead]
            terms = _pair_terms(everybody[new] @ everybody.T, min_distance)
            ahead.update((row, term.copy()) for row, term in zip(new, terms, strict=True))  # a view keeps all of it
        picks.append(pick)
        left[pick] = -np.inf
        sums += ahead.pop(pick)
        np.multiply(sums, -weight / _TERM_STEPS, out=worth)
        worth += left
    return np.array(picks, dtype=np.int64)


def _pair_terms(cosines: Floats, min_distance: float) -> Floats:
    """1 / (1 + d) less the least possible, in whole 2^-30; infinite where a pick that close is refused. Overwrites
    `cosines`."""
    steps = distance_steps(cosines)
    refused = steps < min_distance * STEPS if min_distance > 0 else None
    steps += STEPS
    np.divide(STEPS, steps, out=steps)
    steps -= _LEAST_TERM
    steps *= _TERM_STEPS
    np.rint(steps, out=steps)
    if refused is not None:
        steps[refused] = np.inf
    return steps


def _finite(gains: Floats, weight: float) -> tuple[Floats, float]:
    """Make the weight finite: under an infinite one the penalties alone are compared."""
    if math.isinf(weight):
        return np.zeros(len(gains)), 1.0
    return gains.astype(np.float64), min(weight, _GREATEST_WEIGHT)
