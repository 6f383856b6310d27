"""A draft examined without asking anybody: does it look like its slice's label, and is it there already?

A label's centroid is the mean of its gold rows. A draft's margin is its cosine to its own label's centroid, less that
to the best other one: on HWU64's intents that separated right drafts from those of the nearest other slices with an AUC
of .972. Where the line is drawn is a matter of the gold alone: 95 % of a label's own gold rows lie above it, each
measured against centroids that it is no part of. It sees nothing of a draft that is wrong for its slice and right for
its label. So it is for drafts of no relative: of the own label's sentences it loses one in eight (8 gold rows), which
is a loss without a gain where a draft's source has the slice's own label.
"""

from collections.abc import Sequence
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float32]

LEAST_GOLD = 4  # rows of a label, for it to be filtered by
LOST_GOLD = 0.05
DUPLICATE = 0.98  # cosine


class Drop(StrEnum):
    """The reasons to leave a draft out."""

    OFF_LABEL = "off_label"
    DUPLICATE = "duplicate"


def drops(rows: Rows, own: Sequence[int], *, gold: Rows, gold_labels: Sequence[int], there: Rows) -> list[Drop | None]:
    """Say of each draft, (n, d) unit rows in the order of preference, why it is left out, or None. `own` is its slice's
    label, numbered as in `gold_labels` (a label without gold is any other number); `there` are the rows of what the
    slice has already. A draft that is left out makes no later one a duplicate."""
    off_label = is_off_label(rows, own, gold, gold_labels)
    kept = [number for number in range(len(rows)) if not off_label[number]]
    repeated = {kept[at] for at in np.flatnonzero(are_repeated(rows[kept], there))}
    return [Drop.OFF_LABEL if off_label[n] else Drop.DUPLICATE if n in repeated else None for n in range(len(rows))]


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


def are_repeated(rows: Rows, there: Rows) -> NDArray[np.bool_]:
    """(n,): whether a unit row is all but the same as one of `there`, or as an earlier one that is not itself
    repeated."""
    repeated = np.zeros(len(rows), dtype=np.bool_)
    if not len(rows):
        return repeated
    if len(there):
        repeated |= (rows @ there.T).max(axis=1) > DUPLICATE
    near = rows @ rows.T > DUPLICATE
    for at in range(1, len(rows)):
        repeated[at] |= bool((near[at, :at] & ~repeated[:at]).any())
    return repeated


def _centroids(gold: Rows, labels: NDArray[np.int64], known: NDArray[np.int64]) -> Rows:
    return _unit(np.stack([gold[labels == label].sum(axis=0) for label in known]))


def _unit(rows: Rows) -> Rows:
    unit: Rows = (rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)).astype(np.float32)
    return unit
