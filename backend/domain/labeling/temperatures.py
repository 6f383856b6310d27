"""The temperature of a teacher's scores: log-probs over the labels that are surer than the teacher is right.

A teacher's score of a label is what it gave the label's tokens, log P(label | prompt). Language models that were tuned
to please are over-confident, and an endpoint may tell log-probs of another temperature than it samples at. So scores
are divided by one number, the compile's temperature (Guo et al. 2017), at which they fit best what a student says that
has not seen the row.
"""

import math

import numpy as np

from backend.domain.labeling.linear_head import Floats

TEMPERATURES = (1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0, 11.3)  # never surer than the teacher says
ASSUMED_TEMPERATURE = 2.0  # before rows say otherwise: not measured on a real teacher
ASSUMED_SPREAD = 0.5  # of its logarithm
LEAST_SCORE = math.log(1e-9)


def temper(scores: Floats, temperature: float) -> Floats:
    """`(n, L)` probabilities of `scores` (n, L), log-probs of any sum, at a temperature; a row of NaN stays one."""
    logs = np.maximum(scores, LEAST_SCORE) / temperature
    logs = logs - logs.max(axis=1, keepdims=True)
    shares = np.exp(logs)
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def fit_temperature(scores: Floats, evidence: Floats) -> float:
    """Return the temperature at which `scores` (n, L) make `evidence` likeliest, (n, L) probabilities of each row's
    label by what has not seen the scores: a student, or one-hot where the label is known. Rows of NaN say nothing; few
    rows say little beside ASSUMED_TEMPERATURE."""
    is_scored = ~np.isnan(scores).any(axis=1)
    scores, evidence = scores[is_scored], evidence[is_scored]

    def fit(temperature: float) -> float:
        likelihood = (temper(scores, temperature) * evidence).sum(axis=1)
        apart = math.log(temperature / ASSUMED_TEMPERATURE) / ASSUMED_SPREAD
        return round(float(np.log(np.maximum(likelihood, 1e-12)).sum()) - apart**2 / 2, 9)

    return max(TEMPERATURES, key=lambda temperature: (fit(temperature), temperature))
