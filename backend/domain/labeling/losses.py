"""The slices that lose most: for them more candidates are written."""

from collections.abc import Sequence

import numpy as np

LOSING_SHARE = 0.5  # of all that is lost, which the slices that lose most carry together
PRIOR_ROWS = 2.0  # with the mean error, as which a slice counts besides its own rows


def losing_slices(shares: Sequence[float], n_known: Sequence[int], n_wrong: Sequence[int]) -> list[int]:
    """The fewest slices that carry LOSING_SHARE of the loss, most first; one of them loses its share of traffic times
    the error of a student that has not seen its rows, of `n_known` labelled ones `n_wrong`. Equal losses come in the
    order of the slices; without an error there are none.

    >>> losing_slices([0.5, 0.3, 0.2], [100, 60, 40], [2, 15, 8])
    [1]
    >>> losing_slices([0.5, 0.5], [10, 10], [0, 0])
    []
    """
    known, wrong = np.asarray(n_known, dtype=np.float64), np.asarray(n_wrong, dtype=np.float64)
    if not wrong.sum():
        return []
    mean = wrong.sum() / known.sum()
    loss = np.asarray(shares) * (wrong + PRIOR_ROWS * mean) / (known + PRIOR_ROWS)
    order = np.argsort(-loss, kind="stable")
    n = int(np.searchsorted(np.cumsum(loss[order]), LOSING_SHARE * loss.sum())) + 1
    return [int(at) for at in order[:n]]
