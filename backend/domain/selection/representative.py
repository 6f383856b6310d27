"""Representative picks: K rows that stand for the whole pool in proportion to how often it says something.

Near-duplicates are a group, and a group speaks through its most typical row, its head. Heads are picked by facility
location over all heads, each weighted by the size of its group (Wei, Iyer, Bilmes 2015):

    F(S) = sum over groups g of n_g * max over j in S of max(cos(g, j), 0)

so that picks keep the density of the pool, where k-center and clusters of equal right seek what is rare. Rows far from
all others come when nothing else is left; second rows of a group when every group has one, by the groups' sizes.

`heads_of` and `is_far_out` are for whoever starts from a pool in the same way (the first round of labels).
"""

import heapq
import math

import numpy as np
from numpy.typing import NDArray

from backend.domain.selection.facility_location import facility_location_picks
from backend.domain.selection.lazy_greedy import GridRows, distance_steps
from backend.domain.selection.linkage.clustering import STEPS, Floats, Ints, Rows

N_NEIGHBOURS = 10  # whose mean cosine is a row's density; of 5 to 20 not measured
FAR_SHARE = 0.02  # of the heads, with the lowest density, that come last; not measured beside other shares
PART_ROWS = 5_000  # heads that facility location takes at once: 100 MB of similarities
_BLOCK = 256


