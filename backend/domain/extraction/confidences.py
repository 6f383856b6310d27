"""The line that turns a raw confidence into the share of right answers among answers like it."""

from collections.abc import Sequence

import numpy as np
from scipy.special import expit, logit

EDGE = 1e-6
PRIOR = 0.5  # weight that pulls the line to the raw confidence itself, in answers
STEPS = 50
LEAST_SLOPE = 0.05  # a surer answer never becomes a less sure one


def fit_line(raw: Sequence[float], right: Sequence[bool]) -> tuple[float, float]:
    """The slope and offset of the log-odds that make the answers likeliest (Platt 1999, by Newton's method, with a
    normal prior around slope 1 and offset 0); (1, 0) without answers.

    >>> slope, offset = fit_line([0.99] * 100, [True] * 90 + [False] * 10)
    >>> round(float(expit(slope * logit(0.99) + offset)), 2)
    0.9
    """
    if not len(raw):
        return 1.0, 0.0
    x = logit(np.clip(np.asarray(raw, dtype=np.float64), EDGE, 1 - EDGE))
    y = np.asarray(right, dtype=np.float64)
    line, rows = np.array([1.0, 0.0]), np.stack([x, np.ones_like(x)], axis=1)
    for _ in range(STEPS):
        p = expit(rows @ line)
        gradient = rows.T @ (p - y) + PRIOR * (line - [1.0, 0.0])
        curvature = (rows * (p * (1 - p))[:, None]).T @ rows + PRIOR * np.eye(2)
        step = np.linalg.solve(curvature, gradient)
        line = line - step * min(1.0, 2.0 / max(1e-9, float(np.abs(step).max())))
        if float(np.abs(step).max()) < 1e-9:
            break
    return max(LEAST_SLOPE, float(line[0])), float(line[1])
