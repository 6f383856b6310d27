"""The K-score of a model: what it gets right, weighs, takes and costs, and how much it answers.

    k_score = .40 A + .15 S + .15 L + .15 C + .15 V

It is made of the integers that are published: a stranger who has them computes `(40 A + 15 (S + L + C + V)) // 100`. No
wall clock is among them: L and C come of the model's own time (`own_time`). The formula is k-score-2; files of before
have k-score-1, which `kolm_verify` recomputes as well. What is judged by it is in `gate`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backend.domain.errors import InvalidInput
from backend.domain.evaluation.classification import PPM, Evaluation
from backend.domain.evaluation.generative import GenerativeEvaluation
from backend.domain.evaluation.own_time import OwnTime, Unit

AnyEvaluation = Evaluation | GenerativeEvaluation
FORMULA = "k-score-2"
WEIGHTS = {"accuracy": 40, "size": 15, "latency": 15, "cost": 15, "coverage": 15}  # percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """`half_us`: the own time of a unit at which L is a half. `free_kib`: the size up to which S is 1."""

    half_us: int
    free_kib: int


# Ten tokens a second come as fast as people read. An adapter for long answers is of a base of billions: it
# pays for 64 KiB what a label's adapter pays for one.
SCALES = {Unit.ANSWER: Scale(half_us=100_000, free_kib=1), Unit.TOKEN: Scale(half_us=100_000, free_kib=64)}


@dataclass(frozen=True, slots=True, kw_only=True)
class KScore:
    """The five axes and their composite, ppm, with what the last four were computed from. `rule_coverage_ppm` stands
    beside them: the part of the coverage that the rules answer alone; so does `p50_us`, the median wall time of an
    answer on the runner."""

    accuracy_ppm: int
    size_ppm: int
    latency_ppm: int
    cost_ppm: int
    coverage_ppm: int
    composite_ppm: int
    size_bytes: int
    own: OwnTime
    cost_nanousd: int
    p50_us: int
    rule_coverage_ppm: int = 0

    def axes(self) -> dict[str, int]:
        return {name: getattr(self, f"{name}_ppm") for name in WEIGHTS}

    def to_json(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in self.__slots__ if name != "own"}
        return {"formula": FORMULA} | plain | self.own.to_json()


def composite_ppm(axes: Mapping[str, int]) -> int:
    """The weighted sum of the axes, ppm, rounded down."""
    return sum(weight * axes[name] for name, weight in WEIGHTS.items()) // 100


def size_ppm(size_bytes: float, unit: Unit) -> int:
    """S, ppm: it loses a thirtieth with each doubling of what is shipped."""
    kib = max(1.0, size_bytes / 1024 / SCALES[unit].free_kib)
    return round(PPM * max(0.0, 1 - math.log2(kib) / 30))


def k_score(
    *,
    accuracy_ppm: int,
    coverage_ppm: int,
    n: int,
    size_bytes: int,
    own: OwnTime,
    cost_nanousd: int,
    p50_us: int,
    rule_coverage_ppm: int = 0,
) -> KScore:
    """S = 1 - log2(max(1, KiB / free)) / 30, L = 1 / (1 + own_us / half), C = 1 / (1 + 1000 usd a call); the unit of
    `own` says which scale.

    `size_bytes` is what is shipped (adapter, pack, rules), not the frozen base; `cost_nanousd` is one call's cost in
    1e-9 USD, because a call on a CPU costs less than a micro-USD. All axes are 0 for n = 0, where nothing was
    measured."""
    if min(size_bytes, cost_nanousd, p50_us) < 0:
        raise InvalidInput("A k_score needs a size, latency and cost of 0 or more.")
    axes = dict.fromkeys(WEIGHTS, 0)
    if n:
        axes = {
            "accuracy": accuracy_ppm,
            "size": size_ppm(size_bytes, own.unit),
            "latency": round(PPM / (1 + own.own_us / SCALES[own.unit].half_us)),
            "cost": round(PPM / (1 + cost_nanousd / 1e6)),
            "coverage": coverage_ppm,
        }
    return KScore(
        **{f"{name}_ppm": value for name, value in axes.items()},
        composite_ppm=composite_ppm(axes),
        size_bytes=size_bytes,
        own=own,
        cost_nanousd=cost_nanousd,
        p50_us=p50_us,
        rule_coverage_ppm=rule_coverage_ppm,
    )


def score_evaluation(
    evaluation: AnyEvaluation,
    *,
    size_bytes: int,
    own: OwnTime,
    cost_nanousd: int,
    p50_us: int,
    rule_coverage_ppm: int = 0,
) -> KScore:
    """The K-score of what was measured on held-out data: A is its accuracy, V the share of inputs that are answered, by
    a sure rule or else by the model (validly)."""
    return k_score(
        accuracy_ppm=evaluation.accuracy_ppm,
        coverage_ppm=evaluation.answered * PPM // max(evaluation.n, 1),
        n=evaluation.n,
        size_bytes=size_bytes,
        own=own,
        cost_nanousd=cost_nanousd,
        p50_us=p50_us,
        rule_coverage_ppm=rule_coverage_ppm,
    )