def representative_picks(rows: Rows, k: int, *, groups: Ints, min_distance: float = 0.0) -> Ints:
    """Return up to `k` rows in order of picking, the lowest row of equals.

    `rows` (n, d) unit or zero rows in canonical order; `groups` (n,) the group of near-duplicates of each row, from 0.
    No pick is closer than `min_distance` (a cosine distance) to an earlier one; then fewer than k may come back. Above
    PART_ROWS groups, heads are dealt into parts that are picked from one by one (greedy on random parts: Mirzasoleiman
    et al. 2013), and memory stays O(n d + PART_ROWS^2).

    Bound: none over the pool, as outliers are left out; among the other heads of one part at least 1 - 1/e of the
    greatest F (Nemhauser, Wolsey, Fisher 1978)."""
    heads, sizes = heads_of(rows, groups)
    n_parts = max(1, -(-len(heads) // PART_ROWS))
    share = min(len(heads), -(-k // n_parts))
    dealt = [np.arange(len(heads))[nth::n_parts] for nth in range(n_parts)]
    order = _in_turn([part[_order(rows[heads[part]], sizes[part], share, min_distance)] for part in dealt])
    picks = heads[order]
    if len(picks) < k:
        picks = np.concatenate((picks, _others(rows, groups, heads[order])))
    return picks[:k] if min_distance == 0 else _apart(rows, picks, k, min_distance)


def heads_of(rows: Rows, groups: Ints) -> tuple[Ints, Ints]:
    """The most typical row of each group, the one nearest to the group's mean, and the groups' sizes, both ascending by
    group."""
    sizes = np.bincount(groups)
    by_group = np.argsort(groups, kind="stable")
    nearness = _nearness(rows, groups, sizes)
    starts = np.cumsum(sizes) - sizes
    heads = [members[int(nearness[members].argmax())] for members in np.split(by_group, starts[1:])]
    return np.array(heads, dtype=np.int64), sizes.astype(np.int64)


def is_far_out(rows: Rows, sizes: Ints) -> NDArray[np.bool_]:
    """(n,) the rows that stand for themselves alone and are among the FAR_SHARE of all with the lowest mean cosine to
    their N_NEIGHBOURS nearest rows. What many sent is no outlier, however odd it is."""
    n_far = math.floor(FAR_SHARE * len(rows))
    density = _densities(rows)
    lowest = np.lexsort((-np.arange(len(rows)), density))[:n_far]
    far = np.zeros(len(rows), dtype=bool)
    far[lowest] = True
    return np.asarray(far & (sizes == 1))


def _order(rows: Rows, sizes: Ints, k: int, min_distance: float) -> Ints:
    """The first `k` heads of one part: those that are not far out by facility location, then the others."""
    far = is_far_out(rows, sizes)
    near = np.flatnonzero(~far)
    gains = np.zeros(len(near))
    first = near[
        facility_location_picks(
            rows[near], gains, min(k, len(near)), weight=math.inf, min_distance=min_distance, sizes=sizes[near]
        )
    ]
    return np.concatenate((first, np.flatnonzero(far)))[:k]


def _in_turn(parts: list[Ints]) -> Ints:
    """One of each part after the other, until all are through."""
    places = np.concatenate([np.arange(len(part)) for part in parts])
    return np.concatenate(parts)[np.argsort(places, kind="stable")]


def _others(rows: Rows, groups: Ints, heads: Ints) -> Ints:
    """The rows that are no picked head: the next row goes to the group with the most rows for each row that it has
    (highest averages, D'Hondt), and is its most typical one."""
    sizes = np.bincount(groups)
    left = np.setdiff1d(np.arange(len(rows)), heads)
    ranked = left[np.lexsort((left, -_nearness(rows, groups, sizes)[left]))]
    waiting: dict[int, list[int]] = {}
    for row in ranked[::-1].tolist():
        waiting.setdefault(int(groups[row]), []).append(row)
    taken = np.bincount(groups[heads], minlength=len(sizes))
    heap = [(-int(sizes[group]) / (int(taken[group]) + 1), mine[-1], group) for group, mine in waiting.items()]
    heapq.heapify(heap)
    picks: list[int] = []
    while heap:
        _, row, group = heap[0]
        picks.append(row)
        waiting[group].pop()
        taken[group] += 1
        if waiting[group]:
            heapq.heapreplace(heap, (-int(sizes[group]) / (int(taken[group]) + 1), waiting[group][-1], group))
        else:
            heapq.heappop(heap)
    return np.array(picks, dtype=np.int64)


def _nearness(rows: Rows, groups: Ints, sizes: Ints) -> Floats:
    """(n,) the cosine of each row to the mean of its group, in whole millionths; a zero row's is 0."""
    means = np.zeros((len(sizes), rows.shape[1]))
    np.add.at(means, groups, GridRows(rows)[np.arange(len(rows))])
    lengths = np.linalg.norm(means, axis=1, keepdims=True)
    means /= np.where(lengths > 0, lengths, 1.0)
    return np.asarray(STEPS - distance_steps(np.einsum("ij,ij->i", rows, means[groups], dtype=np.float64)))


def _densities(rows: Rows) -> Floats:
    """(n,) the mean cosine to the nearest other rows, in whole millionths, so that no machine orders them otherwise."""
    n = len(rows)
    exact = GridRows(rows)[np.arange(n)]
    n_nearest = min(N_NEIGHBOURS, n - 1)
    if n_nearest < 1:
        return np.zeros(n)
    out = np.empty(n)
    for start in range(0, n, _BLOCK):
        steps = distance_steps(exact[start : start + _BLOCK] @ exact.T)
        at = np.arange(len(steps))
        steps[at, at + start] = np.inf
        out[start : start + _BLOCK] = np.partition(steps, n_nearest - 1, axis=1)[:, :n_nearest].sum(axis=1)
    return STEPS - out / n_nearest


def _apart(rows: Rows, order: Ints, k: int, min_distance: float) -> Ints:
    """The first `k` of `order` of which none is closer than that to an earlier one."""
    exact = GridRows(rows)
    picks: list[int] = []
    for row in order.tolist():
        if len(picks) == k:
            break
        steps = distance_steps(exact[np.array(picks, dtype=np.int64)] @ exact[np.array([row])][0])
        if steps.min(initial=np.inf) >= min_distance * STEPS:
            picks.append(row)
    return np.array(picks, dtype=np.int64)
