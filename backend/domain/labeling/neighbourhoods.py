"""The density of a pool around each row: what is typical of it, and what is far from everything."""

import numpy as np

from backend.domain.labeling.linear_head import Floats
from backend.domain.selection.lazy_greedy import GridRows, distance_steps
from backend.domain.selection.linkage.quantised_cosine import STEPS

N_NEIGHBOURS = 10
_BLOCK = 256  # rows whose cosines to all others are held at once: 10 MB at 5,000 rows


def densities(rows: Floats, *, n_neighbours: int = N_NEIGHBOURS) -> Floats:
    """`(n,)` the mean cosine of each of `(n, d)` unit or zero rows to its nearest others; to all others where there are
    fewer, 0 for a row alone. Cosines are whole millionths and exact, so that no order of the rows changes them. n^2 d
    multiplications, in blocks."""
    n = len(rows)
    k = min(n_neighbours, n - 1)
    if k < 1:
        return np.zeros(n)
    exact = GridRows(rows)[np.arange(n)]
    means = np.empty(n)
    for start in range(0, n, _BLOCK):
        distances = distance_steps(exact[start : start + _BLOCK] @ exact.T)
        at = np.arange(len(distances))
        distances[at, at + start] = np.inf
        distances.partition(k - 1, axis=1)
        means[start : start + _BLOCK] = distances[:, :k].sum(axis=1)
    return np.asarray(1 - means / (k * STEPS))
