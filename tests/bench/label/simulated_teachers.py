"""Teachers with errors that are known, for what cannot be measured with a right recording: how often to ask.

An answer is wrong with a rate that the kind decides, towards the class that a classifier on the whole training side
takes the row for most, beside the right one. `iid`: the same rate on every row, drawn anew for each answer; `hard`: a
rate that rises with the classifier's doubt about the row, its mean the same; `repeating`: wrong on the same rows
whenever they are asked about; `bent`: all errors on half of the classes.
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
