"""Multinomial logistic regression on embeddings, with soft targets and example weights: the student that rounds of
labels ask, and the head that an adapter starts from.

The optimum is the one that scikit-learn's multinomial `LogisticRegression` looks for, by a shorter way:

- Centring the rows moves the bias alone, which carries no penalty; turning them into the directions of their covariance
  moves nothing, since the penalty is the same in every direction. Fewer rows than columns have no more directions than
  rows.
- Each direction is divided by the root of about its curvature (a share of Böhning's bound, 1992), so that L-BFGS (Liu &
  Nocedal 1989) has as long a way to go in each.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

MAX_STEPS = 500
TOLERANCE = 5e-8  # of the steepest slope of the mean loss: probabilities are then within 1e-4 of the optimum's
CURVATURE = 0.1  # of Böhning's bound: of 1, .3, .1 and .03 the fewest steps at C = 1 and 10 together
MIN_MASS = 1e-9  # of all targets, below which a label has none
ABSENT = -30.0  # the bias of a label without targets: its probability is below 1e-12
_FLAT = 1e-10  # of the longest direction, below which one is rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearHead:
    """`weight` (L, d) and `bias` (L,); each sums to 0 over the labels that had targets."""

    weight: Floats
    bias: Floats

    def logits(self, rows: Floats) -> Floats:
        """`(n, L)` for `(n, d)` rows."""
        return np.asarray(rows @ self.weight.T + self.bias)

    def probabilities(self, rows: Floats) -> Floats:
        """`(n, L)`, each row summing to 1."""
        logits = self.logits(rows)
        _to_probabilities(logits)
        return logits


def fit_linear_head(
    rows: Floats, targets: Floats, *, weights: Floats | None = None, c: float = 10.0, start: LinearHead | None = None
) -> LinearHead:
    """Return the head that makes c * sum_i w_i * cross-entropy(targets_i, softmax(W x_i + b)) + |W|^2 / 2 least.

    `rows` (n, d); `targets` (n, L), each row summing to 1; `weights` (n,), at least 0, 1 each where None. `start`, a
    head for the same labels, saves steps; the optimum is the same to within the tolerance. A label without targets gets
    weight 0 and probabilities below 1e-12; without any row all labels are equally probable. With two labels this is
    scikit-learn's binary regression at twice the C."""
    n_labels = targets.shape[1]
    amounts = np.ones(len(rows)) if weights is None else np.asarray(weights, dtype=np.float64)
    mass = amounts @ targets
    weight, bias = np.zeros((n_labels, rows.shape[1])), np.zeros(n_labels)
    present = np.flatnonzero(mass > MIN_MASS * mass.sum())
    if len(present):
        bias[np.setdiff1d(np.arange(n_labels), present)] = ABSENT
    if len(present) > 1:
        is_used = amounts > 0
        basis = _Basis(np.asarray(rows[is_used], dtype=np.float64), amounts[is_used] * c, n_labels=len(present))
        point = None if start is None else basis.inside(start.weight[present], start.bias[present])
        best = _Loss(basis, targets[is_used][:, present]).least(point)
        weight[present], bias[present] = basis.outside(best, len(present))
    return LinearHead(weight=weight, bias=bias)


class _Basis:
    """Rows about their mean, in the directions of their covariance, each divided by the root of its curvature."""

    def __init__(self, rows: Floats, amounts: Floats, *, n_labels: int) -> None:
        self.amounts = amounts
        self._mean = amounts @ rows / amounts.sum()
        centred = rows - self._mean
        self._directions, lengths = _directions(centred * np.sqrt(amounts)[:, None])
        curvature = CURVATURE * (1 - 1 / n_labels) / n_labels
        self.scale = 1 / np.sqrt(1 + curvature * lengths)
        self.bias_scale = 1 / np.sqrt(curvature * amounts.sum())
        self.rows = np.ascontiguousarray(centred @ (self._directions * self.scale))

    def inside(self, weight: Floats, bias: Floats) -> Floats:
        scaled = (weight @ self._directions) / self.scale
        return np.concatenate([scaled.ravel(), (bias + weight @ self._mean) / self.bias_scale])

    def outside(self, point: Floats, n_labels: int) -> tuple[Floats, Floats]:
        scaled, shift = self.split(point, n_labels)
        weight = (scaled * self.scale) @ self._directions.T
        bias = shift * self.bias_scale - weight @ self._mean
        return weight - weight.mean(axis=0), bias - bias.mean()

    def split(self, point: Floats, n_labels: int) -> tuple[Floats, Floats]:
        size = n_labels * self.rows.shape[1]
        return point[:size].reshape(n_labels, -1), point[size:]


def _directions(rows: Floats) -> tuple[Floats, Floats]:
    """`(d, r)` orthonormal directions that the rows lie in, and `(r,)` the rows' squared lengths along each."""
    is_wide = len(rows) < rows.shape[1]
    gram = rows @ rows.T if is_wide else rows.T @ rows
    from scipy.linalg import eigh  # at the first use: a web process plans labels and fits nothing

    lengths, vectors = eigh(gram, overwrite_a=True, check_finite=False)
    is_used = lengths > max(_FLAT * lengths[-1], 1e-300)
    lengths, vectors = lengths[is_used], vectors[:, is_used]
    return (rows.T @ (vectors / np.sqrt(lengths)) if is_wide else vectors), lengths


class _Loss:
    def __init__(self, basis: _Basis, targets: Floats) -> None:
        self._basis = basis
        self._targets = targets
        self._sums = targets.sum(axis=1)
        self._total = float(basis.amounts.sum())
        self._pull = basis.scale**2

    def least(self, point: Floats | None) -> Floats:
        options = {"maxiter": MAX_STEPS, "gtol": TOLERANCE, "ftol": 1e-14}
        first = self._constant() if point is None else point
        from scipy.optimize import minimize

        return np.asarray(minimize(self._at, first, jac=True, method="L-BFGS-B", options=options).x)

    def _constant(self) -> Floats:
        """The point that answers every row with the labels' shares."""
        shares = np.log(self._basis.amounts @ self._targets)
        bias = (shares - shares.mean()) / self._basis.bias_scale
        return np.concatenate([np.zeros(len(shares) * self._basis.rows.shape[1]), bias])

    def _at(self, point: Floats) -> tuple[float, Floats]:
        """The loss and its slope, each divided by the sum of the weights."""
        basis, n_labels = self._basis, self._targets.shape[1]
        scaled, shift = basis.split(point, n_labels)
        error = basis.rows @ scaled.T
        error += shift * basis.bias_scale
        own = np.einsum("ij,ij->i", error, self._targets)
        losses = self._sums * _to_probabilities(error) - own
        error *= self._sums[:, None]
        error -= self._targets
        error *= basis.amounts[:, None]
        pulled = scaled * self._pull
        slope = np.empty_like(point)
        to_scaled, to_shift = basis.split(slope, n_labels)
        np.matmul(error.T, basis.rows, out=to_scaled)
        to_scaled += pulled
        to_shift[:] = error.sum(axis=0) * basis.bias_scale
        slope /= self._total
        return (float(basis.amounts @ losses) + float(np.vdot(scaled, pulled)) / 2) / self._total, slope


def _to_probabilities(logits: Floats) -> Floats:
    """Overwrite logits by their softmax; return each row's log of the sum of exponentials."""
    greatest = logits.max(axis=1, keepdims=True)
    logits -= greatest
    np.exp(logits, out=logits)
    sums = logits.sum(axis=1, keepdims=True)
    logits /= sums
    return np.asarray((greatest + np.log(sums))[:, 0])
