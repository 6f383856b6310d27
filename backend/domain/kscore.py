"""The K-score, and the gate that decides whether a model may be published.

    k_score = .40 A + .15 S + .15 L + .15 C + .15 V

On its own that sum is a weak gate (a 10 KB rule passes 0.85 at A = 0.667), so the gate is lexicographic: floors on what
was measured on held-out data first, the k_score last. Decisions are made on the integers that are published: a stranger
who has them computes `(40 A + 15 (S + L + C + V)) // 100` and the same verdict. A gate that fails names its first
failing floor and the cheapest next step.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from backend.domain import next_steps
from backend.domain.errors import InvalidInput
from backend.domain.evaluation import PPM, percent
from backend.domain.evaluation import Evaluation as Evaluation
from backend.domain.evaluation import evaluate as evaluate
from backend.domain.evaluation import wilson_interval as wilson_interval
from backend.domain.next_steps import Lever

WEIGHTS = {"accuracy": 40, "size": 15, "latency": 15, "cost": 15, "coverage": 15}  # percent


@dataclass(frozen=True, slots=True, kw_only=True)
class KScore:
    """The five axes and their composite, ppm, with what the last four were computed from."""

    accuracy_ppm: int
    size_ppm: int
    latency_ppm: int
    cost_ppm: int
    coverage_ppm: int
    composite_ppm: int
    size_bytes: int
    p50_us: int
    cost_nanousd: int

    def axes(self) -> dict[str, int]:
        return {name: getattr(self, f"{name}_ppm") for name in WEIGHTS}

    def to_json(self) -> dict[str, Any]:
        return {"formula": "k-score-1"} | {name: getattr(self, name) for name in self.__slots__}


def composite_ppm(axes: Mapping[str, int]) -> int:
    """The weighted sum of the axes, ppm, rounded down."""
    return sum(weight * axes[name] for name, weight in WEIGHTS.items()) // 100


def k_score(*, correct: int, answered: int, n: int, size_bytes: int, p50_us: int, cost_nanousd: int) -> KScore:
    """A = correct / n, V = answered / n, S = 1 - log2(max(1, KiB)) / 30, L = 1 / (1 + p50_us / 1e5), C = 1 / (1 + 1000
    usd a call).

    `size_bytes` is what is shipped (adapter, packs), not the frozen base; `cost_nanousd` is one call's cost in 1e-9
    USD, because a call on a CPU costs less than a micro-USD. All axes are 0 for n = 0, where nothing was measured."""
    if not 0 <= correct <= answered <= n or min(size_bytes, p50_us, cost_nanousd) < 0:
        raise InvalidInput("A k_score needs 0 <= correct <= answered <= n, and a size, latency and cost of 0 or more.")
    axes = dict.fromkeys(WEIGHTS, 0)
    if n:
        axes = {
            "accuracy": correct * PPM // n,
            "size": round(PPM * max(0.0, 1 - math.log2(max(1.0, size_bytes / 1024)) / 30)),
            "latency": round(PPM / (1 + p50_us / 1e5)),
            "cost": round(PPM / (1 + cost_nanousd / 1e6)),
            "coverage": answered * PPM // n,
        }
    return KScore(
        **{f"{name}_ppm": value for name, value in axes.items()},
        composite_ppm=composite_ppm(axes),
        size_bytes=size_bytes,
        p50_us=p50_us,
        cost_nanousd=cost_nanousd,
    )


def score_evaluation(evaluation: Evaluation, *, size_bytes: int, p50_us: int, cost_nanousd: int) -> KScore:
    """The K-score of what was measured on held-out data."""
    return k_score(
        correct=evaluation.correct,
        answered=evaluation.answered,
        n=evaluation.n,
        size_bytes=size_bytes,
        p50_us=p50_us,
        cost_nanousd=cost_nanousd,
    )


class FloorName(StrEnum):
    """In the order in which they are judged."""

    HELDOUT_SIZE = "heldout_size"
    ACCURACY_LOWER = "accuracy_lower"
    BEAT_MAJORITY = "beat_majority"
    WORST_CLASS_RECALL = "worst_class_recall"
    K_MIN = "k_min"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOptions:
    """The spec's `gate` part: `GateOptions(**spec.gate.model_dump())`."""

    k_min: float = 0.85
    accuracy_lower: float = 0.80
    worst_class_recall: float = 0.5
    beat_majority: bool = True
    confidence: float = 0.95
    min_heldout: int = 20

    def __post_init__(self) -> None:
        if not all(0 <= share <= 1 for share in (self.k_min, self.accuracy_lower, self.worst_class_recall)):
            raise InvalidInput("The gate's k_min, accuracy_lower and worst_class_recall lie between 0 and 1.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """`measured` and `required` are ppm, or counts where `unit` says so. Every floor is met by reaching it, but the
    majority's, which must be passed."""

    name: FloorName
    passed: bool
    measured: int
    required: int
    unit: str
    message: str

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class GateDecision:
    """`first_failed` is None and `next_step` empty when the gate is passed. Every floor is listed either way."""

    passed: bool
    floors: tuple[Floor, ...]
    first_failed: FloorName | None
    next_step: str
    evaluation: Evaluation
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


def decide_gate(options: GateOptions, evaluation: Evaluation, score: KScore) -> GateDecision:
    """Judge the floors in order. A label without held-out gold has a recall of 0 here: nothing vouches for it."""
    floors = _floors(options, evaluation, score)
    failed = next((floor for floor in floors if not floor.passed), None)
    advice: dict[FloorName, Callable[[], str]] = {
        FloorName.HELDOUT_SIZE: lambda: next_steps.for_heldout_size(
            evaluation, options.min_heldout, _required_ppm(options.accuracy_lower)
        ),
        FloorName.ACCURACY_LOWER: lambda: next_steps.for_accuracy(evaluation, _required_ppm(options.accuracy_lower)),
        FloorName.BEAT_MAJORITY: lambda: next_steps.for_majority(evaluation),
        FloorName.WORST_CLASS_RECALL: lambda: next_steps.for_worst_class(
            evaluation, _required_ppm(options.worst_class_recall)
        ),
        FloorName.K_MIN: lambda: next_steps.for_composite(
            _levers(evaluation, score, _required_ppm(options.k_min)), evaluation
        ),
    }
    return GateDecision(
        passed=failed is None,
        floors=floors,
        first_failed=failed.name if failed else None,
        next_step=advice[failed.name]() if failed else "",
        evaluation=evaluation,
        k_score=score,
    )


def _floors(options: GateOptions, evaluation: Evaluation, score: KScore) -> tuple[Floor, ...]:
    low, high = evaluation.interval_ppm
    worst, majority = evaluation.worst_class, evaluation.majority
    recall = (worst.recall_ppm or 0) if worst else 0
    accuracy = f"accuracy {percent(evaluation.accuracy_ppm)} ({evaluation.correct} of {evaluation.n})"
    floors = [
        _floor(FloorName.HELDOUT_SIZE, evaluation.n, options.min_heldout, "held-out examples", unit="count"),
        _floor(
            FloorName.ACCURACY_LOWER,
            low,
            _required_ppm(options.accuracy_lower),
            f"lower bound of the {accuracy}, interval {percent(low)} to {percent(high)} at {evaluation.confidence:.0%}",
        ),
        _floor(
            FloorName.BEAT_MAJORITY,
            evaluation.accuracy_ppm,
            majority.accuracy_ppm,
            f"{accuracy}, against always answering the commonest label",
            passed=evaluation.correct > majority.correct,
        ),
        _floor(
            FloorName.WORST_CLASS_RECALL,
            recall,
            _required_ppm(options.worst_class_recall),
            f"recall of the worst label, {worst.label!r} ({worst.correct} of {worst.n})" if worst else "no labels",
        ),
        _floor(FloorName.K_MIN, score.composite_ppm, _required_ppm(options.k_min), "k_score"),
    ]
    return tuple(f for f in floors if options.beat_majority or f.name is not FloorName.BEAT_MAJORITY)


def _floor(
    name: FloorName, measured: int, required: int, what: str, *, unit: str = "ppm", passed: bool | None = None
) -> Floor:
    passed = measured >= required if passed is None else passed
    has, needs = (str(measured), str(required)) if unit == "count" else (percent(measured), percent(required))
    comparison = "more than" if name is FloorName.BEAT_MAJORITY else "at least"
    verdict = "ok" if passed else "too low"
    message = f"{verdict}: {has}, required {comparison} {needs}: {what}"
    return Floor(name=name, passed=passed, measured=measured, required=required, unit=unit, message=message)


def _required_ppm(share: float) -> int:
    return round(share * PPM)


def _levers(evaluation: Evaluation, score: KScore, required: int) -> tuple[Lever, ...]:
    """For each axis: the value at which it alone would close the gap to `required`, and by what factor that is away.
    None where even a perfect axis would not."""
    axes = score.axes()
    gap = required - score.composite_ppm
    return tuple(
        _lever(name, axes[name], axes[name] + -(-100 * gap // WEIGHTS[name]), evaluation, score) for name in WEIGHTS
    )


def _lever(axis: str, now_ppm: int, needed_ppm: int, evaluation: Evaluation, score: KScore) -> Lever:
    loss = WEIGHTS[axis] * (PPM - now_ppm) // 100
    if needed_ppm > PPM or (needed_ppm == PPM and axis in ("latency", "cost")):
        return Lever(axis=axis, loss_ppm=loss, factor=None, text="")
    needed = needed_ppm / PPM
    match axis:
        case "size":
            target = math.floor(1024 * 2 ** (30 * (1 - needed)))
            factor, text = (
                score.size_bytes / target,
                f"shrink it from {score.size_bytes:,} to {target:,} bytes (lower train.rank)",
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
            factor = ((evaluation.n - evaluation.correct + 1) / (evaluation.n - target + 1)) ** 2
            text = f"get {target} instead of {evaluation.correct} of {evaluation.n} held-out examples right"
    return Lever(axis=axis, loss_ppm=loss, factor=factor, text=text)
