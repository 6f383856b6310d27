"""Confidences that mean what they say: one temperature, how far they are from the truth, and a threshold below which an
answer is not worth giving.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

LOWEST, HIGHEST = 0.25, 8.0
# of log T before any evidence; above what is expected wider, by 40 answers over those there are, and 1 at most:
# measured in docs/benchmarks/label.md, "How sure"
SPREAD, FEW_ANSWERS = 0.25, 40
COVERAGES = 20  # thresholds that are tried, by the share of answers above them


def fit_temperature(
    logits: Floats, targets: Floats, *, weights: Floats | None = None, expected: float = 1.0
) -> tuple[float, float]:
    """(temperature rounded to 1e-6, mean negative log-likelihood at it) for (n, L) logits and (n, L) targets whose rows
    sum to 1; `weights` (n,) or all alike (Guo et al. 2017, "On Calibration of Modern Neural Networks").

    Maximum a posteriori, log T split normal about log `expected`: narrow below, where twenty pairs of which none is
    wrong would pull T to certainty; above wide for few answers, where a fit may need a factor of seven, and narrow for
    many, most of which are of pairs that were chosen for being hard.
    """
    from scipy.optimize import minimize_scalar  # at the first use: a web process reads figures and fits nothing
    from scipy.special import log_softmax

    amounts = np.ones(len(logits)) if weights is None else weights
    above = min(1.0, max(SPREAD, FEW_ANSWERS / len(logits)))

    def loss(log_t: float) -> float:
        each: Floats = -(log_softmax(logits / np.exp(log_t), axis=1) * targets).sum(axis=1)
        return float(amounts @ each / amounts.sum())

    def with_prior(log_t: float) -> float:
        apart = log_t - np.log(expected)
        return loss(log_t) + float((apart / (above if apart > 0 else SPREAD)) ** 2) / 2 / len(logits)

    best = minimize_scalar(
        with_prior, bounds=(np.log(LOWEST), np.log(HIGHEST)), method="bounded", options={"xatol": 1e-5}
    )
    return round(float(np.exp(best.x)), 6), loss(best.x)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bins:
    """Bins of as many answers each: `share` of all, mean `confidence`, `accuracy`, and the `error` of that."""

    share: Floats
    confidence: Floats
    accuracy: Floats
    error: Floats


def ece(confidences: Floats, right: Flags, bins: int = 15, debias: bool = True) -> float:
    """The expected calibration error: the mean distance between confidence and accuracy over `bins` bins of as many
    answers each (Naeini et al. 2015; equal mass as in Nguyen & O'Connor 2015), in [0, 1].

    Bins of few answers miss their confidence by chance, and the plain figure counts that: a perfectly calibrated model
    with 77 % of 1,200 answers right has about .035. `debias` takes off what resampling from the bins' own accuracies
    adds (Kumar, Liang & Ma 2019, "Verified Uncertainty Calibration"; their normal approximation, in closed form): about
    half of that chance error stays. Raises ValueError without answers."""
    if not len(confidences):
        raise ValueError("There is no answer to measure.")
    from scipy.stats import norm

    b = _bins(confidences, right, bins)
    gap = np.abs(b.accuracy - b.confidence)
    plain = float(b.share @ gap)
    if not debias:
        return plain
    safe = np.maximum(b.error, 1e-12)
    folded = safe * np.sqrt(2 / np.pi) * np.exp(-((gap / safe) ** 2) / 2) + gap * (1 - 2 * norm.cdf(-gap / safe))
    return max(0.0, 2 * plain - float(b.share @ folded))


def _bins(confidences: Floats, right: Flags, n: int) -> _Bins:
    order = np.argsort(confidences, kind="stable")
    parts = [part for part in np.array_split(order, n) if len(part)]
    sizes = np.array([len(part) for part in parts], dtype=np.float64)
    accuracy = np.array([right[part].mean() for part in parts])
    return _Bins(
        share=sizes / sizes.sum(),
        confidence=np.array([confidences[part].mean() for part in parts]),
        accuracy=accuracy,
        error=np.sqrt(accuracy * (1 - accuracy) / sizes),
    )


def threshold_for(confidences: Floats, right: Flags, target: float, delta: float) -> float | None:
    """The lowest threshold such that answers at or above it are right with probability `target` at least; None where
    no threshold can be shown to be so. With probability 1 - `delta` over the answers here, which must be honest ones
    (not trained on, drawn as those to come), the promise holds.

    Exact binomial bounds (Clopper & Pearson 1934) on shares of the surest answers, tried from the smallest share that
    could pass up to all of them until one fails: a fixed sequence needs no correction for the number of tries
    (selective classification: Geifman & El-Yaniv 2017; fixed sequence: Angelopoulos et al. 2021)."""
    from scipy.stats import beta

    order = np.argsort(-confidences, kind="stable")
    correct = np.cumsum(right[order])
    threshold = None
    for n in _sizes(confidences[order], target, delta):
        hits = int(correct[n - 1])
        if float(beta.ppf(delta, hits, n - hits + 1)) < target if hits else True:
            break
        threshold = float(confidences[order[n - 1]])
    return threshold


def _sizes(descending: Floats, target: float, delta: float) -> list[int]:
    """Numbers of surest answers, ties whole, large enough that all right would pass."""
    n, fewest = len(descending), int(np.ceil(np.log(delta) / np.log(target))) if target < 1 else len(descending) + 1
    wanted = {max(fewest, -(-n * share // COVERAGES)) for share in range(1, COVERAGES + 1)}
    ends = {int(np.searchsorted(-descending, -descending[size - 1], side="right")) for size in wanted if size <= n}
    return sorted(ends)
