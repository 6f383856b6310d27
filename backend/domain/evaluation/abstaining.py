"""The answers that a label model is unsure of: those below a threshold of its confidence, chosen so that the others are
as accurate as the spec wants. What that comes to is then measured on held-out gold, which chose nothing.

The threshold is shown by exact binomial bounds on pairs that the calibrating fit did not train on (selective
classification: Geifman & El-Yaniv 2017), or, where those are too few to show anything, is the wanted accuracy itself:
calibrated confidences mean what they say (Chow 1970, "On Optimum Recognition Error and Reject Tradeoff").
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Self

import numpy as np

from backend.domain.errors import InvalidInput
from backend.domain.evaluation.classification import PPM, interval_ppm
from backend.domain.labeling.calibration import ece, threshold_for

DELTA = 0.05  # the promise of a bound fails with this probability at most; not measured, the usual level
BINS = 15


class ThresholdBasis(StrEnum):
    """Bounds on held pairs, or the calibrated confidence at its word."""

    BOUND = "bound"
    CONFIDENCE = "confidence"


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """Answers with a confidence below `ppm` are unsure; `target_ppm` is the accuracy that the spec wants of the others,
    `n` the pairs that the threshold was chosen on."""

    ppm: int
    target_ppm: int
    basis: ThresholdBasis
    n: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(**{**value, "basis": ThresholdBasis(value["basis"])})


def choose_threshold(
    confidences_ppm: Sequence[int], is_right: Sequence[bool], *, accuracy: float, are_all: bool = True
) -> Threshold:
    """The threshold for this accuracy. Where the answers are not about `are_all` pairs, the hardest left out, what they
    show is no bound for new ones, and only raises it. Raises InvalidInput for lists of different lengths."""
    if len(confidences_ppm) != len(is_right):
        raise InvalidInput("Each confidence belongs to one answer.")
    target = round(accuracy * PPM)
    confidences = np.array(confidences_ppm, dtype=np.float64) / PPM
    bound = threshold_for(confidences, np.array(is_right, dtype=bool), accuracy, DELTA) if len(confidences) else None
    if bound is None or not are_all:
        ppm = max(target, round((bound or 0.0) * PPM))
        return Threshold(ppm=ppm, target_ppm=target, basis=ThresholdBasis.CONFIDENCE, n=len(is_right))
    return Threshold(ppm=round(bound * PPM), target_ppm=target, basis=ThresholdBasis.BOUND, n=len(is_right))


@dataclass(frozen=True, slots=True, kw_only=True)
class SureAnswers:
    """Counts of held-out answers: of `n` those that were sure, and the correct ones of these."""

    threshold: Threshold
    n: int
    n_sure: int
    correct: int
    confidence: float

    def to_json(self) -> dict[str, Any]:
        low, high = interval_ppm(self.correct, self.n_sure, self.confidence)
        return {
            "threshold_ppm": self.threshold.ppm,
            "target_ppm": self.threshold.target_ppm,
            "basis": self.threshold.basis.value,
            "n_calibration": self.threshold.n,
            "n": self.n,
            "n_sure": self.n_sure,
            "correct": self.correct,
            "coverage_ppm": self.n_sure * PPM // self.n if self.n else 0,
            "accuracy_ppm": self.correct * PPM // self.n_sure if self.n_sure else None,
            "accuracy_low_ppm": low,
            "accuracy_high_ppm": high,
        }


def sure_answers(
    confidences_ppm: Sequence[int],
    is_right: Sequence[bool],
    threshold: Threshold,
    *,
    ruled: Sequence[int] = (),
    confidence: float = 0.95,
) -> SureAnswers:
    """Count the sure answers on held-out gold; those of the rows `ruled` are a rule's, and sure."""
    of_rules = frozenset(ruled)
    is_sure = [i in of_rules or value >= threshold.ppm for i, value in enumerate(confidences_ppm)]
    correct = sum(sure and right for sure, right in zip(is_sure, is_right, strict=True))
    return SureAnswers(threshold=threshold, n=len(is_sure), n_sure=sum(is_sure), correct=correct, confidence=confidence)


def calibration_error(confidences_ppm: Sequence[int], is_right: Sequence[bool]) -> dict[str, int]:
    """The expected calibration error of held-out answers, in ppm, debiased and plain, over `bins` bins of as many
    answers each; and the plain error that a perfectly calibrated model with these confidences has by chance. Raises
    InvalidInput without answers."""
    if not confidences_ppm:
        raise InvalidInput("Without answers there is no calibration error.")
    confidences = np.array(confidences_ppm, dtype=np.float64) / PPM
    right = np.array(is_right, dtype=bool)
    return {
        "n": len(right),
        "bins": min(BINS, len(right)),
        "ece_ppm": round(PPM * ece(confidences, right, BINS)),
        "ece_plain_ppm": round(PPM * ece(confidences, right, BINS, debias=False)),
        "ece_floor_ppm": round(PPM * _chance_error(confidences)),
    }


def _chance_error(confidences: "np.typing.NDArray[np.float64]") -> float:
    """The mean distance by chance: of a bin of m answers, sqrt(2 / pi) standard errors of its accuracy."""
    parts = [part for part in np.array_split(np.sort(confidences), BINS) if len(part)]
    each = [math.sqrt(2 / math.pi * float((part * (1 - part)).mean()) / len(part)) for part in parts]
    return float(np.average(each, weights=[len(part) for part in parts]))
