"""The learning curve of a compile's own labels: how many points of accuracy more rows are likely to bring.

    error(n) = a + b n^-c        the power law of learning curves (Hestness et al. 2017), c in [0.2, 1.5]

Log-loss and error share the exponent: the log-loss says it with less noise. What is predicted is the difference of two
places of one curve, in which the bias of rows that were chosen for being hard mostly cancels.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from backend.domain.labeling.folds import cross_predict
from backend.domain.labeling.linear_head import Floats, Ints

PPM = 1_000_000
SHARES = (0.25, 0.5, 0.75, 1.0)
CURVE_C = 10.0  # of the heads on the curve: that of the student
EXPONENTS = np.linspace(0.2, 1.5, 14)
USUAL_EXPONENT = 0.5  # where points of one n say nothing of it
N_DRAWS = 200
OWN_NOISE = 0.5  # of a point's variance that it does not share with others on the same rows; .2 to 1.8 on BANKING77
LOW, HIGH = 0.05, 0.95  # quantiles of a gain's draws: the true one was between them in 59 to 89 %
LEAST_LOSS = 1e-6  # of a probability, so that one sure mistake is not everything


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """The mean log-loss and the accuracy, in [0, 1], of heads that learned from `n` rows, measured out of fold on
    `n_rows`."""

    n: int
    loss: float
    accuracy: float
    n_rows: int


def point_facts(points: Sequence[CurvePoint]) -> list[dict[str, int]]:
    """The points as they are kept: whole numbers, shares in ppm."""
    return [
        {
            "n": point.n,
            "n_rows": point.n_rows,
            "accuracy_ppm": round(point.accuracy * PPM),
            "loss_ppm": round(point.loss * PPM),
        }
        for point in points
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """`fit` (3,) is a, b and c of the error; `draws` (N_DRAWS, 3) are those of curves that the points allow as well."""

    fit: Floats
    draws: Floats

    def error(self, n: float) -> float:
        """The expected share of wrong answers after n rows."""
        a, b, c = self.fit.tolist()
        return float(a + b * max(n, 1.0) ** -c)

    def gain(self, n: int, more: int) -> tuple[float, float, float]:
        """Return what `more` rows after n bring, in points of accuracy and at least 0: a lower bound, the expectation,
        an upper bound."""
        here, there = float(max(n, 1)), float(max(n, 1) + max(more, 0))
        _, b, c = np.vstack([self.fit, self.draws]).T
        gains = 100 * b * (here**-c - there**-c)
        expected = float(gains[0])
        low, high = np.quantile(gains[1:], [LOW, HIGH]).tolist()
        return min(low, expected), expected, max(high, expected)


def curve_points(
    rows: Floats,
    targets: Floats,
    folds: Ints,
    *,
    weights: Floats | None = None,
    shares: Sequence[float] = SHARES,
) -> list[CurvePoint]:
    """Return a point for each share of the training sides: heads of all folds, each measured on its whole fold.

    Arguments as of `cross_predict`. Smaller shares are parts of larger ones; which rows they have is decided by the
    rows' numbers, not by their order. A share that leaves no row is left out."""
    amounts = np.ones(len(rows)) if weights is None else np.asarray(weights, dtype=np.float64)
    places = np.array([_place(row) for row in rows])
    points = []
    for share in sorted(shares):
        thinned = np.where(places <= share, amounts, 0.0)
        predicted, n = _predict(rows, targets, folds, thinned)
        if n > 0 and amounts.sum() > 0:
            logs = np.log(np.maximum(predicted, LEAST_LOSS))
            right = targets[np.arange(len(rows)), predicted.argmax(axis=1)]
            points.append(
                CurvePoint(
                    n=n,
                    loss=float(-(amounts @ (targets * logs).sum(axis=1)) / amounts.sum()),
                    accuracy=float(amounts @ right / amounts.sum()),
                    n_rows=int((amounts > 0).sum()),
                )
            )
    return points


