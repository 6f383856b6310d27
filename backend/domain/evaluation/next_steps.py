"""The advice after a failed gate: the cheapest thing that the measurements say could mend the first
failing floor.

These are estimates and read as such. Two rules of thumb stand behind them: the Wilson bound at an unchanged accuracy
(exact), and errors that fall with the square root of the training data (coarse; learning curves of small text
classifiers do about that).
"""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Protocol

from backend.domain.evaluation.alternatives import WORDS, Alternative, AlternativeName
from backend.domain.evaluation.classification import (
    NO_ANSWER,
    PPM,
    ClassRow,
    Evaluation,
    upper_place,
    wilson_interval,
)
from backend.domain.evaluation.levers import Lever
from backend.domain.evaluation.means import Means
from backend.domain.number_words import percent

NEAR_MISS_PPM = 20_000


class Measured(Protocol):
    """The counts that an evaluation of any kind of task has. The accuracy is `marks_ppm` over `n`."""

    @property
    def n(self) -> int: ...
    @property
    def marks_ppm(self) -> int: ...
    @property
    def answered(self) -> int: ...
    @property
    def confidence(self) -> float: ...


def missing_heldout(evaluation: Measured, min_heldout: int, lower_ppm: int) -> str:
    needed = max(min_heldout, heldout_needed(evaluation, lower_ppm) or 0)
    return (
        f"Add gold examples: {evaluation.n} were held out and at least {min_heldout} must be"
        + (
            f"; at the present accuracy the bound of {percent(lower_ppm)} takes {needed}"
            if needed > min_heldout
            else ""
        )
        + f". That is {needed - evaluation.n} more held-out examples (examples.holdout says which share is held out)."
    )


