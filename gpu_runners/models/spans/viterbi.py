"""The likeliest sequence of tags (Viterbi over begins, goes on, outside; transitions weigh nothing else). `kolm export`
copies this file beside a span student: it imports nothing but numpy.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

IMPOSSIBLE = np.float32(-1e9)


def likeliest(scores: NDArray[Any], glued: Sequence[bool] = ()) -> NDArray[np.int64]:
    """(n,) the likeliest tags of (n, 1 + 2 m) log-probabilities: 0 outside, 1 + 2 i begins leaf i, 2 + 2 i goes on; a
    glued token neither begins nor ends a value."""
    n, width = scores.shape
    if not n:
        return np.zeros(0, dtype=np.int64)
    total = scores[0].copy()
    total[2::2] = IMPOSSIBLE
    begins, goes_on = np.arange(1, width, 2), np.arange(2, width, 2)
    back = np.empty((n, width), dtype=np.int64)
    for at in range(1, n):
        best = int(total.argmax())
        back[at], following = best, np.full(width, total[best], dtype=total.dtype)
        from_begin = total[begins] >= total[goes_on]
        back[at, goes_on] = np.where(from_begin, begins, goes_on)
        following[goes_on] = np.where(from_begin, total[begins], total[goes_on])
        if glued and glued[at]:
            following[begins] = IMPOSSIBLE
            back[at, 0], following[0] = 0, total[0]
        total = following + scores[at]
    path = np.empty(n, dtype=np.int64)
    path[-1] = total.argmax()
    for at in range(n - 1, 0, -1):
        path[at - 1] = back[at, path[at]]
    return path