def _place(row: Floats) -> float:
    digest = hashlib.blake2b(np.ascontiguousarray(row).tobytes(), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64


def _predict(rows: Floats, targets: Floats, folds: Ints, weights: Floats) -> tuple[Floats, int]:
    """The out-of-fold probabilities, and how many rows a head learned from on average."""
    sizes = [int((weights[folds != fold] > 0).sum()) for fold in np.unique(folds)]
    n = round(sum(sizes) / len(sizes)) if sizes else 0
    return cross_predict(rows, targets, folds, weights=weights, c=CURVE_C), n


def fit_curve(points: Sequence[CurvePoint]) -> Curve:
    """Return the curve of these points, each weighing as many rows as it was measured on. Points of one n alone are
    taken for a power law to no error at the usual exponent, and its draws for every exponent; without a point it comes
    from one wrong answer after one row."""
    if not points:
        return _from_one_place(1.0, 1.0)
    n = np.array([max(point.n, 1) for point in points], dtype=np.float64)
    n_rows = np.array([max(point.n_rows, 1) for point in points], dtype=np.float64)
    measured = np.array([[1 - point.accuracy, point.loss] for point in points])
    if len(np.unique(n)) < 2:
        return _from_one_place(n[0], float(n_rows @ measured[:, 0] / n_rows.sum()))
    # of a share of wrong answers p (1 - p); a log-loss spreads about as much as it is high; both at least as of one row
    spread = np.stack([np.sqrt(np.maximum(measured[:, 0] * (1 - measured[:, 0]), 1 / n_rows)), measured[:, 1]], axis=1)
    spread *= np.sqrt(OWN_NOISE / n_rows)[:, None]
    noise = np.random.default_rng(0).standard_normal((N_DRAWS, len(n), 1))  # what is wrong has a high loss: one noise
    fits = _fits(n, n_rows, np.concatenate([measured[None], measured + spread * noise]), measured.mean(axis=0))
    return Curve(fit=fits[0], draws=fits[1:])


def _from_one_place(n: float, error: float) -> Curve:
    def through(exponent: float) -> list[float]:
        return [0.0, error * n**exponent, exponent]

    exponents = np.linspace(EXPONENTS[0], EXPONENTS[-1], N_DRAWS).tolist()
    return Curve(fit=np.array(through(USUAL_EXPONENT)), draws=np.array([through(c) for c in exponents]))


def _fits(n: Floats, n_rows: Floats, values: Floats, scale: Floats) -> Floats:
    """`(m, 3)` a, b and c of the error for `values` (m, points, 2) of error and log-loss, at the exponent that fits
    both best, each in parts of its `scale` (2,)."""
    by_exponent = [_least_squares(n**-exponent, n_rows / n_rows.sum(), values) for exponent in EXPONENTS]
    misfits = np.stack([misfit @ np.maximum(scale, 1e-9) ** -2.0 for _, misfit in by_exponent])
    best = misfits.argmin(axis=0)
    lines = np.stack([line[:, :, 0] for line, _ in by_exponent])[best, np.arange(len(values))]
    return np.concatenate([lines, EXPONENTS[best][:, None]], axis=1)


def _least_squares(powers: Floats, shares: Floats, values: Floats) -> tuple[Floats, Floats]:
    """`(m, 2, 2)` a and b of a + b * powers, neither below 0, for each of m and 2 series, and `(m, 2)` their mean
    squared errors."""
    centre = float(shares @ powers)
    means = np.einsum("p,mps->ms", shares, values)
    slopes = np.einsum("p,mps->ms", shares * (powers - centre), values) / float(shares @ (powers - centre) ** 2)
    b = np.maximum(slopes, 0.0)
    is_below = means < b * centre
    through_zero = np.maximum(np.einsum("p,mps->ms", shares * powers, values), 0.0) / float(shares @ powers**2)
    b = np.where(is_below, through_zero, b)
    a = np.where(is_below, 0.0, means - b * centre)
    misfits = (a[:, None] + b[:, None] * powers[:, None] - values) ** 2
    return np.stack([a, b], axis=1), np.einsum("p,mps->ms", shares, misfits)