def for_accuracy(evaluation: Evaluation, lower_ppm: int, means: Means) -> str:
    """Cheapest first: a few more gold examples, a little more accuracy, many more gold examples, a label to teach."""
    n, bound = evaluation.n, percent(lower_ppm)
    needed, target = heldout_needed(evaluation, lower_ppm), correct_needed(evaluation, lower_ppm)
    if target is None and needed is None:
        return f"Add gold examples: with {n} held out, even a perfect model would not reach a lower bound of {bound}."
    n_more, short = (needed or math.inf) - n, (target or math.inf) - evaluation.correct
    is_near_miss = short * PPM <= NEAR_MISS_PPM * n
    if n_more <= max(20, n // 4) or (n_more <= max(3 * n, 200) and not is_near_miss):
        return (
            f"Add {n_more} held-out gold examples: the accuracy of {percent(evaluation.accuracy_ppm)} is high enough, "
            f"but {n} examples do not carry its lower bound to {bound}; {needed} at the same accuracy would."
        )
    if is_near_miss:
        return f"A near miss: {short} more right of {n} would do. First {means}."
    row = max(evaluation.per_class, key=lambda r: (r.n - r.correct, r.label))
    aim = max(lower_ppm, (target or n) * PPM // n)
    lead = f"{short} more right of {n} are needed." if target else f"Even {n} right of {n} would not carry {bound}."
    return f"{lead} {_teach(row, evaluation, aim)}"


def for_majority(evaluation: Evaluation) -> str:
    commonest = max(evaluation.per_class, key=lambda row: row.n, default=None)
    rest = [row for row in evaluation.per_class if row is not commonest and row.n > row.correct]
    if commonest is None or not rest:
        return "Add gold examples of more than one label: on these, a constant answer cannot be beaten."
    row = max(rest, key=lambda r: (r.n - r.correct, r.label))
    return (
        f"The model is no better than always answering {commonest.label!r}. Raise the shares of the other labels, "
        f"first {row.label!r}. {_teach(row, evaluation, PPM // 2)}"
    )


def for_worst_class(evaluation: Evaluation, required_ppm: int) -> str:
    row = evaluation.worst_class
    if row is None:
        return "The spec has no labels to measure."
    if row.n == 0:
        return f"Add gold examples of {row.label!r}: none is held out, so nothing is known about it."
    short = -(-required_ppm * row.n // PPM) - row.correct
    advice = f"{row.label!r} needs {short} more right of {row.n}. {_teach(row, evaluation, required_ppm)}"
    if row.n >= 5:
        return advice
    return f"{advice} It rests on {row.n} held-out examples only; a few more gold ones would tell luck from fault."


PUBLISH_ANYWAY = "To publish it all the same, say gate.alternatives: report."


def for_alternative(rival: Alternative, means: Means) -> str:
    """The advice where the model is clearly worse than something of its own size and cost."""
    lead = (
        f"On the same {rival.n} held-out rows {WORDS[rival.name]} has {percent(rival.accuracy_ppm)}, the model "
        f"{percent(rival.model_accuracy_ppm)}."
    )
    if rival.name is AlternativeName.FROZEN:
        advice = f"The adaptation made it worse: halve train.learning_rate or train.epochs, or {means.data}"
    elif rival.name is AlternativeName.FROZEN_RANDOM:
        advice = f"The picks made it worse than labels drawn at random: set sampling.method: random, or {means.data}"
    elif rival.name is AlternativeName.GOLD_ONLY:
        advice = (
            "The teacher's pairs made it worse: they disagree with gold. Say in the task what sets the labels apart, "
            "raise sampling.min_agreement, or name another teacher"
        )
    else:
        advice = f"The model has not learnt what its answers depend on: {means.changes()}"
    return f"{lead} {advice}. {PUBLISH_ANYWAY}"


def for_composite(levers: Sequence[Lever], means: Means) -> str:
    """The axis that has to change by the smallest factor. Where none can close the gap,
    the axis that loses most, and what moves it."""
    able = [lever for lever in levers if lever.factor is not None]
    if able:
        best = min(able, key=lambda lever: lever.factor or math.inf)
        text = f"{_capital(best.text)}: the smallest change that closes the gap alone."
        return text + (f" To get there, {means}." if best.axis == "accuracy" else "")
    worst = max(levers, key=lambda lever: lever.loss_ppm)
    change = str(means) if worst.axis == "accuracy" else worst.text
    return (
        f"No single axis closes the gap. {_capital(worst.axis)} loses most ({percent(worst.loss_ppm)} of the score): "
        f"{change}, or lower gate.k_min."
    )


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def heldout_needed(evaluation: Measured, lower_ppm: int) -> int | None:
    """Return how many held-out examples carry the lower bound at the same accuracy; None if no number does.

    Wilson's bound r is where (p - r) = z sqrt(r (1 - r) / n), hence n = z^2 r (1 - r) / (p - r)^2."""
    p, r = evaluation.marks_ppm / PPM / max(evaluation.n, 1), lower_ppm / PPM
    if p <= r:
        return None
    z = NormalDist().inv_cdf(upper_place(evaluation.confidence))
    # r = 1 has a variance of 0, and only n without end carries it; p <= r has caught it
    return max(evaluation.n + 1, math.ceil(z * z * r * (1 - r) / (p - r) ** 2))


def correct_needed(evaluation: Evaluation, lower_ppm: int) -> int | None:
    """The fewest right answers of the present n whose lower bound is high enough; None if all of them are not."""
    low, high = evaluation.correct, evaluation.n
    if wilson_interval(high, high, evaluation.confidence)[0] * PPM < lower_ppm:
        return None
    while low < high:  # the bound rises with every right answer
        middle = (low + high) // 2
        if wilson_interval(middle, evaluation.n, evaluation.confidence)[0] * PPM < lower_ppm:
            low = middle + 1
        else:
            high = middle
    return low


def _teach(row: ClassRow, evaluation: Evaluation, required_ppm: int) -> str:
    """Add N examples of this label, set against the one it is most taken for."""
    wrong = row.n - row.correct
    n_more = _examples_to_add(row, evaluation, required_ppm)
    text = f"Add about {n_more} training examples of {row.label!r} ({wrong} of {row.n} wrong"
    rival = next((c for c in evaluation.confusions if c.truth == row.label), None)
    if rival is None:
        return f"{text})."
    if rival.predicted == NO_ANSWER:
        return f"{text}, {rival.count} of them left without an answer)."
    return (
        f"{text}, {rival.count} of them answered as {rival.predicted!r}): captures, a larger share, or a slice whose "
        f"hint sets it against {rival.predicted!r}."
    )


def _examples_to_add(row: ClassRow, evaluation: Evaluation, required_ppm: int) -> int:
    """Grow the label's training pairs by (error now / error allowed)^2, at least by 10 and at most to five times."""
    trained = evaluation.n_trained.get(row.label, 0)
    error, allowed = 1 - row.correct / row.n, max(1 - required_ppm / PPM, 1 / (2 * row.n))
    if not trained:
        return max(10, 2 * (row.n - row.correct))
    return min(max(10, math.ceil(trained * ((error / allowed) ** 2 - 1))), max(10, 4 * trained))
