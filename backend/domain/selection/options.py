"""The options of a selection: the method and its knobs, checked once.

    auto               picks one of the others from what the pool shows (`auto_policy`); the default.
    two_step           K clusters, the best-scored member of each (seed 000). `overcluster` > 1 cuts more clusters and
                       keeps the K best of their representatives.
    top_k              the K best scores.
    diverse            greedy: score less `diversity_lambda` times the closeness to the nearest pick.
    dpp                greedy MAP of a determinantal point process with a full-rank kernel.
    facility_location  greedy: score plus `diversity_lambda` times how well the picks cover the pool.
    k_center           farthest first, from the best-scored candidate.
    representative     greedy: what stands for most of the pool, one of each group of near-duplicates first, outliers
                       last (`representative`). Scores count for the floor alone.
    random, all        baselines: K drawn by `seed`; everything.

`diversity_lambda` means the same in diverse, dpp and facility_location, at every K: 0 is exactly top_k, infinity is
spread alone.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from numbers import Integral
from typing import TypeVar

from backend.domain.errors import InvalidInput
from backend.domain.selection.linkage.criteria import Linkage

DEFAULT_FLOOR = 1 / 3  # share of the worst scores dropped before anything that gives outliers a seat
DEFAULT_LAMBDA = 1.0  # docs/decisions/0009
MAX_OVERCLUSTER = 4.0

Choice = TypeVar("Choice", bound=StrEnum)


class Method(StrEnum):
    AUTO = "auto"
    TWO_STEP = "two_step"
    TOP_K = "top_k"
    DIVERSE = "diverse"
    DPP = "dpp"
    FACILITY_LOCATION = "facility_location"
    K_CENTER = "k_center"
    REPRESENTATIVE = "representative"
    RANDOM = "random"
    ALL = "all"


class Penalty(StrEnum):
    """The penalty that `diverse` takes off: NEAREST once, for the nearest pick; SUM for every pick, as seed 000 writes
    it. The sum grows with K squared and rewards outliers together with their twins: for comparison, not for use."""

    NEAREST = "nearest"
    SUM = "sum"


FLOORED = frozenset({Method.TWO_STEP, Method.K_CENTER})
"""The methods with a floor of 1/3 unless one is given: they give seats without weighing scores against each other. For
the others it only takes away coverage that the score had already weighed (docs/decisions/0009)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`score_floor` None is the method's own: 1/3 for two_step and k_center, else 0 (auto: what it chose). `is_traffic`
    says that the rows are what people sent, so that their density is that of what the student will get."""

    k: int
    method: Method = Method.AUTO
    linkage: Linkage = Linkage.AVERAGE
    score_floor: float | None = None
    diversity_lambda: float = DEFAULT_LAMBDA
    penalty: Penalty = Penalty.NEAREST
    min_distance: float = 0.0
    overcluster: float = 1.0
    seed: int = 0
    is_traffic: bool = False

    @property
    def floor(self) -> float:
        if self.method in (Method.RANDOM, Method.ALL):
            return 0.0
        if self.score_floor is not None:
            return self.score_floor
        return DEFAULT_FLOOR if self.method in FLOORED else 0.0


def checked_options(
    *,
    k: int,
    method: str,
    linkage: str,
    score_floor: float | None,
    diversity_lambda: float,
    penalty: str,
    min_distance: float,
    overcluster: float,
    seed: int,
    is_traffic: bool = False,
) -> Options:
    """The options as a value. Raises InvalidInput for what is out of range, with the range."""
    if not _is_whole(k) or k < 0:
        raise InvalidInput(f"K must be a whole number of 0 or more, not {k!r}.")
    if score_floor is not None and not 0 <= score_floor < 1:
        raise InvalidInput(f"score_floor is the share to drop, from 0 to less than 1, not {score_floor!r}.")
    if math.isnan(diversity_lambda) or diversity_lambda < 0:
        raise InvalidInput(f"diversity_lambda must be 0 or more, not {diversity_lambda!r}.")
    if not 0 <= min_distance <= 2:
        raise InvalidInput(f"min_distance is a cosine distance from 0 to 2, not {min_distance!r}.")
    if not 1 <= overcluster <= MAX_OVERCLUSTER:
        raise InvalidInput(f"overcluster is clusters per pick, from 1 to {MAX_OVERCLUSTER:g}, not {overcluster!r}.")
    if not _is_whole(seed) or seed < 0:
        raise InvalidInput(f"seed must be a whole number of 0 or more, not {seed!r}.")
    return Options(
        k=int(k),
        method=_one_of(Method, method, "selection method"),
        linkage=_one_of(Linkage, linkage, "linkage"),
        score_floor=None if score_floor is None else float(score_floor),
        diversity_lambda=float(diversity_lambda),
        penalty=_one_of(Penalty, penalty, "penalty"),
        min_distance=float(min_distance),
        overcluster=float(overcluster),
        seed=int(seed),
        is_traffic=bool(is_traffic),
    )


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _one_of(kind: type[Choice], value: str, what: str) -> Choice:
    try:
        return kind(value)
    except ValueError:
        raise InvalidInput(f"There is no {what} {value!r}; choose {', '.join(kind)}.") from None
