"""Drift of a served artifact: does it still agree with its teacher on live traffic as it did on the held-out gold?

Shadow answers come one by one and are looked at after each, so the test must hold at every moment
(`confidence_sequences`). The hypothesis is "the mean agreement is at least the held-out accuracy less a margin"; it is
refuted when an e-process against it reaches 1 / alpha, which under the hypothesis ever happens with probability at most
alpha.

Agreements are numbers between 0 and 1 (a field F1 is not just right or wrong). The likelihood ratio of
`confidence_sequences` is Bernoulli's with the sum in the place of the count; for an x in [0, 1] its factor r^x s^(1-x)
is at most x r + (1-x) s (weighted means), so its expectation is at most that of a Bernoulli variable of the same mean,
and the bound stays.
"""

import math
from dataclasses import dataclass

from backend.domain.confidence_sequences import log_e_below

PPM = 1_000_000
MIN_COMPARED = 20  # fewer say nothing to a person, whatever the statistic says


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftRule:
    """`heldout_ppm` is the artifact's accuracy on the held-out gold; a mean agreement below it by more than
    `margin_ppm` is a regression. `alpha_ppm` is the share of healthy revisions for which that is ever said."""

    heldout_ppm: int
    margin_ppm: int
    alpha_ppm: int

    @property
    def floor(self) -> float:
        """The least mean agreement that is no regression, inside (0, 1)."""
        return min(0.999, max(0.001, (self.heldout_ppm - self.margin_ppm) / PPM))


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """The state of the evidence: `log_e` against `needed`, both natural logs."""

    n: int
    agreement_ppm: int | None
    floor_ppm: int
    log_e: float
    needed: float

    @property
    def is_regression(self) -> bool:
        return self.n >= MIN_COMPARED and self.log_e >= self.needed


def drift(n: int, agreement_sum_ppm: int, rule: DriftRule) -> Drift:
    """The state after `n` comparisons whose agreements sum to `agreement_sum_ppm`.

    >>> rule = DriftRule(heldout_ppm=950_000, margin_ppm=50_000, alpha_ppm=10_000)
    >>> drift(100, 93_000_000, rule).is_regression, drift(100, 70_000_000, rule).is_regression
    (False, True)
    """
    total = min(float(n), max(0.0, agreement_sum_ppm / PPM))
    return Drift(
        n=n,
        agreement_ppm=round(agreement_sum_ppm / n) if n else None,
        floor_ppm=round(rule.floor * PPM),
        log_e=log_e_below(total, n, rule.floor) if n else 0.0,
        needed=-math.log(rule.alpha_ppm / PPM),
    )
