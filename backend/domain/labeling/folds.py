"""Probabilities out of fold: what a head says of rows that neither it nor a near-duplicate of it was fitted on."""

import hashlib
from collections.abc import Sequence

import numpy as np

from backend.domain.labeling.linear_head import Flags, Floats, Ints, fit_linear_head

N_FOLDS = 5


def fold_of(keys: Sequence[str], groups: Ints, *, k: int = N_FOLDS) -> Ints:
    """`(n,)` a fold in 0..k-1 for each row: that of its group's smallest key, by hash. `groups` (n,) number the groups
    of near-duplicates. A row keeps its fold when others come, unless they are its near-duplicates."""
    smallest: dict[int, str] = {}
    for key, group in zip(keys, groups.tolist(), strict=True):
        smallest[group] = min(key, smallest.get(group, key))
    folds = {group: _hash(key) % k for group, key in smallest.items()}
    return np.array([folds[group] for group in groups.tolist()], dtype=np.int64)


def _hash(key: str) -> int:
    return int.from_bytes(hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest())


def cross_predict(
    rows: Floats, targets: Floats, folds: Ints, *, weights: Floats | None = None, c: float = 1.0
) -> Floats:
    """`(n, L)` probabilities of each row by the head that is fitted on the other folds; each row sums to 1.

    `rows` (n, d), `targets` (n, L), `folds` (n,), `weights` (n,) as in `fit_linear_head`. A label that the other folds
    lack has 1 / (rows there + L), as Laplace's rule says of what was never seen; without any other fold all labels are
    equally probable."""
    predicted = np.full(targets.shape, 1 / targets.shape[1])
    for fold in np.unique(folds):
        is_out = folds == fold
        is_fitted = ~is_out if weights is None else ~is_out & (weights > 0)
        if is_fitted.any():
            fitted_weights = None if weights is None else weights[is_fitted]
            head = fit_linear_head(rows[is_fitted], targets[is_fitted], weights=fitted_weights, c=c)
            is_seen = targets[is_fitted].sum(axis=0) > 0
            predicted[is_out] = _with_floor(head.probabilities(rows[is_out]), is_seen, int(is_fitted.sum()))
    return predicted


def _with_floor(probabilities: Floats, is_seen: Flags, n: int) -> Floats:
    floor = 1 / (n + len(is_seen))
    scaled = probabilities * (1 - floor * (~is_seen).sum())
    scaled[:, ~is_seen] = floor
    return np.asarray(scaled / scaled.sum(axis=1, keepdims=True))
