"""A month's forecast: what use will come to by its end, from the month's own days. Simple on purpose, and silent
where it would only guess.

    expected = what was used up to now, or the whole days' sum + mean of a whole day x days left, whichever is more
    interval = expected +- t(0.9, d - 1) x s x sqrt(r + r^2 / d)

with d whole days, s their standard deviation (n - 1) and r days left, today counted as one of them. The root is that of
a sum of r further days around a mean that is itself estimated from d. It takes days for alike and independent: a week's
rhythm, growth, or a large compile that is planned are not in it. Under `LEAST_DAYS` whole days it is too early to say.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from scipy.special import stdtrit

LEAST_DAYS = 5
LEAST_USED_DAYS = 2
COVERAGE = 0.8  # of the interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Micro-USD of use at the end of the month. `expected`, `low` and `high` are None where it is too early to say, for
    the reason in `why`."""

    so_far_microusd: int
    n_whole_days: int
    n_days: int
    expected_microusd: int | None = None
    low_microusd: int | None = None
    high_microusd: int | None = None
    why: str = ""

    @property
    def is_known(self) -> bool:
        return self.expected_microusd is not None


def forecast(whole_days: Sequence[int], today: int, *, n_days: int) -> Forecast:
    """The forecast of a month of `n_days` from the micro-USD of each whole day of it that is over, days without use
    among them, and of today until now.

    >>> forecast([100] * 10, 40, n_days=30).expected_microusd
    3000
    >>> forecast([100] * 4, 40, n_days=30).why
    'too early to say: 4 of 5 whole days are over'
    """
    so_far, d, r = sum(whole_days) + today, len(whole_days), n_days - len(whole_days)
    why = _why_unknown(whole_days)
    if why:
        return Forecast(so_far_microusd=so_far, n_whole_days=d, n_days=n_days, why=why)
    mean, spread = fmean(whole_days), stdev(whole_days)
    expected = max(so_far, sum(whole_days) + round(mean * r))
    reach = float(stdtrit(d - 1, (1 + COVERAGE) / 2)) * spread * math.sqrt(r + r * r / d)
    return Forecast(
        so_far_microusd=so_far,
        n_whole_days=d,
        n_days=n_days,
        expected_microusd=expected,
        low_microusd=max(so_far, round(expected - reach)),
        high_microusd=max(so_far, round(expected + reach)),
    )


def _why_unknown(whole_days: Sequence[int]) -> str:
    if len(whole_days) < LEAST_DAYS:
        return f"too early to say: {len(whole_days)} of {LEAST_DAYS} whole days are over"
    n_used = sum(1 for used in whole_days if used > 0)
    if n_used < LEAST_USED_DAYS:
        return f"too early to say: something was used on {n_used} of {LEAST_USED_DAYS} days at least"
    return ""
