"""Cosine similarities as numbers that compare the same everywhere: multiples of 1e-6.

Re-embedding the same text in another batch moves a float32 cosine by 1.6e-7, another thread count or shape of the
product by up to 5e-7. A decision closer than that cannot be reproduced, so it is made a tie."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.floating[Any]]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

STEPS = 1_000_000  # similarities are multiples of 1e-6
QUANTUM = 1 / STEPS


def quantised_distances(cosines: Rows) -> Floats:
    """1 - cos as a multiple of 1e-6 in [0, 2], float64."""
    return np.clip(np.rint((1.0 - cosines.astype(np.float64)) * STEPS), 0, 2 * STEPS) / STEPS
