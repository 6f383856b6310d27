"""Picking one row at a time by the greatest gain, without an n x n matrix.

Every objective here has gains that only fall as more is picked, so a gain computed some picks ago is an upper bound of
today's (Minoux 1978). A panel of the best bounds is brought up to date by one matrix product and picked from exactly,
for as long as its best beats every bound outside it:

    bounds of all rows --the best few--> panel, up to date --picks, one by one--> until one outside could be better
          ^                                                                            |
          `------------------ a new panel; the rows outside stay as old as they are <--'

With a panel of all rows this is the plain greedy on a Gram matrix. The picks are the same at every panel size, because
cosines are exact: see `GridRows`.
"""

from typing import Protocol

import numpy as np

from backend.domain.selection.linkage.clustering import STEPS, Floats, Ints, Rows

_GRID = 2.0**26
_REFRESHED = 3  # panels' worth of rows brought up to date before each panel, so that it holds fewer has-beens
_HELD = 2**23  # numbers up to which rows are rounded once (64 MB of float64), above each time they are used
_WHOLE_POOL = 400  # rows up to which one panel of all is the fastest


class Objective(Protocol):
    """`bounds` (n,) float64: what each row would add at most; -inf for rows that are taken or refused."""

    bounds: Floats

    def refresh(self, ids: Ints) -> None:
        """Bring the bounds of these rows up to date: what each would add now."""
        ...

    def open_panel(self, ids: Ints) -> Floats:
        """`(len(ids),)` the bounds of rows that are up to date. `take` keeps the array so, in place."""
        ...

    def take(self, at: int) -> None:
        """Pick row `ids[at]` of the open panel."""
        ...

    def close_panel(self) -> None:
        """Write the panel's gains back to `bounds`."""
        ...


def lazy_greedy_picks(objective: Objective, k: int, *, panel_size: int) -> Ints:
    """The k rows of a greedy selection in order of picking; the lowest row of equals. Fewer where no row is left."""
    picks: list[int] = []
    while len(picks) < k:
        if picks:
            objective.refresh(best_bounds(objective.bounds, _REFRESHED * panel_size)[0])
        panel, bound, first_outside = best_bounds(objective.bounds, panel_size)
        if len(panel) == 0:
            break
        if picks:
            objective.refresh(panel)
        gains = objective.open_panel(panel)
        while len(picks) < k:
            at = int(gains.argmax())
            gain = gains[at]
            if gain < bound or gain == -np.inf or (gain == bound and panel[at] > first_outside):
                break
            picks.append(int(panel[at]))
            objective.take(at)
        objective.close_panel()
    return np.array(picks, dtype=np.int64)


def panel_for(n: int, size: int) -> int:
    """`size`, or all of a small pool."""
    return n if n <= _WHOLE_POOL else size


def best_bounds(bounds: Floats, size: int) -> tuple[Ints, float, int]:
    """The rows of the `size` greatest bounds, ascending, the lowest of equals; a value no bound outside exceeds; and
    the first row outside that has it. Rows at -inf never come."""
    n = len(bounds)
    bound = float(np.partition(bounds, n - size)[n - size]) if size < n else -np.inf
    if bound == -np.inf:
        return np.flatnonzero(bounds > -np.inf), -np.inf, n
    above, equal = np.flatnonzero(bounds > bound), np.flatnonzero(bounds == bound)
    n_equal = size - len(above)
    first_outside = int(equal[n_equal]) if n_equal < len(equal) else n
    return np.sort(np.concatenate((above, equal[:n_equal]))), bound, first_outside


class GridRows:
    """Rows by index, as float64 with every coordinate rounded to a multiple of 2^-26.

    Each product of two such unit rows, and each sum of some of its terms, is a multiple of 2^-52 below 2, which float64
    holds exactly: cosines are the same bit for bit in whatever order BLAS adds them up. The rounding moves a cosine by
    1e-8, a hundredth of the quantum."""

    def __init__(self, rows: Rows) -> None:
        self._is_rounded = rows.size <= _HELD
        self._rows = _round(rows) if self._is_rounded else rows

    def __getitem__(self, ids: Ints) -> Floats:
        rows = self._rows[ids]
        return np.asarray(rows, dtype=np.float64) if self._is_rounded else _round(rows)


def _round(rows: Rows) -> Floats:
    rounded = rows.astype(np.float64)
    rounded *= _GRID
    np.rint(rounded, out=rounded)
    rounded /= _GRID
    return rounded


def distance_steps(cosines: Floats) -> Floats:
    """Cosine distances in whole millionths, as `clustering.quantised_distances` has them. Overwrites `cosines`."""
    np.subtract(1.0, cosines, out=cosines)
    cosines *= STEPS
    np.rint(cosines, out=cosines)
    return np.clip(cosines, 0.0, 2.0 * STEPS, out=cosines)


def stale_chunks(stamps: Ints, ids: Ints, now: int, size: int) -> list[tuple[Ints, int]]:
    """The rows of `ids` that have not seen all `now` picks, in groups of about one age: (rows, picks the oldest has
    seen)."""
    stale = ids[stamps[ids] < now]
    stale = stale[np.argsort(stamps[stale], kind="stable")]
    return [(chunk, int(stamps[chunk[0]])) for chunk in (stale[at : at + size] for at in range(0, len(stale), size))]
