"""The line that turns a raw confidence into the share of right answers among answers like it."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_expit, logit

EDGE = 1e-6
PRIOR = 0.5  # weight that pulls the line to the raw confidence itself, in answers
LEAST_SLOPE = 0.05  # a surer answer never becomes a less sure one


def fit_line(raw: Sequence[float], right: Sequence[bool]) -> tuple[float, float]:
    """The slope and offset of the log-odds that make the answers likeliest (Platt 1999, with a normal
    prior around slope 1 and offset 0); (1, 0) without answers.

    >>> from scipy.special import expit
    >>> slope, offset = fit_line([0.99] * 100, [True] * 90 + [False] * 10)
    >>> round(float(expit(slope * logit(0.99) + offset)), 2)
    0.9
    """
    if not len(raw):
        return 1.0, 0.0
    from scipy.optimize import minimize  # at the first use: a web process fits nothing

    x = logit(np.clip(np.asarray(raw, dtype=np.float64), EDGE, 1 - EDGE))
    signs = np.where(np.asarray(right, dtype=bool), 1.0, -1.0)

    def loss(line: NDArray[np.float64]) -> float:
        apart = line - np.array([1.0, 0.0])
        return float(-log_expit(signs * (line[0] * x + line[1])).sum() + PRIOR / 2 * (apart @ apart))

    line = minimize(loss, np.array([1.0, 0.0]), method="L-BFGS-B", bounds=[(LEAST_SLOPE, None), (None, None)]).x
    return float(line[0]), float(line[1])
