"""Average and Ward linkage without an n x n matrix: rounds of reciprocal nearest neighbours.

The mean cosine similarity of two clusters is the inner product of their means, and Ward's cost needs only means and
sizes, so a cluster is one row of d numbers. Both linkages are reducible: a joined pair is never nearer to a third
cluster than the nearer of the two was. Hence all pairs that are each other's nearest can be joined in one round, and
the tree is that of joining the closest pair over and over (Bruynooghe 1978; Murtagh 1983).

Each cluster keeps its nearest few (`knn_lists`) and a bound that nothing outside them costs less than. By
reducibility the bound outlives joins, so a cluster whose neighbour was joined mostly finds its next one in the list:
all searches after the first come to a fifth of it. The last clusters go to `nn_chain`.
"""

import numpy as np

from backend.domain.selection.linkage.active_clusters import Clusters, rank, search_all
from backend.domain.selection.linkage.criteria import Linkage
from backend.domain.selection.linkage.knn_lists import LIST, Floats32
from backend.domain.selection.linkage.nn_chain import STAGE, Progress, chain_merges
from backend.domain.selection.linkage.quantised_cosine import STEPS, Floats, Ints, Rows

TAIL = 256  # clusters left for the chain
_CHUNK = 1_024


def round_merges(unit_rows: Rows, linkage: Linkage, on_progress: Progress | None = None) -> tuple[Ints, Floats]:
    """`(n-1, 2)` first rows of the clusters joined and `(n-1,)` heights, multiples of 1e-6, for
    `dendrogram.dendrogram_of`. `linkage` is AVERAGE or WARD.

    About 0.6 n^2 d float32 products and the memory of two copies of the rows."""
    clusters, joined, heights = _different_rows(unit_rows, linkage)
    if len(clusters) > TAIL:
        search_all(clusters, on_progress)
    while len(clusters) > TAIL:
        low, high = _reciprocal(clusters)
        joined.append(np.stack([clusters.first[low], clusters.first[high]], axis=1))
        heights.append(clusters.costs(low, high, np.float64).astype(np.float64, copy=False))
        touched = _join(clusters, low, high, heights[-1])
        if len(clusters) > TAIL:
            rank(clusters, touched)
        if on_progress is not None:
            on_progress(STAGE, len(unit_rows) - len(clusters), len(unit_rows) - 1)
    pairs, last = chain_merges(_matrix(clusters), clusters.sizes, linkage)
    all_heights = np.maximum(np.rint(np.concatenate([*heights, last]) * STEPS), 0) / STEPS
    return np.concatenate([*joined, clusters.first[pairs]]), all_heights


def _different_rows(unit_rows: Rows, linkage: Linkage) -> tuple[Clusters, list[Ints], list[Floats]]:
    """Each different row as a cluster, and the joins of those that are byte for byte the same: at height 0, or 1 for
    zero rows, which are at distance 1 from each other and as near to each other as to anything."""
    owner = _first_equal(np.ascontiguousarray(unit_rows))
    first, counts = np.unique(owner, return_counts=True)
    twins = np.flatnonzero(owner != np.arange(len(owner)))
    is_zero = np.logical_not(np.asarray(unit_rows.any(axis=1)))
    m, sizes = len(first), counts.astype(np.float64)
    means = unit_rows if m == len(unit_rows) else unit_rows[first]
    clusters = Clusters(
        linkage=linkage,
        means=means.astype(np.float32, copy=False),
        sizes=sizes,
        squares=np.where(is_zero[first], 1 / sizes, 1.0),
        first=first,
        near=np.empty((m, 0), np.int64),
        cost=np.empty((m, 0), np.float32),
        fresh=np.empty((m, 0), bool),
        bound=np.empty(m, np.float32),
        nearest=np.empty(m, np.int64),
        least=np.empty(m, np.float32),
    )
    return clusters, [np.stack([owner[twins], twins], axis=1)], [is_zero[twins].astype(np.float64)]


def _first_equal(rows: Rows) -> Ints:
    """`(n,)` of each row: the first row with the same bytes, by a sum of its words modulo 2^64 and then a look."""
    words = rows.view(np.uint32 if rows.dtype == np.float32 else np.uint64)
    weights = np.random.default_rng(0).integers(0, 1 << 64, words.shape[1], dtype=np.uint64)
    sums = np.concatenate(
        [words[start : start + _CHUNK].astype(np.uint64) @ weights for start in range(0, len(rows), _CHUNK)]
    )
    _, first, inverse = np.unique(sums, return_index=True, return_inverse=True)
    owner = first[inverse]
    others = np.flatnonzero(owner != np.arange(len(rows)))
    differ = others[(words[others] != words[owner[others]]).any(axis=1)]
    owner[differ] = differ  # sums may collide; then equal rows stay apart, which costs rounds and nothing else
    return owner


