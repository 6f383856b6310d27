"""The measurements of a label task on held-out data: counts, per class, beside simpler answers, each proportion with
its interval.

Counts are kept and rates derived. Ratios are integer parts per million so that they can be signed; interval bounds are
rounded outwards, so that none looks better than it is.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import NormalDist
from typing import Any

from backend.domain.errors import InvalidInput

PPM = 1_000_000
NO_ANSWER = ""  # in confusions: what was predicted is none of the labels


def wilson_interval(successes: float, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """The two-sided Wilson score interval of a proportion; (0, 1) for n = 0 (Wilson 1927; Brown, Cai and DasGupta 2001,
    eq. 4). `successes` may be a sum of shares.

    >>> low, high = wilson_interval(11, 11)
    >>> round(low, 3), high
    (0.741, 1.0)
    """
    if not 0 <= successes <= n:
        raise InvalidInput(f"{successes} successes of {n} are not a proportion.")
    if not 0 < confidence < 1:
        raise InvalidInput(f"A confidence lies between 0 and 1, not at {confidence!r}.")
    if n == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(upper_place(confidence))
    p, z2n = successes / n, z * z / n
    centre = (p + z2n / 2) / (1 + z2n)
    half = z / (1 + z2n) * math.sqrt(p * (1 - p) / n + z2n / (4 * n))
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    return low, 1.0 if successes == n else min(1.0, centre + half)


def upper_place(confidence: float) -> float:
    """Return where a two-sided interval's upper end is among a distribution's quantiles: below 1, which has none,
    however near to certainty the confidence is.

    >>> upper_place(0.95), upper_place(0.9999999999999999) < 1
    (0.975, True)
    """
    return min((1 + confidence) / 2, math.nextafter(1.0, 0.0))


def interval_ppm(successes: float, n: int, confidence: float = 0.95) -> tuple[int, int]:
    """The Wilson interval in ppm, rounded outwards: a bound never looks better than it is."""
    low, high = wilson_interval(successes, n, confidence)
    return math.floor(low * PPM), math.ceil(high * PPM)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassRow:
    """One label on held-out data: `n` gold examples, how often it was `predicted`, and how often rightly. The interval
    is the recall's."""

    label: str
    n: int
    predicted: int
    correct: int
    recall_low_ppm: int
    recall_high_ppm: int

    @property
    def recall_ppm(self) -> int | None:
        return self.correct * PPM // self.n if self.n else None

    @property
    def precision_ppm(self) -> int | None:
        return self.correct * PPM // self.predicted if self.predicted else None

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"recall_ppm": self.recall_ppm, "precision_ppm": self.precision_ppm}


@dataclass(frozen=True, slots=True, kw_only=True)
class Confusion:
    """`count` held-out examples of `truth` were taken for `predicted` ("" where the answer was none of the labels)."""

    truth: str
    predicted: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The score of something simpler on the same examples."""

    name: str
    correct: int
    n: int

    @property
    def accuracy_ppm(self) -> int:
        return self.correct * PPM // self.n if self.n else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Everything measured on the held-out gold. `baselines` begins with "majority", the best constant answer.
    `n_trained` counts the training pairs of each label, where known; it only sharpens the advice of a failed gate."""

    n: int
    correct: int
    answered: int
    confidence: float
    per_class: tuple[ClassRow, ...]
    confusions: tuple[Confusion, ...]
    baselines: tuple[Baseline, ...]
    n_trained: Mapping[str, int] = field(default_factory=dict)

    @property
    def accuracy_ppm(self) -> int:
        return self.correct * PPM // self.n if self.n else 0

    @property
    def marks_ppm(self) -> int:
        return self.correct * PPM

    @property
    def interval_ppm(self) -> tuple[int, int]:
        return interval_ppm(self.correct, self.n, self.confidence)

    @property
    def worst_class(self) -> ClassRow | None:
        """The label with the lowest recall; one without held-out gold comes before all."""
        return min(self.per_class, key=lambda row: (row.recall_ppm or 0, row.n, row.label), default=None)

    @property
    def majority(self) -> Baseline:
        return self.baselines[0]

    def to_json(self) -> dict[str, Any]:
        low, high = self.interval_ppm
        return {
            "n": self.n,
            "correct": self.correct,
            "answered": self.answered,
            "accuracy_ppm": self.accuracy_ppm,
            "accuracy_low_ppm": low,
            "accuracy_high_ppm": high,
            "confidence_ppm": round(self.confidence * PPM),
            "per_class": [row.to_json() for row in self.per_class],
            "confusions": [{name: getattr(c, name) for name in Confusion.__slots__} for c in self.confusions],
            "baselines": [
                {"name": b.name, "correct": b.correct, "n": b.n, "accuracy_ppm": b.accuracy_ppm} for b in self.baselines
            ],
        }


def evaluate(
    labels: Sequence[str],
    truths: Sequence[str],
    predictions: Sequence[str | None],
    *,
    confidence: float = 0.95,
    baselines: Mapping[str, Sequence[str | None]] | None = None,
    n_trained: Mapping[str, int] | None = None,
) -> Evaluation:
    """Compare predictions with the held-out truth, row by row. An answer that is none of `labels` counts as no answer.

    `baselines` maps a name to another model's predictions for the same rows. Raises InvalidInput for a truth that is no
    label and for sequences of different lengths."""
    others = baselines or {}
    if {len(truths)} != {len(truths), len(predictions), *map(len, others.values())}:
        raise InvalidInput("Truths, predictions and baselines must have one row for each held-out example.")
    if strangers := sorted(set(truths) - set(labels)):
        raise InvalidInput(f"Held-out examples carry labels that the spec does not have: {strangers[:5]}.")
    known = set(labels)
    answers = [p if p in known else NO_ANSWER for p in predictions]
    pairs = Counter(zip(truths, answers, strict=True))
    n, of_truth, of_answer = len(truths), Counter(truths), Counter(answers)
    correct, answered = sum(pairs[label, label] for label in labels), n - of_answer[NO_ANSWER]
    rows = []
    for label in labels:
        low, high = interval_ppm(pairs[label, label], of_truth[label], confidence)
        rows.append(
            ClassRow(
                label=label,
                n=of_truth[label],
                predicted=of_answer[label],
                correct=pairs[label, label],
                recall_low_ppm=low,
                recall_high_ppm=high,
            )
        )
    wrong = [(t, p, c) for (t, p), c in pairs.items() if t != p]
    compared = [Baseline(name="majority", correct=max(of_truth.values(), default=0), n=n)]
    for name, theirs in others.items():
        compared.append(Baseline(name=name, correct=sum(t == p for t, p in zip(truths, theirs, strict=True)), n=n))
    return Evaluation(
        n=n,
        correct=correct,
        answered=answered,
        confidence=confidence,
        per_class=tuple(rows),
        confusions=tuple(
            Confusion(truth=t, predicted=p, count=c) for t, p, c in sorted(wrong, key=lambda w: (-w[2], w[0], w[1]))
        ),
        baselines=tuple(compared),
        n_trained=dict(n_trained or {}),
    )
