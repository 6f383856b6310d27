"""The two directions in which a table of rows varies most."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

Floats = NDArray[np.float64]
Rows = NDArray[np.floating[Any]]

_BLOCK = 4_096


def principal_plane(rows: Rows) -> tuple[Floats, Floats]:
    """(n, 2) coordinates on the first two principal components, and the (2,) shares of the variance that they hold (0
    where there is none). The sign of a component is that of its largest loading, so the picture does not flip between
    runs. O(n d min(n, d)) time and no second copy of the rows."""
    n, d = rows.shape
    plane, shares = np.zeros((n, 2)), np.zeros(2)
    if n < 2 or d == 0:
        return plane, shares
    centre = rows.mean(axis=0, dtype=np.float64).astype(rows.dtype)
    blocks = [slice(start, start + _BLOCK) for start in range(0, n, _BLOCK)]
    if n <= d:
        centred = rows - centre
        square = centred @ centred.T
    else:
        square = np.zeros((d, d))
        for block in blocks:
            centred = rows[block] - centre
            square += centred.T @ centred
    total, size = float(np.trace(square)), len(square)
    if total <= 1e-12 * n:
        return plane, shares
    values, vectors = eigh(square, subset_by_index=[max(0, size - 2), size - 1])
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    loadings = (rows - centre).T @ vectors if n <= d else vectors
    signs = np.sign(loadings[np.abs(loadings).argmax(axis=0), np.arange(loadings.shape[1])])
    n_axes = values.shape[0]
    if n <= d:
        plane[:, :n_axes] = vectors * np.sqrt(values) * signs
    else:
        for block in blocks:
            plane[block, :n_axes] = (rows[block] - centre) @ (vectors * signs)
    shares[:n_axes] = values / total
    return plane, shares
