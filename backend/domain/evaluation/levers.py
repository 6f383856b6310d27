"""The levers of a K-score that is too low: for each axis, the change of it that would close the gap alone, where there
is one and it is the customer's to make.

What an answer takes is no such thing. Its base, its length and its rules are, so those are what latency and cost come
down to; how far they reach is not known before the next compile, and they are named when nothing else closes the gap.
"""

import math
from dataclasses import dataclass

from backend.domain.evaluation.classification import PPM, Evaluation
from backend.domain.evaluation.gate_floors import ACCURACY_WORDS
from backend.domain.evaluation.kscore import SCALES, WEIGHTS, AnyEvaluation, KScore
from backend.domain.evaluation.means import Means
from backend.domain.number_words import percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Lever:
    """One axis of the k_score: the points it loses, the `factor` by which it must change to close the gap alone (None:
    it cannot, or by nothing that can be reckoned), and the change in words."""

    axis: str
    loss_ppm: int
    factor: float | None
    text: str


def levers(evaluation: AnyEvaluation, score: KScore, required: int, *, rank: int, means: Means) -> tuple[Lever, ...]:
    """One lever an axis, towards a composite of `required` ppm. An adapter of `rank` shrinks to that of rank 1."""
    gap = required - score.composite_ppm
    needed = {name: value + -(-100 * gap // WEIGHTS[name]) for name, value in score.axes().items()}
    return (
        _accuracy(evaluation, score, needed["accuracy"]),
        _size(score, needed["size"], rank=rank, means=means),
        _time("latency", evaluation, score, means),
        _time("cost", evaluation, score, means),
        _coverage(evaluation, score, needed["coverage"]),
    )


def _loss(axis: str, score: KScore) -> int:
    return WEIGHTS[axis] * (PPM - score.axes()[axis]) // 100


def _accuracy(evaluation: AnyEvaluation, score: KScore, needed_ppm: int) -> Lever:
    target = -(-needed_ppm * evaluation.n // PPM)
    text = f"get {target} instead of {evaluation.correct} of {evaluation.n} held-out examples right"
    if not isinstance(evaluation, Evaluation):
        words = ACCURACY_WORDS[evaluation.accuracy_kind]
        text = f"raise the {words} from {percent(score.accuracy_ppm)} to {percent(needed_ppm)}"
    factor = None
    if needed_ppm <= PPM:
        # errors fall about with the square root of the data, so this is how much more data the fewer errors need
        factor = ((evaluation.n - evaluation.marks_ppm / PPM + 1) / (evaluation.n - target + 1)) ** 2
    return Lever(axis="accuracy", loss_ppm=_loss("accuracy", score), factor=factor, text=text)


def _size(score: KScore, needed_ppm: int, *, rank: int, means: Means) -> Lever:
    factor, text = None, f"lower {means.options}.rank from {rank}" if rank > 1 else "take a smaller base"
    if needed_ppm <= PPM:
        free = 1024 * SCALES[score.own.unit].free_kib
        target = math.floor(free * 2 ** (30 * (1 - needed_ppm / PPM)))
        if score.size_bytes <= rank * target:
            factor = score.size_bytes / target
            text = f"shrink it from {score.size_bytes:,} to {target:,} bytes ({text})"
    return Lever(axis="size", loss_ppm=_loss("size", score), factor=factor, text=text)


def _time(axis: str, evaluation: AnyEvaluation, score: KScore, means: Means) -> Lever:
    """Neither is reckoned with: a smaller base changes both, and accuracy."""
    text = f"take a smaller {means.options}.base"
    if isinstance(evaluation, Evaluation):
        text += ", or let more rules answer (recipes.rules)"
    elif axis == "cost":
        text += " or have it answer in fewer tokens"
    return Lever(axis=axis, loss_ppm=_loss(axis, score), factor=None, text=text)


def _coverage(evaluation: AnyEvaluation, score: KScore, needed_ppm: int) -> Lever:
    target = -(-needed_ppm * evaluation.n // PPM)
    text = f"have it answer {target} instead of {evaluation.answered} of {evaluation.n} held-out inputs"
    able = needed_ppm <= PPM
    factor = (evaluation.n - evaluation.answered + 1) / (evaluation.n - target + 1) if able else None
    return Lever(axis="coverage", loss_ppm=_loss("coverage", score), factor=factor, text=text)
