"""The nearest of each cluster, from BLAS tiles, without keeping any tile.

The first pass over all pairs is symmetric: a tile serves the lists of its rows and of its columns, so it takes
n^2 d / 2 products. Of a tile only what beats the current last of a list is looked at; the rest costs a comparison."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from backend.domain.selection.linkage.quantised_cosine import Ints

Floats32 = NDArray[np.float32]
Keys = NDArray[np.uint64]  # row (17 bits), cost (30), column (17): one integer sort ranks every list
Tile = Callable[[Ints, slice], Floats32]  # costs of (some clusters, a range of clusters), float32, nothing below 0

LIST = 8
MAX_CLUSTERS = 1 << 17
_TILE = 512
_COLUMN, _COST, _ROW = np.uint64(MAX_CLUSTERS - 1), np.uint64((1 << 30) - 1), np.uint64(47)
_COST_AT, _ONE = np.uint64(17), np.uint32(1)


def lists_of_all(tile: Tile, m: int, advance: Callable[[int], object] | None = None) -> tuple[Ints, Floats32]:
    """`(m, LIST)` the nearest clusters of each of m > LIST, best first, and their costs. `advance` is told how
    many are done."""
    limit = np.empty(m, np.float32)  # of each list: the cost of its last
    kept, new = np.empty(0, np.uint64), list[Keys]()
    for start in range(0, m, _TILE):
        rows = np.arange(start, min(start + _TILE, m))
        for left in range(start, m, _TILE):
            columns = np.arange(left, min(left + _TILE, m))
            costs = tile(rows, slice(left, left + len(columns)))
            if left == start:
                np.fill_diagonal(costs, np.inf)
            if start == 0:
                limit[columns] = _limit(costs)
            new.append(_within(costs, limit[rows][:, None], rows, columns))
            if left > start:
                new.append(_within(costs, limit[columns], rows, columns, by_column=True))
        if start == 0 or sum(map(len, new)) > m * LIST // 2:
            kept, new = _shortest(np.concatenate([kept, *new])), []
            limit = _cost(kept[LIST - 1 :: LIST])
        if advance is not None:
            advance(start + len(rows))
    return _as_lists(_shortest(np.concatenate([kept, *new])))


def lists_of(tile: Tile, some: Ints, m: int) -> tuple[Ints, Floats32]:
    """The same for some clusters only, given in ascending order: `(len(some), LIST)` each."""
    kept = []
    for start in range(0, len(some), _TILE):
        rows, new = some[start : start + _TILE], list[Keys]()
        for left in range(0, m, 2 * _TILE):
            columns = np.arange(left, min(left + 2 * _TILE, m))
            costs = tile(rows, slice(left, left + len(columns)))
            inside = np.flatnonzero((rows >= left) & (rows < left + len(columns)))
            costs[inside, rows[inside] - left] = np.inf
            if left == 0:
                limit = _limit(costs.T)[:, None]
            new.append(_within(costs, limit, rows, columns))
        kept.append(_shortest(np.concatenate(new)))
    return _as_lists(np.concatenate(kept))


def _limit(costs: Floats32) -> Floats32:
    """Bound each column by a cost that at least LIST of its entries do not exceed, the LIST-th of the minima of groups
    of rows. A group of 16 makes it a seventh of the time of partitioning the entries, and hardly higher."""
    n_groups = max(len(costs) // 16, LIST)
    size = len(costs) // n_groups
    minima = costs[: n_groups * size].reshape(size, n_groups, -1).min(axis=0)
    return np.asarray(np.partition(minima.T, LIST - 1, axis=1)[:, LIST - 1])


def _within(costs: Floats32, limit: Floats32, rows: Ints, columns: Ints, *, by_column: bool = False) -> Keys:
    """The entries at `limit` or less, as keys of the lists of `rows` (or of `columns`)."""
    hits = np.flatnonzero(costs <= limit)
    row, column = np.divmod(hits, costs.shape[1])
    owner, other = (columns[column], rows[row]) if by_column else (rows[row], columns[column])
    cost = np.abs(np.maximum(costs.ravel()[hits], 0))  # abs: the sign bit of -0.0 would spill into the row
    bits = (cost.view(np.uint32) >> _ONE).astype(np.uint64)  # rounded down to even: less than `MARGIN` is worth
    return (owner.astype(np.uint64) << _ROW) + (bits << _COST_AT) + other.astype(np.uint64)


def _shortest(keys: Keys) -> Keys:
    """The first LIST keys of each list, sorted. Every list has as many."""
    keys.sort()
    owner = keys >> _ROW
    first = np.flatnonzero(np.concatenate((np.ones(1, bool), owner[1:] != owner[:-1])))
    return np.asarray(keys[(first[:, None] + np.arange(LIST)).ravel()])


def _cost(keys: Keys) -> Floats32:
    return np.asarray((((keys >> _COST_AT) & _COST).astype(np.uint32) << _ONE).view(np.float32))


def _as_lists(keys: Keys) -> tuple[Ints, Floats32]:
    return (keys & _COLUMN).astype(np.int64).reshape(-1, LIST), _cost(keys).reshape(-1, LIST)
