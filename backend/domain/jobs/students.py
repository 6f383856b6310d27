"""The students that a label task's distillation can ship, and what their competition says of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

PPM = 1_000_000
AUTO = "auto"  # the student is the one that wins
LOG_LOSS = "log_loss_ppm"  # of a standing, in millionths of a nat


FEW_PAIRS = 128  # up to which an adapter and a contrastive one both train in the folds: together about five fits


class Student(StrEnum):
    ADAPTER = "adapter"  # LoRA layers and a head, on a base that is otherwise frozen, by cross-entropy
    CONTRASTIVE = "contrastive"  # the same layers, trained to bring texts of one label together; then a head on them
    FROZEN = "frozen"  # the head alone: logistic regression on the frozen base


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A student's answers about `n` training pairs that its fits had not seen: how many were right, and how many of
    those the winner had wrong, and the other way round (0 and 0 of the winner itself). `log_loss` is the mean
    cross-entropy of the answers against the pairs' labels, in nats, at the temperature that fits them best."""

    student: Student
    n: int
    correct: int
    log_loss: float = 0.0
    better: int = 0
    worse: int = 0

    def to_json(self) -> dict[str, Any]:
        accuracy = self.correct * PPM // self.n if self.n else 0
        counts = {"n": self.n, "correct": self.correct, "accuracy_ppm": accuracy, LOG_LOSS: round(self.log_loss * PPM)}
        return {"student": self.student.value, **counts, "better": self.better, "worse": self.worse}


def is_ahead(frozen: NDArray[np.bool_], adapter: NDArray[np.bool_]) -> bool:
    """Say whether the frozen head was right of more pairs than the adapter by over a standard error of their paired
    difference, the root of the number of pairs about which they disagree.

    >>> is_ahead(np.array([True, True]), np.array([True, False])), is_ahead(np.ones(2, bool), np.zeros(2, bool))
    (False, True)
    """
    return int(frozen.sum()) - int(adapter.sum()) > sqrt(int((frozen != adapter).sum()))


def better_adapter(log_losses: Mapping[Student, float]) -> Student:
    """Return the adapter whose answers about held pairs have the lower cross-entropy, which tells more of few pairs
    than how many were right; the one that is trained by cross-entropy where they are equal.

    >>> better_adapter({Student.ADAPTER: 0.54, Student.CONTRASTIVE: 0.51}).value
    'contrastive'
    """
    return min((Student.ADAPTER, Student.CONTRASTIVE), key=lambda one: log_losses[one])


def standings(
    right: Mapping[Student, NDArray[np.bool_]], log_losses: Mapping[Student, float], winner: Student
) -> tuple[Standing, ...]:
    """The winner's first; none where no student was asked, as of one pair a label."""
    if winner not in right:
        return ()
    best = right[winner]
    return tuple(
        Standing(
            student=student,
            n=len(mine),
            correct=int(mine.sum()),
            log_loss=log_losses[student],
            better=int((mine & ~best).sum()),
            worse=int((best & ~mine).sum()),
        )
        for student, mine in sorted(right.items(), key=lambda item: item[0] is not winner)
    )