def _reciprocal(clusters: Clusters) -> tuple[Ints, Ints]:
    """Positions of the pairs that are each other's nearest, the lower first; the closest pair where rounding left
    none."""
    at = np.arange(len(clusters))
    low = np.flatnonzero((clusters.nearest[clusters.nearest] == at) & (at < clusters.nearest))
    if len(low):
        return low, clusters.nearest[low]
    a = int(clusters.least.argmin())
    pair = sorted((a, int(clusters.nearest[a])))
    return np.array(pair[:1]), np.array(pair[1:])


def _join(clusters: Clusters, low: Ints, high: Ints, heights: Floats) -> Ints:
    """Each pair becomes one cluster in the lower's place. Returns the clusters that need a new nearest one."""
    n_low, n_high = clusters.sizes[low], clusters.sizes[high]
    weights = np.stack([n_low, n_high]) / (n_low + n_high)
    candidates = np.concatenate([clusters.near[low], clusters.near[high]], axis=1)
    bound = np.stack([clusters.bound[low], clusters.bound[high]])
    lowest = (weights * bound).sum(axis=0) if clusters.linkage is Linkage.AVERAGE else bound.min(axis=0)
    means = _mix(clusters.means, low, high, weights)
    squares = (weights * np.stack([clusters.squares[low], clusters.squares[high]])).sum(axis=0) - heights / (
        n_low + n_high
    )  # Ward's alone
    position = _close_up(clusters, low, high)
    at = position[low]
    clusters.means[at], clusters.sizes[at], clusters.squares[at] = means, n_low + n_high, squares
    _relist(clusters, at, np.sort(position[candidates], axis=1), lowest)
    is_new = np.zeros(len(clusters), bool)
    is_new[at] = True
    clusters.fresh &= ~is_new[clusters.near]
    clusters.fresh[at] = True
    return np.flatnonzero(is_new | is_new[clusters.nearest])


def _mix(means: Floats32, low: Ints, high: Ints, weights: Floats) -> Floats32:
    out = np.empty((len(low), means.shape[1]), np.float32)
    for start in range(0, len(low), _CHUNK):
        part = slice(start, start + _CHUNK)
        out[part] = weights[0, part, None] * means[low[part]] + weights[1, part, None] * means[high[part]]
    return out


def _close_up(clusters: Clusters, low: Ints, high: Ints) -> Ints:
    """Takes out the clusters at `high`; returns where each old position is now, a pair's both at the lower's."""
    alive = np.ones(len(clusters), bool)
    alive[high] = False
    position = np.cumsum(alive) - 1
    position[high] = position[low]
    for name in ("means", "sizes", "squares", "first", "cost", "fresh", "bound", "least"):
        setattr(clusters, name, getattr(clusters, name)[alive])
    clusters.near, clusters.nearest = position[clusters.near[alive]], position[clusters.nearest[alive]]
    return position


def _relist(clusters: Clusters, at: Ints, candidates: Ints, bound: Floats) -> None:
    """The lists of the clusters born at `at`, from both parents' lists (positions, sorted). What is in neither list, or
    is cut off here, costs `bound` or more."""
    cost = np.full(candidates.shape, np.inf, np.float32)
    is_new = candidates != at[:, None]
    is_new[:, 1:] &= candidates[:, 1:] != candidates[:, :-1]
    row, slot = np.nonzero(is_new)
    cost[row, slot] = clusters.costs(at[row], candidates[row, slot])
    order = np.argsort(cost, axis=1, kind="stable")
    cost, candidates = np.take_along_axis(cost, order, axis=1), np.take_along_axis(candidates, order, axis=1)
    clusters.near[at], clusters.cost[at] = candidates[:, :LIST], cost[:, :LIST]
    clusters.bound[at] = np.minimum(bound, cost[:, LIST])


def _matrix(clusters: Clusters) -> Floats:
    """`(m, m)` costs in float64, multiples of 1e-6."""
    means = clusters.means.astype(np.float64)
    every = np.arange(len(clusters))
    costs = clusters.cost_from(means @ means.T, every[:, None], every)
    return np.asarray(np.maximum(np.rint(costs * STEPS), 0) / STEPS)
