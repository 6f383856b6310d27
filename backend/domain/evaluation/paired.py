"""Two models on the same held-out rows: is one better, and by how much?

Both answered every row, so rows that both got right, or both wrong, say nothing about which is better: the test
(McNemar) counts the discordant rows alone, and the interval of the difference takes the agreement into account. Both
are closed forms: the same counts give the same figures everywhere. What is measured is the luck of the held-out rows;
the luck of a training run or of a random draw is not in here.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from backend.domain.beta import student_quantile
from backend.domain.errors import InvalidInput
from backend.domain.evaluation.classification import PPM, upper_place, wilson_interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """Rows counted by who was right: `both`, only the `first`, only the `second`, `neither`."""

    both: int
    first: int
    second: int
    neither: int
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if min(self.both, self.first, self.second, self.neither) < 0:
            raise InvalidInput("Counts of a comparison are 0 or more.")

    @property
    def n(self) -> int:
        return self.both + self.first + self.second + self.neither

    @property
    def difference(self) -> float:
        """Accuracy of the first less that of the second; 0 for n = 0."""
        return (self.first - self.second) / self.n if self.n else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        return paired_interval(self.both, self.first, self.second, self.neither, self.confidence)

    @property
    def p_value(self) -> float:
        return mcnemar_p(self.first, self.second)

    @property
    def is_clear(self) -> bool:
        """Return whether the interval leaves 0 out."""
        low, high = self.interval
        return low > 0 or high < 0

    @property
    def difference_ppm(self) -> int:
        return round(self.difference * PPM)

    @property
    def low_ppm(self) -> int:
        """The lower bound, rounded down: bounds are rounded outwards."""
        return math.floor(self.interval[0] * PPM)

    @property
    def high_ppm(self) -> int:
        return math.ceil(self.interval[1] * PPM)

    @property
    def confidence_ppm(self) -> int:
        return round(self.confidence * PPM)

    @property
    def p_value_ppm(self) -> int:
        """The p-value, rounded up."""
        return min(PPM, math.ceil(self.p_value * PPM))


def compare(
    truths: Sequence[str],
    first: Sequence[str | None],
    second: Sequence[str | None],
    *,
    confidence: float = 0.95,
) -> Paired:
    """Two models' answers to the same rows. Raises InvalidInput for sequences of different lengths.

    >>> found = compare(["a", "a", "b"], ["a", "a", "a"], ["a", "b", "a"])
    >>> found.both, found.first, found.second, found.neither, round(found.difference, 3)
    (1, 1, 0, 1, 0.333)
    """
    if not len(truths) == len(first) == len(second):
        raise InvalidInput("Two models are compared row by row; they must have answered the same rows.")
    counts = {(True, True): 0, (True, False): 0, (False, True): 0, (False, False): 0}
    for truth, one, other in zip(truths, first, second, strict=True):
        counts[one == truth, other == truth] += 1
    return Paired(
        both=counts[True, True],
        first=counts[True, False],
        second=counts[False, True],
        neither=counts[False, False],
        confidence=confidence,
    )


def mean_difference(first: Sequence[int], second: Sequence[int], *, confidence: float = 0.95) -> tuple[int, int]:
    """Interval of the mean difference of two rows of marks in [0, 1,000,000] ppm, first less second, rounded outwards:
    Student's t of the paired differences (Student 1908). (-1,000,000, 1,000,000) for fewer than two rows. Raises
    InvalidInput for sequences of different lengths.

    >>> mean_difference([500_000, 0, 250_000, 1_000_000], [500_000, 500_000, 250_000, 900_000])
    (-530906, 330906)
    """
    if len(first) != len(second):
        raise InvalidInput("Two models are compared row by row; they must have answered the same rows.")
    n = len(first)
    if n < 2:
        return -PPM, PPM
    differences = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    half = student_quantile(n - 1, upper_place(confidence)) * float(differences.std(ddof=1)) / math.sqrt(n)
    mean = float(differences.mean())
    # a hair of rounding is no row's
    low, high = math.floor(round(mean - half, 3)), math.ceil(round(mean + half, 3))
    return max(-PPM, low), min(PPM, high)


def mcnemar_p(first: int, second: int) -> float:
    """Exact two-sided McNemar: the binomial test that a discordant row is as likely either way (McNemar 1947); 1.0
    without discordant rows.

    >>> round(mcnemar_p(9, 1), 4)
    0.0215
    """
    n = first + second
    tail = sum(math.comb(n, i) for i in range(min(first, second) + 1))
    return min(1.0, 2 * tail / (1 << n))


def paired_interval(both: int, first: int, second: int, neither: int, confidence: float = 0.95) -> tuple[float, float]:
    """Interval of the difference of two paired proportions: Newcombe's square-and-add of the two Wilson intervals with
    the correlation of the pairs (Newcombe 1998, Stat. Med. 17:2635, method 10). (-1, 1) for n = 0.

    One of the three that Fagerland, Lydersen and Laake (2014, Stat. Med. 33:2850) recommend; taken because it is a
    closed form and agrees with the Wilson intervals beside it. Their example (Bentur et al. 2009), 21 children:

    >>> [round(bound, 3) for bound in paired_interval(1, 1, 7, 12)]
    [-0.507, -0.026]
    """
    n = both + first + second + neither
    if n == 0:
        return -1.0, 1.0
    p1, p2 = (both + first) / n, (both + second) / n
    low1, high1 = wilson_interval(both + first, n, confidence)
    low2, high2 = wilson_interval(both + second, n, confidence)
    phi = _correlation(both, first, second, neither)
    below = _apart(p1 - low1, high2 - p2, phi)
    above = _apart(high1 - p1, p2 - low2, phi)
    difference = (first - second) / n
    return max(-1.0, difference - below), min(1.0, difference + above)


def _apart(mine: float, theirs: float, phi: float) -> float:
    return math.sqrt(max(0.0, mine * mine - 2 * phi * mine * theirs + theirs * theirs))


def _correlation(both: int, first: int, second: int, neither: int) -> float:
    """Phi of the pairs, a positive one corrected for continuity; 0 where a margin is empty."""
    margins = (both + first) * (second + neither) * (both + second) * (first + neither)
    if margins == 0:
        return 0.0
    excess: float = both * neither - first * second
    if excess > 0:
        excess = max(0.0, excess - (both + first + second + neither) / 2)
    return excess / math.sqrt(margins)
