"""The answers of the folds' fits about pairs that they held, and the temperature of all of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax

from backend.domain.labeling.calibration import fit_temperature
from gpu_runners.distill.label.dataset import Pair, targets_of
from gpu_runners.distill.label.folds import Fold
from gpu_runners.distill.label.nets import Net, Rows, by_length


class Calibration:
    """`logits` (n, n_labels) has NaN for pairs that nobody was asked about."""

    def __init__(self, pairs: Sequence[Pair], rows: Rows, *, n_labels: int) -> None:
        self._pairs, self._rows, self._n_labels = pairs, rows, n_labels
        self.logits = np.full((len(pairs), n_labels), np.nan, np.float32)
        self.temperature = 1.0

    def ask(self, net: Net, fold: Fold) -> dict[str, Any]:
        """Fit the temperature on all answers so far; what the training's log says of them."""
        rows = [self._rows[i] for i in fold.held]
        with torch.inference_mode():
            for chosen in by_length(rows):
                numbers = fold.held[chosen]
                self.logits[numbers] = net.logits(numbers.tolist(), dropout=False).cpu().numpy()
        pairs, logits = self._pairs_and_logits()
        targets = targets_of(pairs, self._n_labels).astype(np.float64)
        weights = np.array([pair.weight for pair in pairs])
        self.temperature, loss = fit_temperature(logits, targets, weights=weights)
        right = logits.argmax(axis=1) == np.array([pair.label for pair in pairs])
        return {
            "validation_loss": round(loss, 6),
            "validation_correct": int(right.sum()),
            "n_validation": len(pairs),
            "temperature": self.temperature,
        }

    def answers(self) -> tuple[list[int], list[bool]]:
        """The calibrated confidence of each answer so far, in ppm, and whether it is right."""
        pairs, logits = self._pairs_and_logits()
        confidences = softmax(logits / self.temperature, axis=1).max(axis=1, initial=0.0)
        right = logits.argmax(axis=1) == np.array([pair.label for pair in pairs], dtype=np.int64)
        return [round(float(value) * 1_000_000) for value in confidences], [bool(value) for value in right]

    def _pairs_and_logits(self) -> tuple[list[Pair], NDArray[np.float64]]:
        """The pairs that were asked about, with their logits."""
        asked = np.flatnonzero(~np.isnan(self.logits[:, 0])).tolist()
        return [self._pairs[i] for i in asked], self.logits[asked].astype(np.float64)
