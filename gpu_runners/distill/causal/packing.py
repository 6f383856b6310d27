"""The choice of the examples of a step, and the layout of a step. Pure: everything follows from (lengths, seed, epoch).

The two are kept apart on purpose: a step holds the same examples whatever the batching, so packing, bucketing and
padding compute one and the same gradient, in different shapes. Packing cannot change what is learnt.
"""

import heapq
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Bins = list[list[int]]
_ALIKE = 0.75  # bucketed: a batch's shortest row is at least this share of its longest, unless the batch is small
_MIN_POSITIONS = 256  # below this a matrix product gains nothing from being smaller


def plan_epoch(lengths: Sequence[int], *, capacity: int, seed: int, epoch: int) -> Bins:
    """One epoch's steps, each a list of example indices of at most `capacity` tokens together (an example longer than
    that is a step of its own).

    First-fit-decreasing says how many steps there are, the same every epoch. Its bins are full of alike lengths and
    the last one is a remnant; so the examples are dealt out anew over as many steps, each to the emptiest, nearly
    longest first, which makes steps of equal size and mixed lengths. Where they cannot be dealt out so within the
    capacity, first-fit-decreasing's own bins are taken.
    """
    rng = np.random.default_rng([seed % 2**32, epoch])
    shuffled = rng.permutation(len(lengths))
    bins = first_fit_decreasing(lengths, capacity=capacity, order=shuffled)
    bins = _deal_out(lengths, n_bins=len(bins), capacity=capacity, order=shuffled) or bins
    return [bins[i] for i in rng.permutation(len(bins))]


def first_fit_decreasing(
    lengths: Sequence[int], *, capacity: int, order: NDArray[np.int64] | Sequence[int] | None = None
) -> Bins:
    """Bins of indices, longest example first, each into the first bin that has room (at most 11/9 of the optimum and
    6/9 of a bin: Dósa 2007). `order` breaks ties. O(n * bins), vectorised: 100,000 examples in under a second."""
    indices = np.arange(len(lengths)) if order is None else np.asarray(order)
    tokens = np.asarray(lengths, dtype=np.int64)
    indices = indices[np.argsort(-tokens[indices], kind="stable")]
    room, bins = np.full(len(lengths), -1, dtype=np.int64), list[list[int]]()
    for i in indices.tolist():
        fits = room[: len(bins)] >= tokens[i]
        at = int(fits.argmax()) if fits.any() else len(bins)
        if at == len(bins):
            bins.append([])
            room[at] = capacity
        bins[at].append(i)
        room[at] -= tokens[i]
    return bins


def _deal_out(lengths: Sequence[int], *, n_bins: int, capacity: int, order: NDArray[np.int64]) -> Bins | None:
    """Lengths within a fifth of each other count as equal here, so that epochs differ. None where a bin would
    overflow."""
    tokens = np.asarray(lengths, dtype=np.int64)
    size = np.floor(np.log2(np.maximum(tokens[order], 1)) * 4)
    heap = [(0, at) for at in range(n_bins)]
    bins: Bins = [[] for _ in range(n_bins)]
    for i in order[np.argsort(-size, kind="stable")].tolist():
        load, at = heapq.heappop(heap)
        if load and load + tokens[i] > capacity:
            return None
        bins[at].append(i)
        heapq.heappush(heap, (load + int(tokens[i]), at))
    return bins


def share_of(step: Sequence[int], lengths: Sequence[int], *, rank: int, world: int) -> list[int]:
    """The share of a step that one of `world` processes computes: parts of nearly equal size. May be empty."""
    parts: Bins = [[] for _ in range(world)]
    heap = [(0, at) for at in range(world)]
    for i in sorted(step, key=lambda i: (-lengths[i], i)):
        load, at = heapq.heappop(heap)
        parts[at].append(i)
        heapq.heappush(heap, (load + lengths[i], at))
    return parts[rank]


def lay_out(
    step: Sequence[int], lengths: Sequence[int], *, batching: str, capacity: int, row_tokens: int, parts: int = 1
) -> list[Bins]:
    """The step's batches, each a list of rows, each a list of examples (one alone unless packed).

    packed, shared_prefix: rows of `row_tokens` (or the longest example; a prefix comes on top). A row as long as the
    step stands alone in its batch, which is what variable-length kernels take. bucketed: rows of alike lengths
    together. padded: one batch as it comes. `parts` above 1 makes batches of a fraction of the size, whose gradients
    are summed: the step is the same.
    """
    if not step:
        return []
    if batching in ("packed", "shared_prefix"):
        return _pack(step, lengths, room=math.ceil(capacity / parts), row_tokens=row_tokens, parts=parts)
    if batching == "bucketed":
        return _bucket(step, lengths, room=math.ceil(capacity / parts))
    size = math.ceil(len(step) / parts)
    return [[[i] for i in step[at : at + size]] for at in range(0, len(step), size)]


def _pack(step: Sequence[int], lengths: Sequence[int], *, room: int, row_tokens: int, parts: int) -> list[Bins]:
    own = [lengths[i] for i in step]
    width = max(min(row_tokens, room), max(own))
    rows = [[step[i] for i in row] for row in first_fit_decreasing(own, capacity=width)]
    if row_tokens >= room:
        return [[row] for row in rows]
    size = math.ceil(len(rows) / parts)
    return [rows[at : at + size] for at in range(0, len(rows), size)]


def _bucket(step: Sequence[int], lengths: Sequence[int], *, room: int) -> list[Bins]:
    batches: list[Bins] = []
    longest = 0
    for i in sorted(step, key=lambda i: (-lengths[i], i)):
        positions = longest * len(batches[-1]) if batches else 0
        unlike = lengths[i] < _ALIKE * longest and positions >= _MIN_POSITIONS
        if not batches or unlike or positions + longest > room:
            batches.append([])
            longest = lengths[i]
        batches[-1].append([i])
    return batches
