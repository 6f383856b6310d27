"""The K-score, and the gate that decides whether a model may be published.

    k_score = .40 A + .15 S + .15 L + .15 C + .15 V

On its own that sum is a weak gate (a 10 KB rule passes 0.85 at A = 0.667), so the gate is lexicographic: floors on what
was measured on held-out data first, the k_score last. Decisions are made on the integers that are published: a stranger
who has them computes `(40 A + 15 (S + L + C + V)) // 100` and the same verdict. A gate that fails names its first
failing floor and the cheapest next step.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backend.domain.errors import InvalidInput
from backend.domain.evaluation import generative_next_steps as generative
from backend.domain.evaluation import next_steps
from backend.domain.evaluation.classification import PPM, percent
from backend.domain.evaluation.classification import Evaluation as Evaluation
from backend.domain.evaluation.classification import evaluate as evaluate
from backend.domain.evaluation.classification import wilson_interval as wilson_interval
from backend.domain.evaluation.gate_floors import (
    ACCURACY_WORDS,
    FloorName,
    generative_floors,
    label_floors,
    required_ppm,
)
from backend.domain.evaluation.gate_floors import Floor as Floor
from backend.domain.evaluation.gate_floors import GateOptions as GateOptions
from backend.domain.evaluation.generative import GenerativeEvaluation
from backend.domain.evaluation.next_steps import Lever

AnyEvaluation = Evaluation | GenerativeEvaluation
WEIGHTS = {"accuracy": 40, "size": 15, "latency": 15, "cost": 15, "coverage": 15}  # percent


@dataclass(frozen=True, slots=True, kw_only=True)
class KScore:
    """The five axes and their composite, ppm, with what the last four were computed from. `rule_coverage_ppm` stands
    beside them: the part of the coverage that the rules answer alone."""

    accuracy_ppm: int
    size_ppm: int
    latency_ppm: int
    cost_ppm: int
    coverage_ppm: int
    composite_ppm: int
    size_bytes: int
    p50_us: int
    cost_nanousd: int
    rule_coverage_ppm: int = 0

    def axes(self) -> dict[str, int]:
        return {name: getattr(self, f"{name}_ppm") for name in WEIGHTS}

    def to_json(self) -> dict[str, Any]:
        return {"formula": "k-score-1"} | {name: getattr(self, name) for name in self.__slots__}


def composite_ppm(axes: Mapping[str, int]) -> int:
    """The weighted sum of the axes, ppm, rounded down."""
    return sum(weight * axes[name] for name, weight in WEIGHTS.items()) // 100


def k_score(
    *,
    accuracy_ppm: int,
    coverage_ppm: int,
    n: int,
    size_bytes: int,
    p50_us: int,
    cost_nanousd: int,
    rule_coverage_ppm: int = 0,
) -> KScore:
    """S = 1 - log2(max(1, KiB)) / 30, L = 1 / (1 + p50_us / 1e5), C = 1 / (1 + 1000 usd a call).

    `size_bytes` is what is shipped (adapter, pack, rules), not the frozen base; `cost_nanousd` is one call's cost in
    1e-9 USD, because a call on a CPU costs less than a micro-USD. All axes are 0 for n = 0, where nothing was
    measured."""
    if min(size_bytes, p50_us, cost_nanousd) < 0:
        raise InvalidInput("A k_score needs a size, latency and cost of 0 or more.")
    axes = dict.fromkeys(WEIGHTS, 0)
    if n:
        axes = {
            "accuracy": accuracy_ppm,
            "size": round(PPM * max(0.0, 1 - math.log2(max(1.0, size_bytes / 1024)) / 30)),
            "latency": round(PPM / (1 + p50_us / 1e5)),
            "cost": round(PPM / (1 + cost_nanousd / 1e6)),
            "coverage": coverage_ppm,
        }
    return KScore(
        **{f"{name}_ppm": value for name, value in axes.items()},
        composite_ppm=composite_ppm(axes),
        size_bytes=size_bytes,
        p50_us=p50_us,
        cost_nanousd=cost_nanousd,
        rule_coverage_ppm=rule_coverage_ppm,
    )


def score_evaluation(
    evaluation: AnyEvaluation, *, size_bytes: int, p50_us: int, cost_nanousd: int, rule_coverage_ppm: int = 0
) -> KScore:
    """The K-score of what was measured on held-out data: A is its accuracy, V the share of inputs that are answered, by
    a sure rule or else by the model (validly)."""
    return k_score(
        accuracy_ppm=evaluation.accuracy_ppm,
        coverage_ppm=evaluation.answered * PPM // max(evaluation.n, 1),
        n=evaluation.n,
        size_bytes=size_bytes,
        p50_us=p50_us,
        cost_nanousd=cost_nanousd,
        rule_coverage_ppm=rule_coverage_ppm,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GateDecision:
    """`first_failed` is None and `next_step` empty when the gate is passed. Every floor is listed either way."""

    passed: bool
    floors: tuple[Floor, ...]
    first_failed: FloorName | None
    next_step: str
    evaluation: AnyEvaluation
    k_score: KScore

    def to_json(self) -> dict[str, Any]:
        return {
            "passed": self.passed,
            "floors": [floor.to_json() for floor in self.floors],
            "first_failed": self.first_failed,
            "next_step": self.next_step,
            "k_score_ppm": self.k_score.composite_ppm,
            "evaluation": self.evaluation.to_json(),
        }


def decide_gate(options: GateOptions, evaluation: AnyEvaluation, score: KScore) -> GateDecision:
    """Judge the floors in order."""
    floors = (
        label_floors(options, evaluation, score.composite_ppm)
        if isinstance(evaluation, Evaluation)
        else generative_floors(options, evaluation, score.composite_ppm)
    )
    failed = next((floor for floor in floors if not floor.passed), None)
    return GateDecision(
        passed=failed is None,
        floors=floors,
        first_failed=failed.name if failed else None,
        next_step=_advice(failed.name, options, evaluation, score) if failed else "",
        evaluation=evaluation,
        k_score=score,
    )


def _advice(failed: FloorName, options: GateOptions, evaluation: AnyEvaluation, score: KScore) -> str:
    lower = required_ppm(options.accuracy_lower)
    if failed is FloorName.HELDOUT_SIZE:
        return next_steps.missing_heldout(evaluation, options.min_heldout, lower)
    if failed is FloorName.K_MIN:
        more = next_steps.MORE_DATA_OR_RANK if isinstance(evaluation, Evaluation) else generative.MORE_DATA_OR_RANK
        return next_steps.for_composite(_levers(evaluation, score, required_ppm(options.k_min)), more=more)
    if not isinstance(evaluation, Evaluation):
        if failed is FloorName.ACCURACY_LOWER:
            return generative.for_accuracy(evaluation, lower)
        return (
            generative.for_baseline() if failed is FloorName.BEAT_BASELINE else generative.for_worst_field(evaluation)
        )
    if failed is FloorName.ACCURACY_LOWER:
        return next_steps.for_accuracy(evaluation, lower)
    if failed is FloorName.BEAT_MAJORITY:
        return next_steps.for_majority(evaluation)
    return next_steps.for_worst_class(evaluation, required_ppm(options.worst_class_recall))


def _levers(evaluation: AnyEvaluation, score: KScore, required: int) -> tuple[Lever, ...]:
    """Find for each axis the value at which it alone would close the gap to `required`, and by what factor that is
    away. None where even a perfect axis would not."""
    axes = score.axes()
    gap = required - score.composite_ppm
    return tuple(
        _lever(name, axes[name], axes[name] + -(-100 * gap // WEIGHTS[name]), evaluation, score) for name in WEIGHTS
    )


def _lever(axis: str, now_ppm: int, needed_ppm: int, evaluation: AnyEvaluation, score: KScore) -> Lever:
    loss = WEIGHTS[axis] * (PPM - now_ppm) // 100
    if needed_ppm > PPM or (needed_ppm == PPM and axis in ("latency", "cost")):
        return Lever(axis=axis, loss_ppm=loss, factor=None, text="")
    needed = needed_ppm / PPM
    rank = "train.rank" if isinstance(evaluation, Evaluation) else "train.causal.rank"
    match axis:
        case "size":
            target = math.floor(1024 * 2 ** (30 * (1 - needed)))
            factor, text = (
                score.size_bytes / target,
                f"shrink it from {score.size_bytes:,} to {target:,} bytes (lower {rank})",
            )
        case "latency":
            target = math.floor(1e5 * (1 / needed - 1))
            factor, text = (
                score.p50_us / max(target, 1),
                f"bring the median latency from {score.p50_us:,} to {target:,} us",
            )
        case "cost":
            target = math.floor(1e6 * (1 / needed - 1))
            factor = score.cost_nanousd / max(target, 1)
            text = f"bring a call's cost from {score.cost_nanousd:,} to {target:,} nano-USD"
        case "coverage":
            target = -(-needed_ppm * evaluation.n // PPM)
            factor = (evaluation.n - evaluation.answered + 1) / (evaluation.n - target + 1)
            text = f"have it answer {target} instead of {evaluation.answered} of {evaluation.n} held-out inputs"
        case _:
            target = -(-needed_ppm * evaluation.n // PPM)
            # errors fall about with the square root of the data, so this is how much more data the fewer errors need
            factor = ((evaluation.n - evaluation.marks_ppm / PPM + 1) / (evaluation.n - target + 1)) ** 2
            text = f"get {target} instead of {evaluation.correct} of {evaluation.n} held-out examples right"
            if not isinstance(evaluation, Evaluation):
                words = ACCURACY_WORDS[evaluation.accuracy_kind]
                text = f"raise the {words} from {percent(now_ppm)} to {percent(needed_ppm)}"
    return Lever(axis=axis, loss_ppm=loss, factor=factor, text=text)
