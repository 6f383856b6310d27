"""Rewards as numbers in [0, 1]: the map from what a judge or a reward model said to a candidate's score.

A judge's ratings have a scale, which is kept: 0 to 9 becomes 0 to 1. A reward model's number has none (one model's
good is 3.1, another's is -0.4), so it is measured in the spread of the compile's own numbers around their median:

    z = (raw - median) / (1.4826 MAD)        score = 1/2 + z / (2 (1 + |z|))

The median scores 1/2. The map is strictly increasing, so no order changes. It keeps how far apart two candidates are,
which ranks would lose and selection weighs against spread; one outlier does not squeeze the others together, as it
would between the least and the greatest number; and a reward model that counts in other units gives the same scores.
Median and MAD are of all candidates of a compile that have a number when they are verified, and stay for the rounds
that selection asks for later, so that a score means the same in every slice and round.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

MOST_RATING = 9  # a judge's best; one digit, so one token, whose alternatives tell how sure it was
MAD_PER_SIGMA = 1.4826  # of a normal distribution


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """`score = 1/2 + z / (2 (1 + |z|))`, z = (raw - center) / scale; without a scale raw / MOST_RATING."""

    center: float | None = None
    scale: float | None = None

    @classmethod
    def of(cls, raws: Sequence[float]) -> Self:
        """The calibration by these numbers: their median and MAD, where that is 0 their mean distance from the median,
        and where all are equal 1. It does not depend on their order.

        >>> Calibration.of([1.0, 2.0, 3.0]).score(2.0)
        0.5
        """
        if not raws:
            return cls(center=0.0, scale=1.0)
        center = statistics.median(raws)
        distances = [abs(raw - center) for raw in raws]
        spread = MAD_PER_SIGMA * statistics.median(distances) or math.fsum(distances) / len(distances)
        return cls(center=center, scale=spread if math.isfinite(spread) and spread > 0 else 1.0)

    @property
    def is_measured(self) -> bool:
        return self.center is not None and self.scale is not None

    def score(self, raw: float) -> float:
        """A finite number as a score in [0, 1]; a greater one never scores less."""
        if self.center is None or self.scale is None:
            return min(1.0, max(0.0, raw / MOST_RATING))
        z = (raw - self.center) / self.scale
        return 1.0 if z == math.inf else 0.0 if z == -math.inf else 0.5 + z / (2 * (1 + abs(z)))

    def to_json(self) -> dict[str, float | None]:
        return {"center": self.center, "scale": self.scale}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(center=value.get("center"), scale=value.get("scale"))


RATINGS = Calibration()  # of a judge, whose numbers have a scale
