"""The gate that decides whether a model may be published: floors on what was measured on held-out data first, the
K-score last, for on its own that sum is a weak gate (a 10 KB rule has 0.85 at A = 0.667). A gate that fails names its
first failing floor and the cheapest next step that is the customer's to take.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from backend.domain.evaluation import generative_next_steps as generative
from backend.domain.evaluation import next_steps
from backend.domain.evaluation.alternatives import Alternative
from backend.domain.evaluation.classification import Evaluation
from backend.domain.evaluation.gate_floors import (
    Floor,
    FloorName,
    GateOptions,
    generative_floors,
    held_to,
    label_floors,
    required_ppm,
)
from backend.domain.evaluation.kscore import AnyEvaluation, KScore
from backend.domain.evaluation.levers import levers
from backend.domain.evaluation.means import Means


@dataclass(frozen=True, slots=True, kw_only=True)
class GateDecision:
    """`first_failed` is None and `next_step` empty when the gate is passed. Every floor is listed either way."""

    passed: bool
    floors: tuple[Floor, ...]
    first_failed: FloorName | None
    next_step: str
    evaluation: AnyEvaluation
    k_score: KScore
    alternatives: tuple[Alternative, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "passed": self.passed,
            "floors": [floor.to_json() for floor in self.floors],
            "first_failed": self.first_failed,
            "next_step": self.next_step,
            "k_score_ppm": self.k_score.composite_ppm,
            "evaluation": self.evaluation.to_json(),
            "alternatives": [one.to_json() for one in self.alternatives],
        }


def decide_gate(
    options: GateOptions,
    evaluation: AnyEvaluation,
    score: KScore,
    *,
    rank: int = 1,
    alternatives: Sequence[Alternative] = (),
    means: Means | None = None,
) -> GateDecision:
    """Judge the floors in order. `rank` is the adapter's: a smaller one is advice only where there is one;
    `alternatives` are those that were measured beside the model, `means` the customer's to more accuracy (None: those
    of an encoder for labels, of a causal base else)."""
    means = means or Means(is_causal=not isinstance(evaluation, Evaluation))
    floors = (
        label_floors(options, evaluation, score.composite_ppm, alternatives)
        if isinstance(evaluation, Evaluation)
        else generative_floors(options, evaluation, score.composite_ppm, alternatives)
    )
    failed = next((floor for floor in floors if not floor.passed), None)
    return GateDecision(
        passed=failed is None,
        floors=floors,
        first_failed=failed.name if failed else None,
        next_step=_advice(failed.name, options, evaluation, score, rank, alternatives, means) if failed else "",
        evaluation=evaluation,
        k_score=score,
        alternatives=tuple(alternatives),
    )


def _advice(
    failed: FloorName,
    options: GateOptions,
    evaluation: AnyEvaluation,
    score: KScore,
    rank: int,
    alternatives: Sequence[Alternative],
    means: Means,
) -> str:
    lower = required_ppm(options.accuracy_lower)
    rival = held_to(options, alternatives)
    if failed is FloorName.ALTERNATIVES and rival is not None:
        return next_steps.for_alternative(rival, means)
    if failed is FloorName.HELDOUT_SIZE:
        return next_steps.missing_heldout(evaluation, options.min_heldout, lower)
    if failed is FloorName.K_MIN:
        moves = levers(evaluation, score, required_ppm(options.k_min), rank=rank, means=means)
        return next_steps.for_composite(moves, means)
    if not isinstance(evaluation, Evaluation):
        if failed is FloorName.ACCURACY_LOWER:
            return generative.for_accuracy(evaluation, lower, means)
        if failed is FloorName.BEAT_BASELINE:
            return generative.for_baseline(evaluation, means)
        return generative.for_worst_field(evaluation)
    if failed is FloorName.ACCURACY_LOWER:
        return next_steps.for_accuracy(evaluation, lower, means)
    if failed is FloorName.BEAT_MAJORITY:
        return next_steps.for_majority(evaluation)
    return next_steps.for_worst_class(evaluation, required_ppm(options.worst_class_recall))
