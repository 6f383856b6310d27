"""A draft examined without asking anybody: does it look like its slice's label?

A label's centroid is the mean of its gold rows. A draft's margin is its cosine to its own label's centroid, less that
to the best other one: on HWU64's intents that separated right drafts from those of the nearest other slices with an AUC
of .972. Where the line is drawn is a matter of the gold alone: 95 % of a label's own gold rows lie above it, each
measured against centroids that it is no part of. It sees nothing of a draft that is wrong for its slice and right for
its label. So it is for drafts of no relative: of the own label's sentences it loses one in eight (8 gold rows), which
is a loss without a gain where a draft's source has the slice's own label.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float32]

LEAST_GOLD = 4  # rows of a label, for it to be filtered by
LOST_GOLD = 0.05


def is_off_label(rows: Rows, own: Sequence[int], gold: Rows, gold_labels: Sequence[int]) -> NDArray[np.bool_]:
    """(n,): whether each draft lies below its label's line. False for labels with less than 4 gold rows, and where
    there is no second label to compare with."""
    labels = np.asarray(gold_labels, dtype=np.int64)
    known = np.unique(labels)
    lines = lines_of(gold, labels, known)
    place = {int(label): at for at, label in enumerate(known)}
    at = np.array([place.get(label, -1) for label in own], dtype=np.int64)
    judged = np.flatnonzero(at >= 0)
    off = np.zeros(len(rows), dtype=np.bool_)
    if len(known) > 1 and len(judged):
        off[judged] = margins(rows[judged], _centroids(gold, labels, known), at[judged]) < lines[at[judged]]
    return off


def margins(rows: Rows, centroids: Rows, own: NDArray[np.int64]) -> NDArray[np.float32]:
    """(n,) in [-2, 2]: each unit row's cosine to its own centroid less that to the best other one; `centroids` are (l,
    d) unit rows, l at least 2."""
    cosines = rows @ centroids.T
    at = np.arange(len(rows))
    mine = cosines[at, own]
    cosines[at, own] = -np.inf
    values: NDArray[np.float32] = (mine - cosines.max(axis=1)).astype(np.float32)
    return values


def lines_of(gold: Rows, labels: NDArray[np.int64], known: NDArray[np.int64]) -> NDArray[np.float64]:
    """(l,): the margin that 95 % of each label's gold exceeds, where a row's own label is the mean of the others; minus
    infinity where nothing can be said."""
    lines = np.full(len(known), -np.inf)
    if len(known) < 2:
        return lines
    centroids = _centroids(gold, labels, known)
    for at, label in enumerate(known):
        mine = gold[labels == label]
        if len(mine) < LEAST_GOLD:
            continue
        cosines = mine @ centroids.T
        cosines[:, at] = -np.inf
        without = _unit(mine.sum(axis=0) - mine)
        lines[at] = np.quantile((mine * without).sum(axis=1) - cosines.max(axis=1), LOST_GOLD)
    return lines


def _centroids(gold: Rows, labels: NDArray[np.int64], known: NDArray[np.int64]) -> Rows:
    return _unit(np.stack([gold[labels == label].sum(axis=0) for label in known]))


def _unit(rows: Rows) -> Rows:
    unit: Rows = (rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)).astype(np.float32)
    return unit
