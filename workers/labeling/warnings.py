"""Warnings of what the labels so far say of the teacher, the gold and the task, before the rest is spent."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from backend.domain.lifecycle import StepName
from backend.domain.number_words import percent
from workers.labeling.posteriors import Weighed
from workers.step.durable import CompileRun

LEAST_TWINS = 10  # labelled near-duplicates of gold, below which they say nothing
MOST_AGAINST = 0.3  # of them whose label is another than gold's
LEAST_ROWS = 20  # labelled, below which one label may be all there is
MOST_MAJORITY = 0.8  # share of the commonest label from which on nobody is much better than it
SURE_SE = 2.0  # standard errors by which a student must be better than the commonest label


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelWarning:
    code: str
    message: str


def warn_of_labels(run: CompileRun, weighed: Weighed) -> None:
    """Warn once of each, inside a transaction."""
    for one in _warnings(weighed):
        run.warn_once(one.code, one.message, step=StepName.LABELING.value)


def is_guessing(weighed: Weighed) -> bool:
    """Say whether a student that has learned from the labels is no better than the commonest label, so that what it is
    unsure of says nothing."""
    n = len(weighed.known)
    if n < LEAST_ROWS:
        return False
    share = weighed.majority
    right = float(weighed.is_right.mean())
    return share < MOST_MAJORITY and right <= share + SURE_SE * float(np.sqrt(share * (1 - share) / n))


def missing_labels(weighed: Weighed) -> list[str]:
    """The labels that no row has, nor gold."""
    n = weighed.n_by_label
    return [label for label, count in zip(weighed.pool.labels, n.tolist(), strict=True) if not count]


def _warnings(weighed: Weighed) -> Iterator[LabelWarning]:
    n_twins, n_against = _gold_twins(weighed)
    if n_twins >= LEAST_TWINS and n_against > MOST_AGAINST * n_twins:
        yield LabelWarning(
            code="labels_against_gold",
            message=f"{n_against} of {n_twins} inputs that are nearly gold examples have another label than gold. "
            "Look at both: correct the gold, or say in the task what each label means.",
        )
    answered = weighed.pool.votes.sum(axis=0)
    if weighed.known.size >= LEAST_ROWS and len(answered) > 1 and answered.max() == answered.sum() >= LEAST_ROWS:
        label = weighed.pool.labels[int(answered.argmax())]
        yield LabelWarning(
            code="teacher_constant",
            message=f"The teacher answered {label!r} to all {int(answered.sum())} questions. Say in the task "
            "what each label means, or name another teacher; if the inputs are all of this label, add others.",
        )
    elif is_guessing(weighed):
        yield LabelWarning(
            code="student_guesses",
            message=f"A student that learned from the labels so far is right on {_share(weighed.is_right.mean())} of "
            f"the inputs it has not seen, where the commonest label is right on {_share(weighed.majority)}: further "
            "inputs are drawn at random. The embedder may not know the language, or the inputs may be too long for it.",
        )
    missing = missing_labels(weighed)
    if missing:
        more = f" (nor {len(missing) - 1} others)" if len(missing) > 1 else ""
        yield LabelWarning(
            code="label_missing",
            message=f"No input has the label {missing[0]!r} so far{more}. Without a pair of it the compile fails: "
            "add gold examples or a slice for it, or take it out.",
        )


def _share(share: float) -> str:
    return percent(round(share * 1_000_000))


def _gold_twins(weighed: Weighed) -> tuple[int, int]:
    """The number of labelled candidates that are near-duplicates of gold, and of those among them whose label no gold
    row of their group has."""
    groups, n = weighed.pool.places.points.groups, weighed.pool.n
    gold: dict[int, set[int]] = {}
    for group, label in zip(groups[n:].tolist(), weighed.pool.places.gold.tolist(), strict=True):
        gold.setdefault(group, set()).add(label)
    labels = weighed.believed.argmax(axis=1).tolist()
    twins = [(groups[at], label) for at, label in zip(weighed.known.tolist(), labels, strict=True) if at < n]
    twins = [(group, label) for group, label in twins if group in gold]
    return len(twins), sum(label not in gold[group] for group, label in twins)
