"""Agglomerative clustering of a square distance matrix by its nearest-neighbour chain (Benzecri 1982; Murtagh 1983).

For what `reciprocal_nn` leaves over, whose clusters already have sizes (scipy's linkage starts from single rows), and
for complete linkage, which has no form without a matrix."""

from collections.abc import Callable

import numpy as np

from backend.domain.selection.linkage.criteria import Linkage
from backend.domain.selection.linkage.quantised_cosine import STEPS, Floats, Ints, Rows, quantised_distances

Progress = Callable[[str, int, int], None]
STAGE = "clustering"  # the stage named to on_progress
REPORT_EVERY = 500  # joins
_TILE = 1_024


def chain_merges(
    distance: Rows, sizes: Floats, linkage: Linkage, on_progress: Progress | None = None
) -> tuple[Ints, Floats]:
    """`(m-1, 2)` indices of the clusters joined, the lower of which stands for both from then on, and `(m-1,)` heights,
    in an order in which parts come before wholes but not by height.

    `distance` `(m, m)`, symmetric, is used up: the time is O(m^2), the memory that of the matrix. A tie goes to the
    lowest index. Ward's distances are costs (`reciprocal_nn`), not Euclidean distances."""
    m = len(distance)
    index, sizes = np.arange(m), sizes.astype(np.float64)
    np.fill_diagonal(distance, np.inf)
    merges, heights = np.empty((max(m - 1, 0), 2), np.int64), np.empty(max(m - 1, 0))
    chain: list[int] = []
    n_dead = 0
    for at in range(m - 1):
        if n_dead * 2 > len(distance) and len(distance) > 64:
            distance, index, sizes, chain = _compact(distance, index, sizes, chain)
            n_dead = 0
        a, b = _reciprocal_pair(distance, sizes, chain)
        merges[at], heights[at] = (index[a], index[b]), distance[a, b]
        _join(distance, sizes, a, b, linkage)
        n_dead += 1
        if on_progress is not None and at % REPORT_EVERY == 0:
            on_progress(STAGE, at, m - 1)
    return merges, heights


def complete_merges(unit_rows: Rows, on_progress: Progress | None = None) -> tuple[Ints, Floats]:
    """Complete linkage on cosine distance; `chain_merges` on a float32 matrix: 4 n^2 bytes, 1.6 GB at n = 20,000."""
    n = len(unit_rows)
    distance = np.empty((n, n), np.float32)  # in steps of 1e-6: whole numbers to 2e6, exact in float32
    for start in range(0, n, _TILE):
        for left in range(start, n, _TILE):
            tile = quantised_distances(unit_rows[start : start + _TILE] @ unit_rows[left : left + _TILE].T) * STEPS
            tile = np.rint(np.minimum(tile, tile.T) if start == left else tile)
            distance[start : start + _TILE, left : left + _TILE] = tile
            distance[left : left + _TILE, start : start + _TILE] = tile.T
    merges, heights = chain_merges(distance, np.ones(n), Linkage.COMPLETE, on_progress)
    return merges, heights / STEPS


def _reciprocal_pair(distance: Rows, sizes: Floats, chain: list[int]) -> tuple[int, int]:
    """Follows nearest neighbours until two have each other; takes them off the chain."""
    if not chain:
        chain.append(int(np.flatnonzero(sizes)[0]))
    while True:
        row = distance[chain[-1]]
        nearest = int(row.argmin())
        if len(chain) > 1 and row[chain[-2]] <= row[nearest]:
            a, b = chain.pop(), chain.pop()
            return min(a, b), max(a, b)
        if nearest in chain:  # rounding brought an earlier link an ulp nearer
            del chain[chain.index(nearest) + 1 :]
            continue
        chain.append(nearest)


def _join(distance: Rows, sizes: Floats, a: int, b: int, linkage: Linkage) -> None:
    """Lance-Williams: row and column a become those of a and b together; b's can never be nearest again."""
    row_a, row_b, n_a, n_b = distance[a], distance[b], sizes[a], sizes[b]
    match linkage:
        case Linkage.AVERAGE:
            joined = (n_a * row_a + n_b * row_b) / (n_a + n_b)
        case Linkage.COMPLETE:
            joined = np.maximum(row_a, row_b)
        case Linkage.WARD:
            joined = ((n_a + sizes) * row_a + (n_b + sizes) * row_b - sizes * row_a[b]) / (n_a + n_b + sizes)
    joined[[a, b]] = np.inf
    distance[a] = distance[:, a] = joined
    distance[:, b] = np.inf
    sizes[a], sizes[b] = n_a + n_b, 0.0


def _compact(distance: Rows, index: Ints, sizes: Floats, chain: list[int]) -> tuple[Rows, Ints, Floats, list[int]]:
    """The living clusters alone, moved up within the same memory."""
    alive = np.flatnonzero(sizes)
    for new, old in enumerate(alive.tolist()):
        distance[new, : len(alive)] = distance[old, alive]
    position = np.searchsorted(alive, chain).tolist()
    return distance[: len(alive), : len(alive)], index[alive], sizes[alive], position
