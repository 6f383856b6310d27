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

FEW_PAIRS = 128  # up to which `auto` trains a contrastive adapter; see docs/decisions/0048-contrastive-first.md
ERRORS, ERRORS_OF_FEW = 1, 2  # standard errors by which the frozen head has to be ahead


class Student(StrEnum):
    ADAPTER = "adapter"  # LoRA layers and a head, on a base that is otherwise frozen, by cross-entropy
    CONTRASTIVE = "contrastive"  # the same, but half of the passes bring texts of one label together beforehand
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


def is_few(n_pairs: int) -> bool:
    return n_pairs <= FEW_PAIRS


def trained_by(student: str, n_pairs: int) -> Student:
    """Return what a distillation of so many pairs trains where its job says `student`, before the folds are asked
    whether the frozen head is better.

    >>> [trained_by(AUTO, n).value for n in (128, 129)], trained_by("adapter", 9).value
    (['contrastive', 'adapter'], 'adapter')
    """
    if student != AUTO:
        return Student(student)
    return Student.CONTRASTIVE if is_few(n_pairs) else Student.ADAPTER


def is_ahead(frozen: NDArray[np.bool_], adapter: NDArray[np.bool_], *, n_pairs: int) -> bool:
    """Say whether the frozen head was right of more of the held pairs than the adapter by over a standard error of
    their paired difference, the root of the number of pairs about which they disagree; with few pairs to train on by
    over two, as a few held ones are seldom right about it.

    >>> head, adapter = np.array([True, True]), np.array([True, False])
    >>> is_ahead(head, adapter, n_pairs=200), is_ahead(np.ones(2, bool), np.zeros(2, bool), n_pairs=200)
    (False, True)
    """
    n_errors = ERRORS_OF_FEW if is_few(n_pairs) else ERRORS
    return int(frozen.sum()) - int(adapter.sum()) > n_errors * sqrt(int((frozen != adapter).sum()))


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
