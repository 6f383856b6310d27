"""The floors of the gate: what was measured on held-out data, beside what the spec requires of it, each in words.

A label task is held to its commonest answer and its worst label, a json or text task to the base that was not adapted
and to its worst field, each to the alternatives of its own size and cost. What a floor says is computed from published
integers alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from backend.domain.errors import InvalidInput
from backend.domain.evaluation.alternatives import WORDS, Alternative, AlternativeName, worst_rival
from backend.domain.evaluation.classification import PPM, Evaluation
from backend.domain.evaluation.generative import GenerativeEvaluation
from backend.domain.number_words import percent, points, score

ACCURACY_WORDS = {
    "field_f1": "mean field F1",
    "exact": "share of exact answers",
    "judge": "share of wins and ties against gold",
    "checks": "share that passes every check",
}


class FloorName(StrEnum):
    """The floors in the order in which they are judged; a task has those of its kind."""

    HELDOUT_SIZE = "heldout_size"
    ACCURACY_LOWER = "accuracy_lower"
    BEAT_MAJORITY = "beat_majority"
    BEAT_BASELINE = "beat_baseline"
    ALTERNATIVES = "alternatives"
    WORST_CLASS_RECALL = "worst_class_recall"
    WORST_FIELD_F1 = "worst_field_f1"
    K_MIN = "k_min"


PASSED_ONLY = frozenset((FloorName.BEAT_MAJORITY, FloorName.BEAT_BASELINE))  # to be passed, not reached
# what an adapter of a larger rank may mend: not the number of held-out examples, not a model that is worse than the
# base as it was, and not a K-score, which it lowers
OF_ACCURACY = frozenset(FloorName) - {FloorName.HELDOUT_SIZE, FloorName.ALTERNATIVES, FloorName.K_MIN}
# The K-scores that are required where the spec says nothing, by the kind of base: below what a perfect model of any
# documented size has (docs/decisions/0029-k-score-2.md), so that floors refuse and size or speed alone does not.
K_MIN_OF = {"encoder": 0.70, "causal": 0.50}


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOptions:
    """The spec's `gate` part, with the K-score that is required of the kind of base."""

    k_min: float = K_MIN_OF["encoder"]
    accuracy_lower: float = 0.80
    worst_class_recall: float = 0.5
    beat_majority: bool = True
    confidence: float = 0.95
    min_heldout: int = 20
    alternatives: str = "enforce"

    def __post_init__(self) -> None:
        if not all(0 <= share <= 1 for share in (self.k_min, self.accuracy_lower, self.worst_class_recall)):
            raise InvalidInput("The gate's k_min, accuracy_lower and worst_class_recall lie between 0 and 1.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """`measured` and `required` are ppm, or counts where `unit` says so ("points": ppm of a difference, which may be
    below 0). Every floor is met by reaching it, but a baseline's, which must be passed."""

    name: FloorName
    passed: bool
    measured: int
    required: int
    unit: str
    message: str

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def required_ppm(share: float) -> int:
    return round(share * PPM)


def label_floors(
    options: GateOptions, evaluation: Evaluation, composite_ppm: int, alternatives: Sequence[Alternative] = ()
) -> tuple[Floor, ...]:
    """A label without held-out gold has a recall of 0 here: nothing vouches for it."""
    low, high = evaluation.interval_ppm
    worst, majority = evaluation.worst_class, evaluation.majority
    recall = (worst.recall_ppm or 0) if worst else 0
    accuracy = f"accuracy {percent(evaluation.accuracy_ppm)} ({evaluation.correct} of {evaluation.n})"
    floors = [
        _floor(FloorName.HELDOUT_SIZE, evaluation.n, options.min_heldout, "held-out examples", unit="count"),
        _floor(
            FloorName.ACCURACY_LOWER,
            low,
            required_ppm(options.accuracy_lower),
            f"lower bound of the {accuracy}, interval {percent(low)} to {percent(high)} at {evaluation.confidence:.0%}",
        ),
        _floor(
            FloorName.BEAT_MAJORITY,
            evaluation.accuracy_ppm,
            majority.accuracy_ppm,
            f"{accuracy}, against always answering the commonest label",
            passed=evaluation.correct > majority.correct,
        ),
        *_alternatives_floor(options, alternatives),
        _floor(
            FloorName.WORST_CLASS_RECALL,
            recall,
            required_ppm(options.worst_class_recall),
            f"recall of the worst label, {worst.label!r} ({worst.correct} of {worst.n})" if worst else "no labels",
        ),
        _floor(FloorName.K_MIN, composite_ppm, required_ppm(options.k_min), "K-score"),
    ]
    return tuple(f for f in floors if options.beat_majority or f.name is not FloorName.BEAT_MAJORITY)


def generative_floors(
    options: GateOptions,
    evaluation: GenerativeEvaluation,
    composite_ppm: int,
    alternatives: Sequence[Alternative] = (),
) -> tuple[Floor, ...]:
    """`beat_majority` asks to beat each baseline that was measured, the best of which is shown; `worst_class_recall` is
    asked of the F1 of the worst field, where one stands in enough held-out answers."""
    low, high = evaluation.interval_ppm
    words = f"{ACCURACY_WORDS[evaluation.accuracy_kind]} {percent(evaluation.accuracy_ppm)} over {evaluation.n} answers"
    floors = [
        _floor(FloorName.HELDOUT_SIZE, evaluation.n, options.min_heldout, "held-out examples", unit="count"),
        _floor(
            FloorName.ACCURACY_LOWER,
            low,
            required_ppm(options.accuracy_lower),
            f"lower bound of the {words}, interval {percent(low)} to {percent(high)} at {evaluation.confidence:.0%}",
        ),
    ]
    if options.beat_majority and evaluation.baselines:
        rival = max(evaluation.baselines, key=lambda b: b.marks_ppm)
        against = f"{words}, against {rival.name.replace('_', ' ')}"
        # checks alone say no more of a model than of its base where both pass them all
        is_tie = evaluation.marks_ppm == rival.marks_ppm == evaluation.n * PPM and evaluation.accuracy_kind != "checks"
        if is_tie:
            against += "; both are perfect, so the base may do without an adapter"
        floors.append(
            _floor(
                FloorName.BEAT_BASELINE,
                evaluation.accuracy_ppm,
                rival.accuracy_ppm,
                against,
                passed=evaluation.marks_ppm > rival.marks_ppm or is_tie,
            )
        )
    floors.extend(_alternatives_floor(options, alternatives))
    if (worst := evaluation.worst_field) is not None:
        what = f"F1 of the worst field, {worst.label!r} ({worst.correct} right of {worst.n})"
        floors.append(_floor(FloorName.WORST_FIELD_F1, worst.f1_ppm, required_ppm(options.worst_class_recall), what))
    return (*floors, _floor(FloorName.K_MIN, composite_ppm, required_ppm(options.k_min), "K-score"))


def held_to(options: GateOptions, alternatives: Sequence[Alternative]) -> Alternative | None:
    """The alternative that decides this floor: of those of the same size and cost the one that does best beside the
    model. Who need not beat a constant answer is not held to the most typical one either."""
    if options.alternatives != "enforce":
        return None
    waived = () if options.beat_majority else (AlternativeName.COMMON_ANSWER,)
    return worst_rival([one for one in alternatives if one.name not in waived])


def _alternatives_floor(options: GateOptions, alternatives: Sequence[Alternative]) -> Iterator[Floor]:
    """One floor where an alternative was measured: the difference to it may be due to luck, or the model is better."""
    rival = held_to(options, alternatives)
    if rival is None:
        return
    passed = not rival.is_clearly_better
    verdict = "ok: not clearly worse than" if passed else "clearly worse than"
    message = (
        f"{verdict} {WORDS[rival.name]}: {percent(rival.model_accuracy_ppm)} beside {percent(rival.accuracy_ppm)} of "
        f"the same {rival.n} rows, difference {points(rival.difference_ppm)} points "
        f"({points(rival.low_ppm)} to {points(rival.high_ppm)}; below 0 as a whole is refused)"
    )
    yield Floor(
        name=FloorName.ALTERNATIVES,
        passed=passed,
        measured=rival.high_ppm,
        required=0,
        unit="points",
        message=message,
    )


def _floor(
    name: FloorName, measured: int, required: int, what: str, *, unit: str = "ppm", passed: bool | None = None
) -> Floor:
    passed = measured >= required if passed is None else passed
    write = str if unit == "count" else score if name is FloorName.K_MIN else percent
    has, needs = write(measured), write(required)
    comparison = "more than" if name in PASSED_ONLY and not (passed and measured == required) else "at least"
    verdict = "ok" if passed else "too low"
    message = f"{verdict}: {has}, required {comparison} {needs}: {what}"
    return Floor(name=name, passed=passed, measured=measured, required=required, unit=unit, message=message)
