"""The answers of the folds' fits about pairs that they held: the temperature of all of them, and which student is
right more often.

A fold's adapter trains the top layer alone: that costs a sixth, is calibrated like a whole one and right less often. So
its figure can clear the adapter and never the frozen head: where the head is ahead of it, the folds are trained once
more and whole, and those answers count. Of few pairs they are trained whole at once, which is better calibrated there.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax

from backend.domain.jobs.students import Student, is_ahead
from backend.domain.labeling.calibration import fit_temperature
from gpu_runners.distill.label.dataset import Pair, targets_of
from gpu_runners.distill.label.fit import divergence
from gpu_runners.distill.label.folds import Fold
from gpu_runners.distill.label.nets import Net, Rows, by_length
from gpu_runners.models.encoder_runtimes import head_logits
from gpu_runners.models.label_adapter import Head
from gpu_runners.models.tensor_files import Array


class Asked(StrEnum):
    """The fits that answer: the frozen head, the top layer's adapter, and the whole adapter."""

    FROZEN = "frozen"
    TOP = "top"
    WHOLE = "whole"


class Calibration:
    """`logits`: (n, n_labels) of each that was asked, with NaN for pairs that it was not asked about. `adapter` is the
    student whose fits answer beside the frozen head."""

    def __init__(self, pairs: Sequence[Pair], rows: Rows, *, n_labels: int, adapter: Student) -> None:
        self._pairs, self._rows, self._adapter = pairs, rows, adapter
        self._targets = targets_of(pairs, n_labels).astype(np.float64)
        self._labels = np.array([pair.label for pair in pairs], dtype=np.int64)
        self._weights = np.array([pair.weight for pair in pairs])
        self.logits = {of: np.full((len(pairs), n_labels), np.nan, np.float32) for of in Asked}

    def ask_head(self, embedded: Array, head: Head, fold: Fold) -> None:
        """Ask the head that was fitted on the fold's training pairs; `embedded` are the vectors of all pairs."""
        self.logits[Asked.FROZEN][fold.held] = head_logits(embedded[fold.held], head)

    def ask(self, net: Net, fold: Fold, of: Asked) -> dict[str, Any]:
        """Ask the fold's adapter; what the training's log says of all answers so far."""
        rows = [self._rows[i] for i in fold.held]
        with torch.inference_mode():
            for chosen in by_length(rows):
                numbers = fold.held[chosen]
                logits = net.logits(numbers.tolist(), dropout=False).cpu().numpy()
                if not np.isfinite(logits).all():
                    raise divergence("The answers of a training came out as no numbers")
                self.logits[of][numbers] = logits
        temperature, loss = self._fit(of)
        right = self._right(of)
        return {
            "validation_loss": round(loss, 6),
            "validation_correct": int(right.sum()),
            "n_validation": len(right),
            "temperature": temperature,
        }

    def is_head_ahead(self, of: Asked) -> bool:
        """Say whether the frozen head beats these adapters on the pairs that both were asked about."""
        both = np.intersect1d(self._pairs_of(of), self._pairs_of(Asked.FROZEN))
        frozen, adapter = (self._is_right(one)[both] for one in (Asked.FROZEN, of))
        return is_ahead(frozen, adapter, n_pairs=len(self._pairs))

    def temperature(self, student: Student) -> float:
        return self._fit(self._of(student))[0]

    def right(self) -> dict[Student, NDArray[np.bool_]]:
        """Return what each student that was asked was right about."""
        students = (self._adapter, Student.FROZEN)
        return {one: self._right(self._of(one)) for one in students if len(self._pairs_of(self._of(one)))}

    def log_losses(self) -> dict[Student, float]:
        """Return the cross-entropy of each student that was asked, at its temperature."""
        return {student: self._fit(self._of(student))[1] for student in self.right()}

    def answers(self, student: Student) -> tuple[list[int], list[bool]]:
        """The calibrated confidence of each answer, in ppm, and whether it is right."""
        of = self._of(student)
        logits = self.logits[of][self._pairs_of(of)].astype(np.float64)
        confidences = softmax(logits / self._fit(of)[0], axis=1).max(axis=1, initial=0.0)
        return [round(float(value) * 1_000_000) for value in confidences], self._right(of).tolist()

    def _of(self, student: Student) -> Asked:
        if student is Student.FROZEN:
            return Asked.FROZEN
        return Asked.WHOLE if len(self._pairs_of(Asked.WHOLE)) else Asked.TOP

    def _pairs_of(self, of: Asked) -> NDArray[np.int64]:
        return np.flatnonzero(~np.isnan(self.logits[of][:, 0]))

    def _is_right(self, of: Asked) -> NDArray[np.bool_]:
        return np.asarray(self.logits[of].argmax(axis=1) == self._labels)

    def _right(self, of: Asked) -> NDArray[np.bool_]:
        return self._is_right(of)[self._pairs_of(of)]

    def _fit(self, of: Asked) -> tuple[float, float]:
        asked = self._pairs_of(of)
        if not len(asked):
            return 1.0, 0.0
        logits = self.logits[of][asked].astype(np.float64)
        return fit_temperature(logits, self._targets[asked], weights=self._weights[asked])
