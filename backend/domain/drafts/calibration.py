"""The probability that a draft is accepted, by the distance of its slice: learned from verdicts, one curve for each
(tenant, family, teacher, strategy).

A curve is a posterior over a fixed grid of falling sigmoids, a(d) = floor + (ceiling - floor) * s((threshold - d) /
width), so that every estimate falls with the distance. The update is exact Bayes on the grid, with two departures that
are stated here because they are choices: drafts of one source succeed and fail together, so k of them weigh as
k / (1 + (k - 1) * 0.6) independent ones (a design effect); and with every slice the posterior is tempered by 0.3 %
towards the prior, so that a curve follows a tenant who changes.

The prior is flat. One fitted to public data was no better, and one tenant's verdicts never move another's curve.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

GRID_VERSION = 1  # of the numbers below; a state of another version is rebuilt from the verdict log

THRESHOLDS = np.linspace(-0.1, 0.8, 37)
WIDTHS = np.array([0.015, 0.03, 0.06, 0.12, 0.24])
CEILINGS = np.array([0.15, 0.35, 0.55, 0.75, 0.88, 0.97])
FLOOR = 0.02
N_PARTICLES = len(THRESHOLDS) * len(WIDTHS) * len(CEILINGS)

SOURCE_CORRELATION = 0.6
DECAY = 0.003

_HEADER = GRID_VERSION.to_bytes(2, "little")


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """`log_posterior` is (1110,) float32, threshold-major, then width, then ceiling; its exponentials sum to 1.
    `n_observations` counts verdicts."""

    log_posterior: NDArray[np.float32]
    n_observations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCount:
    """The outcome of one source's drafts in one slice. Raises ValueError where that cannot be."""

    distance: float
    n_shown: int
    n_accepted: int

    def __post_init__(self) -> None:
        if not (0 <= self.n_accepted <= self.n_shown and math.isfinite(self.distance)):
            raise ValueError(f"{self.n_accepted} of {self.n_shown} at distance {self.distance} is not a count")


def flat_curve() -> Curve:
    """No verdict yet: every sigmoid of the grid is equally likely."""
    return Curve(log_posterior=np.full(N_PARTICLES, -math.log(N_PARTICLES), dtype=np.float32), n_observations=0)


def predict(curve: Curve, distances: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
    """Posterior mean acceptance at each distance, (m,) in (0, 1); never rises with the distance."""
    weights = np.exp(curve.log_posterior.astype(np.float64)).reshape(-1, len(CEILINGS))
    heights = weights @ (CEILINGS - FLOOR) / weights.sum()
    acceptances: NDArray[np.float64] = FLOOR + _sigmoids(np.asarray(distances, dtype=np.float64)) @ heights
    return acceptances


def update(curve: Curve, counts: Iterable[SourceCount]) -> Curve:
    """The curve after one slice's verdicts. A slice without any only lets it forget."""
    logs = (1 - DECAY) * curve.log_posterior.astype(np.float64)  # the flat prior's share is a constant
    n_verdicts = 0
    for count in counts:
        if count.n_shown:
            logs += _log_likelihood(count)
            n_verdicts += count.n_shown
    logs -= logs.max()
    logs -= math.log(np.exp(logs).sum())
    return Curve(log_posterior=logs.astype(np.float32), n_observations=curve.n_observations + n_verdicts)


def acceptance_after(acceptance: float, n_shown: int, n_accepted: int) -> float:
    """The next draft of a source, of which `n_accepted` of `n_shown` were just accepted in this slice, where the curve
    said `acceptance`: the beta-binomial predictive at the same correlation that weighs the update.

    >>> [round(acceptance_after(0.5, 2, n), 3) for n in (0, 1, 2)]
    [0.125, 0.5, 0.875]
    """
    strength = 1 / SOURCE_CORRELATION - 1
    return (acceptance * strength + n_accepted) / (strength + n_shown)


def distance_at(curve: Curve, acceptance: float) -> float | None:
    """The threshold in force: the largest distance in [0, 2] at which the predicted acceptance is still `acceptance`,
    to 1e-6; None where it is nowhere so high."""
    near, far = 0.0, 2.0
    if predict(curve, [near])[0] < acceptance:
        return None
    if predict(curve, [far])[0] >= acceptance:
        return far
    while far - near > 1e-6:
        middle = (near + far) / 2
        near, far = (middle, far) if predict(curve, [middle])[0] >= acceptance else (near, middle)
    return near


def interval(curve: Curve, distance: float, level: float) -> tuple[float, float]:
    """The central part of the posterior of the acceptance at a distance that holds `level` of it, as far as the grid's
    steps allow."""
    order = np.argsort(accepts := _acceptances(distance))
    cumulated = np.cumsum(np.exp(curve.log_posterior.astype(np.float64))[order])
    tails = np.array([(1 - level) / 2, (1 + level) / 2]) * cumulated[-1]
    low, high = accepts[order][np.minimum(np.searchsorted(cumulated, tails), N_PARTICLES - 1)]
    return float(low), float(high)


def to_bytes(curve: Curve) -> bytes:
    """4,442 bytes: the grid's version and the little-endian posterior; `n_observations` is kept beside."""
    return _HEADER + curve.log_posterior.astype("<f4").tobytes()


def from_bytes(data: bytes, n_observations: int) -> Curve:
    """Raises ValueError for another grid's state, or one that is no posterior."""
    if data[:2] != _HEADER or len(data) != 2 + 4 * N_PARTICLES:
        raise ValueError("this is not a curve of the grid in use")
    logs = np.frombuffer(data, dtype="<f4", offset=2).astype(np.float32)
    if not (logs <= 0).all() or abs(np.exp(logs.astype(np.float64)).sum() - 1) > 1e-3:
        raise ValueError("a curve's state does not sum to one")
    return Curve(log_posterior=logs, n_observations=n_observations)


def _sigmoids(distances: NDArray[np.float64]) -> NDArray[np.float64]:
    """(m, thresholds * widths)."""
    steps = (THRESHOLDS[None, :, None] - distances[:, None, None]) / WIDTHS[None, None, :]
    values: NDArray[np.float64] = 0.5 * (1 + np.tanh(steps / 2))
    return values.reshape(len(distances), -1)


def _acceptances(distance: float) -> NDArray[np.float64]:
    """Every particle's, (1110,)."""
    rising = _sigmoids(np.array([distance]))[0]
    values: NDArray[np.float64] = FLOOR + rising[:, None] * (CEILINGS - FLOOR)[None, :]
    return values.ravel()


def _log_likelihood(count: SourceCount) -> NDArray[np.float64]:
    accepts = _acceptances(count.distance)
    weight = 1 / (1 + (count.n_shown - 1) * SOURCE_CORRELATION)
    n_refused = count.n_shown - count.n_accepted
    values: NDArray[np.float64] = weight * (count.n_accepted * np.log(accepts) + n_refused * np.log1p(-accepts))
    return values
