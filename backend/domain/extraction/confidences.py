"""The line that turns a raw confidence into the share of right answers among answers like it."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_expit, logit

EDGE = 1e-6
# what pulls the line to the raw confidence: where nearly all answers are right, their own slope says nothing
PRIOR_SLOPE, PRIOR_OFFSET = 10.0, 0.5
LEAST_SLOPE = 0.25  # a surer answer never becomes a less sure one


def fit_line(raw: Sequence[float], right: Sequence[bool]) -> tuple[float, float]:
    """The slope and offset of the log-odds that make the answers likeliest (Platt 1999, with a normal
    prior around slope 1 and offset 0); (1, 0) without answers.

    >>> from scipy.special import expit
    >>> slope, offset = fit_line([0.99] * 1000, [True] * 900 + [False] * 100)
    >>> round(float(expit(slope * logit(0.99) + offset)), 2)
    0.9
    """
    if not len(raw):
        return 1.0, 0.0
    from scipy.optimize import minimize  # at the first use: a web process fits nothing

    x = logit(np.clip(np.asarray(raw, dtype=np.float64), EDGE, 1 - EDGE))
    signs = np.where(np.asarray(right, dtype=bool), 1.0, -1.0)

    def loss(line: NDArray[np.float64]) -> float:
        apart = PRIOR_SLOPE * (line[0] - 1.0) ** 2 + PRIOR_OFFSET * line[1] ** 2
        return float(-log_expit(signs * (line[0] * x + line[1])).sum() + apart / 2)

    line = minimize(loss, np.array([1.0, 0.0]), method="L-BFGS-B", bounds=[(LEAST_SLOPE, None), (None, None)]).x
    return float(line[0]), float(line[1])
