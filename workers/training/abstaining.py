"""The trust that the confidences of a label task's model deserve: their error on held-out gold, the threshold below
which an answer is unsure, and what that comes to there."""

from collections.abc import Mapping, Sequence
from typing import Any

from backend.domain.evaluation.abstaining import (
    SureAnswers,
    Threshold,
    calibration_error,
    choose_threshold,
    sure_answers,
)
from backend.domain.jobs.runner_jobs import DistillResult
from backend.domain.labeling.cuts import WITHOUT
from backend.domain.spec.parsing import LabelOutput, Spec
from workers.training.measurement import Measurement
from workers.training.trial_jobs import Trained


def threshold_of(spec: Spec, trained: Trained, cuts: Sequence[Mapping[str, Any]]) -> Threshold | None:
    """The threshold of a task that abstains, from the pairs that calibrated the model; None of any other. `cuts` are
    those that were compared: where the chosen one left the most contradicted pairs out, the others show no bound."""
    output = spec.output
    if not isinstance(output, LabelOutput) or output.abstain is None or not isinstance(trained, DistillResult):
        return None
    are_all = not any(cut["chosen"] and cut["name"] in WITHOUT for cut in cuts)
    return choose_threshold(
        trained.held_confidences_ppm, trained.held_right, accuracy=output.abstain.accuracy, are_all=are_all
    )


def sure_of(spec: Spec, gold: list[str], measured: Measurement) -> SureAnswers | None:
    """The sure answers on held-out gold; None of a task that does not abstain."""
    if measured.threshold is None:
        return None
    right = [truth == answer for truth, answer in zip(gold, measured.predictions, strict=True)]
    return sure_answers(
        measured.confidences_ppm,
        right,
        measured.threshold,
        ruled=measured.rule_rows or (),
        confidence=spec.gate.confidence,
    )


def confidence_figures(spec: Spec, gold: list[str], measured: Measurement) -> dict[str, Any]:
    """The part of a label task's evaluation that says what its model's own confidences are worth."""
    if not isinstance(spec.output, LabelOutput) or not gold:
        return {}
    own = measured.model_predictions or measured.predictions
    right = [truth == answer for truth, answer in zip(gold, own, strict=True)]
    sure = sure_of(spec, gold, measured)
    error = {"calibration": calibration_error(measured.confidences_ppm, right)}
    return error if sure is None else error | {"abstain": sure.to_json()}
