"""One temperature that makes softmax confidences mean what they say (Guo et al. 2017, "On Calibration of Modern Neural
Networks")."""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

LOWEST, HIGHEST = 0.25, 4.0
SPREAD = 0.25  # of log T before any evidence: a net trained on cross-entropy needs a factor within about [0.6, 1.6]


def fit_temperature(logits: NDArray[np.float64], labels: NDArray[np.int64]) -> tuple[float, float]:
    """(temperature rounded to 1e-6, mean negative log-likelihood at it) for (n, L) logits and (n,) labels.

    Maximum a posteriori with log T ~ Normal(0, 0.25): some twenty validation pairs, on which often nothing is wrong,
    would otherwise pull T to certainty or to doubt; a thousand outweigh the prior.
    """
    rows = np.arange(len(labels))

    def loss(log_t: float) -> float:
        return float(-log_softmax(logits / np.exp(log_t), axis=1)[rows, labels].mean())

    def with_prior(log_t: float) -> float:
        return loss(log_t) + (log_t / SPREAD) ** 2 / 2 / len(labels)

    best = minimize_scalar(
        with_prior, bounds=(np.log(LOWEST), np.log(HIGHEST)), method="bounded", options={"xatol": 1e-5}
    )
    return round(float(np.exp(best.x)), 6), loss(best.x)


def held_answers(logits: NDArray[np.float64], labels: NDArray[np.int64]) -> tuple[list[int], list[bool]]:
    """The confidence of each answer, in ppm, and whether it is right, for calibrated (n, L) logits and (n,) labels."""
    confidences = np.exp(log_softmax(logits, axis=1).max(axis=1))
    right = logits.argmax(axis=1) == labels
    return [round(float(value) * 1_000_000) for value in confidences], [bool(value) for value in right]
