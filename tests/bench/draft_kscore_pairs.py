"""What the paired experiment measured, and what the differences warm - cold say, seed by seed."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np
from scipy.stats import binomtest, t

from backend.domain.evaluation.classification import PPM
from backend.domain.evaluation.kscore import k_score
from backend.domain.evaluation.own_time import Clock, OwnTime, Unit

COLD, JUDGE, LOGPROBS, REPEAT = "cold", "judge", "logprobs", "repeat"
COLD_FIXED, PICKS = "cold_fixed", "picks"
WARM = (JUDGE, PICKS, LOGPROBS, REPEAT)
BASE = {JUDGE: COLD, PICKS: COLD_FIXED, LOGPROBS: COLD, REPEAT: COLD}
RESAMPLES = 10_000
UNITS_MILLI = 1000  # of an answer, one
POWER = 0.8
Value = Callable[["Measured"], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One compile. `from_drafts` counts candidates of the pool by certificate, `trained_from_drafts` those of them that
    became training pairs, `slices` slices by what was done about drafts, `warnings` the compile's by code. `saving` is
    the receipt's account of the drafts, micro-USD."""

    arm: str
    seed: int
    k_score_ppm: int
    size_bytes: int
    p50_us: int
    cost_nanousd: int
    n_heldout: int
    n_answered: int
    n_correct: int
    n_pool: int
    n_trained: int
    from_drafts: Mapping[str, int]
    trained_from_drafts: Mapping[str, int]
    n_offered: int
    n_accepted: int
    synthesis_microusd: int
    labeling_microusd: int
    saving: Mapping[str, int]
    slices: Mapping[str, int]
    warnings: Mapping[str, int]

    @property
    def accuracy(self) -> float:
        return self.n_correct / self.n_heldout

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """Differences of pairs. `low`, `high`: paired-t 95 % interval of the mean; `boot_low`, `boot_high`: bootstrap over
    pairs; `sign_p`: exact two-sided sign test, ties left out; `detectable`: the true mean difference that a paired t
    test at 5 % (two-sided) of this many pairs with this spread finds four times in five."""

    n: int
    mean: float
    sd: float
    low: float
    high: float
    boot_low: float
    boot_high: float
    wins: int
    losses: int
    sign_p: float
    detectable: float

    @property
    def is_below_noise(self) -> bool:
        """Below zero by more than chance explains."""
        return self.high < 0


def paired(differences: Sequence[float]) -> Paired:
    """Of at least two differences, warm - cold.

    >>> round(paired([1.0, 2.0, 3.0]).low, 3), paired([1.0, 2.0, 3.0]).wins
    (-0.484, 3)
    """
    values = np.asarray(differences, dtype=np.float64)
    n, centre, sd = len(values), float(values.mean()), float(values.std(ddof=1))
    error, quantile = sd / math.sqrt(n), float(t.ppf(0.975, n - 1))
    drawn = np.random.default_rng(0).choice(values, size=(RESAMPLES, n)).mean(axis=1)
    boot_low, boot_high = np.quantile(drawn, [0.025, 0.975])
    wins, losses = int((values > 0).sum()), int((values < 0).sum())
    return Paired(
        n=n,
        mean=centre,
        sd=sd,
        low=centre - quantile * error,
        high=centre + quantile * error,
        boot_low=float(boot_low),
        boot_high=float(boot_high),
        wins=wins,
        losses=losses,
        sign_p=float(binomtest(wins, wins + losses).pvalue) if wins + losses else 1.0,
        detectable=(quantile + float(t.ppf(POWER, n - 1))) * error,
    )


def differences_of(rows: Iterable[Measured], arm: str, value: Value) -> list[float]:
    """`value` of the arm less that of the cold compile of the same seed, for the seeds that have both."""
    of = {(row.arm, row.seed): value(row) for row in rows}
    return [of[arm, seed] - of[BASE[arm], seed] for seed in seeds_of(rows, arm)]


def seeds_of(rows: Iterable[Measured], arm: str) -> list[int]:
    """The seeds that have this arm and the cold one, ascending."""
    found = {name: {row.seed for row in rows if row.arm == name} for name in (arm, BASE[arm])}
    return sorted(found[arm] & found[BASE[arm]])


def equal_speed(rows: Sequence[Measured]) -> Value:
    """The K-score as if every model had answered in the same time, the median of all: one base, one adapter's shape,
    so what their times differ by is what else the machine did."""
    p50_us = round(median(row.p50_us for row in rows))
    own = OwnTime(
        unit=Unit.ANSWER, clock=Clock.WALL, measured_ns=1000 * p50_us, reference_ns=0, units_milli=UNITS_MILLI
    )
    cost_nanousd = round(median(row.cost_nanousd for row in rows))

    def value(row: Measured) -> float:
        score = k_score(
            accuracy_ppm=row.n_correct * PPM // max(row.n_heldout, 1),
            coverage_ppm=row.n_answered * PPM // max(row.n_heldout, 1),
            n=row.n_heldout,
            size_bytes=row.size_bytes,
            own=own,
            p50_us=p50_us,
            cost_nanousd=cost_nanousd,
        )
        return score.composite_ppm / 1e6

    return value
