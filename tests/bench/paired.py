"""Whether one classifier is better than another on the same items: both answered each, so the items that both got right
or both got wrong say nothing."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binomtest

RESAMPLES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`wins`: items that only the first got right, `losses`: only the second. `low`, `high`: bootstrap 95 % interval of
    the difference in accuracy, over items. `p`: exact McNemar, two-sided."""

    n: int
    wins: int
    losses: int
    low: float
    high: float
    p: float

    @property
    def difference(self) -> float:
        return (self.wins - self.losses) / self.n


def compare(first: Sequence[bool], second: Sequence[bool], *, seed: int = 0) -> Comparison:
    """`first` and `second` say of each item whether it was answered rightly.

    >>> compare([True, True, False], [True, False, False]).difference
    0.3333333333333333
    """
    ours, theirs = np.asarray(first, dtype=bool), np.asarray(second, dtype=bool)
    wins, losses = int((ours & ~theirs).sum()), int((~ours & theirs).sum())
    # resampling n items draws these three counts from a multinomial
    shares = np.array([wins, losses, len(ours) - wins - losses]) / len(ours)
    counts = np.random.default_rng(seed).multinomial(len(ours), shares, size=RESAMPLES)
    low, high = np.quantile((counts[:, 0] - counts[:, 1]) / len(ours), [0.025, 0.975])
    p = binomtest(wins, wins + losses).pvalue if wins + losses else 1.0
    return Comparison(n=len(ours), wins=wins, losses=losses, low=float(low), high=float(high), p=float(p))
