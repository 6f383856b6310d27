"""The probability that a draft is accepted, by the distance of its slice and by its kinship: learned from verdicts,
three curves for each (tenant, family, teacher, strategy).

A curve is a posterior over a fixed grid of falling sigmoids, a(d) = floor + (ceiling - floor) * s((threshold - d) /
width), so that every estimate falls with the distance. The update is exact Bayes on the grid, with two departures that
are stated here because they are choices: drafts of one source succeed and fail together, so k of them weigh as
k / (1 + (k - 1) * 0.6) independent ones (a design effect); and with every slice that has verdicts for it a posterior
is tempered by 0.3 % towards its prior, so that a curve follows a tenant who changes.

The judge's priors are fitted to public data (`priors`); a strategy that nobody fitted one to starts flat. One tenant's
verdicts never move another's curves.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backend.domain.drafts.priors import ATOMS, FLAT_SHARE, Atom
from backend.domain.drafts.vocabulary import Kinship

GRID_VERSION = 2  # of the numbers below; a state of another version is rebuilt from the verdict log

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
class Curves:
    """One curve a kinship."""

    slice: Curve
    label: Curve
    other: Curve

    def of(self, kinship: Kinship) -> Curve:
        return {Kinship.SLICE: self.slice, Kinship.LABEL: self.label, Kinship.OTHER: self.other}[kinship]

    @property
    def n_observations(self) -> int:
        return self.slice.n_observations + self.label.n_observations + self.other.n_observations


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCount:
    """The outcome of one source's drafts in one slice. Raises ValueError where that cannot be."""

    distance: float
    n_shown: int
    n_accepted: int
    kinship: Kinship = Kinship.OTHER

    def __post_init__(self) -> None:
        if not (0 <= self.n_accepted <= self.n_shown and math.isfinite(self.distance)):
            raise ValueError(f"{self.n_accepted} of {self.n_shown} at distance {self.distance} is not a count")


def flat_curve() -> Curve:
    """No verdict yet: every sigmoid of the grid is equally likely."""
    return Curve(log_posterior=np.full(N_PARTICLES, -math.log(N_PARTICLES), dtype=np.float32), n_observations=0)


def flat_curves() -> Curves:
    return Curves(slice=flat_curve(), label=flat_curve(), other=flat_curve())


def prior_curves() -> Curves:
    """The judge's curves before the first verdict (`priors`)."""
    return Curves(**{kinship.value: _prior(ATOMS[kinship]) for kinship in Kinship})


def predict(curve: Curve, distances: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
    """Posterior mean acceptance at each distance, (m,) in (0, 1); never rises with the distance."""
    weights = np.exp(curve.log_posterior.astype(np.float64)).reshape(-1, len(CEILINGS))
    heights = weights @ (CEILINGS - FLOOR) / weights.sum()
    acceptances: NDArray[np.float64] = FLOOR + _sigmoids(np.asarray(distances, dtype=np.float64)) @ heights
    return acceptances


def predict_each(curves: Curves, places: Sequence[tuple[Kinship, float]]) -> list[float]:
    """The acceptance that the curves predict at each (kinship, distance)."""
    values = np.zeros(len(places))
    for kinship in {kinship for kinship, _ in places}:
        at = [number for number, place in enumerate(places) if place[0] == kinship]
        values[at] = predict(curves.of(kinship), [places[number][1] for number in at])
    return [float(value) for value in values]


def update(curve: Curve, counts: Iterable[SourceCount], prior: Curve | None = None) -> Curve:
    """The curve after one slice's verdicts; what it forgets leads back to `prior` (None: flat). A slice without any
    only lets it forget."""
    logs = (1 - DECAY) * curve.log_posterior.astype(np.float64)
    if prior is not None:  # the flat one's share is a constant
        logs += DECAY * prior.log_posterior.astype(np.float64)
    n_verdicts = 0
    for count in counts:
        if count.n_shown:
            logs += _log_likelihood(count)
            n_verdicts += count.n_shown
    return Curve(log_posterior=_normalize(logs), n_observations=curve.n_observations + n_verdicts)


def learn_from(curves: Curves, counts: Iterable[SourceCount], prior: Curves) -> Curves:
    """The curves after one slice's verdicts, each updated by those of its kinship. A curve without any stays: what
    verdicts on strangers say is no reason to forget what is known of kin."""
    by_kinship: dict[Kinship, list[SourceCount]] = {kinship: [] for kinship in Kinship}
    for count in counts:
        by_kinship[count.kinship].append(count)
    learnt = {
        kinship.value: update(curves.of(kinship), those, prior.of(kinship)) if those else curves.of(kinship)
        for kinship, those in by_kinship.items()
    }
    return Curves(**learnt)


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


def curves_to_bytes(curves: Curves) -> bytes:
    """13,334 bytes, little-endian: the grid's version (2), the observations of slice, label and other (4 each), and
    their posteriors in that order."""
    parts = [curves.of(kinship) for kinship in Kinship]
    counts = np.array([curve.n_observations for curve in parts], dtype="<u4").tobytes()
    return _HEADER + counts + b"".join(curve.log_posterior.astype("<f4").tobytes() for curve in parts)


def curves_from_bytes(data: bytes) -> Curves:
    """Raises ValueError for another grid's state, or one that is no posterior."""
    n_before = len(_HEADER) + 4 * len(Kinship)
    if data[: len(_HEADER)] != _HEADER or len(data) != n_before + 4 * N_PARTICLES * len(Kinship):
        raise ValueError("these are not curves of the grid in use")
    counts = np.frombuffer(data, dtype="<u4", offset=len(_HEADER), count=len(Kinship))
    rows = np.frombuffer(data, dtype="<f4", offset=n_before).astype(np.float32).reshape(len(Kinship), N_PARTICLES)
    if not (rows <= 0).all() or (abs(np.exp(rows.astype(np.float64)).sum(axis=1) - 1) > 1e-3).any():
        raise ValueError("a curve's state does not sum to one")
    parts = {
        kinship.value: Curve(log_posterior=row, n_observations=int(n))
        for kinship, row, n in zip(Kinship, rows, counts, strict=True)
    }
    return Curves(**parts)


def _prior(atoms: Sequence[Atom]) -> Curve:
    """The atoms' weights at their places of the grid, and a share of the flat curve, so that nothing is impossible."""
    weights = np.full((len(THRESHOLDS), len(WIDTHS), len(CEILINGS)), FLAT_SHARE / N_PARTICLES)
    total = math.fsum(atom.weight for atom in atoms)
    for atom in atoms:
        places = (_place(THRESHOLDS, atom.threshold), _place(WIDTHS, atom.width), _place(CEILINGS, atom.ceiling))
        weights[places] += (1 - FLAT_SHARE) * atom.weight / total
    return Curve(log_posterior=_normalize(np.log(weights.ravel())), n_observations=0)


def _place(axis: NDArray[np.float64], value: float) -> int:
    return int(abs(axis - value).argmin())


def _normalize(logs: NDArray[np.float64]) -> NDArray[np.float32]:
    logs = logs - logs.max()
    return (logs - math.log(np.exp(logs).sum())).astype(np.float32)


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
