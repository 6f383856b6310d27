"""Teachers with errors that are known, for what cannot be measured with a right recording: how often to ask.

An answer is wrong with a rate that the kind decides, towards the class that a classifier on the whole training side
takes the row for most, beside the right one. `iid`: the same rate on every row, drawn anew for each answer; `hard`: a
rate that rises with the classifier's doubt about the row, its mean the same; `repeating`: wrong on the same rows
whenever they are asked about; `bent`: all errors on half of the classes.

Three kinds tell log-probs besides, which are OVER times too sure. `sure`: each row has a first label, right as often as
the teacher's true confidence in it says, which falls with difficulty; answers are drawn from what the log-probs say,
so that errors repeat themselves. `drawn`: errors as `hard`, drawn anew, and the log-probs are of the rates. `blind`:
wrong as `sure`, and its log-probs say nothing of where, nor of the right label.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

from tests.bench.label.sets import LabelSet

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
KINDS = ("clean", "iid", "hard", "repeating", "bent")
SCORED_KINDS = ("sure", "drawn", "blind")
OVER = 2.0  # what the logits are multiplied by
SPREAD = 0.7  # of the logit of a teacher's confidence around what difficulty says
LEAST_SHARE = 1e-4  # of the probability, over all labels alike


@dataclass(frozen=True, slots=True, kw_only=True)
class Difficulty:
    """Out-of-fold doubt of a classifier about every training row, and the class it confuses it with most."""

    doubt: Floats
    confused: Ints


def difficulty(data: LabelSet) -> Difficulty:
    rows, labels = data.rows[: data.n_train], data.labels[: data.n_train]
    model = LogisticRegression(C=10.0, max_iter=200)
    shares = np.asarray(cross_val_predict(model, rows, labels, cv=3, method="predict_proba"), dtype=np.float64)
    at = np.arange(len(labels))
    right = shares[at, labels].copy()
    shares[at, labels] = -1.0
    return Difficulty(doubt=1.0 - right, confused=shares.argmax(axis=1).astype(np.int64))


class SimulatedTeacher:
    """Answers rows of a pool, one answer a call; the n-th answer about a row is always the same."""

    def __init__(self, truth: Ints, known: Difficulty, kind: str, rate: float, *, seed: int, most: int = 12) -> None:
        rng = np.random.default_rng([seed, 5])
        n = len(truth)
        rates = np.full(n, rate)
        if kind == "clean":
            rates = np.zeros(n)
        elif kind == "hard":
            rates = np.minimum(0.95, known.doubt * rate / max(known.doubt.mean(), 1e-9))
        elif kind == "bent":
            names = np.unique(truth)
            bent = np.isin(truth, rng.permutation(names)[: max(1, len(names) // 2)])
            rates = np.where(bent, np.minimum(0.95, rate / max(bent.mean(), 1e-9)), 0.0)
        draws = rng.random((n, 1)) if kind == "repeating" else rng.random((n, most))
        is_wrong = np.broadcast_to(draws < rates[:, None], (n, most))
        self._answers = np.where(is_wrong, known.confused[:, None], truth[:, None])
        self.n_asked = np.zeros(n, dtype=np.int64)

    def ask(self, rows: Sequence[int] | Ints) -> Ints:
        """One more answer about each row."""
        at = np.asarray(rows, dtype=np.int64)
        answers = self._answers[at, self.n_asked[at]]
        np.add.at(self.n_asked, at, 1)
        return np.asarray(answers, dtype=np.int64)


class ScoringTeacher(SimulatedTeacher):
    """A teacher that tells log-probs: `scores` (n, L), each row those of one answer."""

    def __init__(
        self, truth: Ints, known: Difficulty, kind: str, rate: float, *, n_labels: int, seed: int, most: int = 12
    ) -> None:
        rng = np.random.default_rng([seed, 5])
        n = len(truth)
        rates = np.clip(known.doubt * rate / max(known.doubt.mean(), 1e-9), 1e-3, 0.95)
        first, second, sure = truth, known.confused, 1 - rates
        if kind != "drawn":
            sure = _calibrated(rates, rate, rng)
            is_wrong = rng.random(n) < 1 - sure
            first, second = np.where(is_wrong, known.confused, truth), np.where(is_wrong, truth, known.confused)
        if kind == "blind":
            sure, second = rng.permutation(sure), (first + rng.integers(1, n_labels, n)) % n_labels
        right = _two_labels(first, second, sure, n_labels)
        told = right**OVER / (right**OVER).sum(axis=1, keepdims=True)
        self.scores = np.log(told)
        drawn_from = right if kind == "drawn" else told
        draws = rng.random((n, most, 1)) > drawn_from.cumsum(axis=1)[:, None, :]
        self._answers = np.minimum(draws.sum(axis=2), n_labels - 1)
        self.n_asked = np.zeros(n, dtype=np.int64)


def _calibrated(rates: Floats, rate: float, rng: np.random.Generator) -> Floats:
    """`(n,)` the teacher's confidence in its first label, 0.5 to 1, in the mean 1 - `rate`."""
    sure = np.maximum(1 - rates, 0.5)
    logits = np.abs(np.log(sure / (1 - sure)) + rng.normal(0, SPREAD, len(rates)))
    low, high = 0.0, 64.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if (1 / (1 + np.exp(logits * middle))).mean() > rate else (low, middle)
    return np.asarray(1 / (1 + np.exp(-logits * low)))


def _two_labels(first: Ints, second: Ints, sure: Floats, n_labels: int) -> Floats:
    at = np.arange(len(first))
    shares = np.full((len(first), n_labels), LEAST_SHARE / n_labels)
    shares[at, first] += (1 - LEAST_SHARE) * sure
    shares[at, second] += (1 - LEAST_SHARE) * (1 - sure)
    return shares
