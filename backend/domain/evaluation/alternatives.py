"""The alternatives to a model: what else could have answered the same held-out rows, and how much better or worse the
model is than each, row by row.

An answer has a mark between 0 and 1,000,000 ppm, as in `generative`; of labels it is all or nothing. A difference is
the model's mean mark less the alternative's on the rows that both answered, with the interval of `paired`. What is not
measured is not here: a runner of the release of before, a task without gold outside the held-out part, a teacher that
the budget has no room for.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from backend.domain.evaluation.classification import PPM
from backend.domain.evaluation.paired import Paired, mean_difference

Marks = Sequence[int]


class AlternativeName(StrEnum):
    """The names of what stands beside a model; those that were baselines before keep theirs."""

    MAJORITY = "majority"  # the commonest label of the held-out rows, always
    COMMON_ANSWER = "common_answer"  # the training answer that is most like all others, always
    FROZEN = "frozen_encoder_logistic_regression"  # on the same pairs
    FROZEN_SPANS = "frozen_encoder_spans"  # heads for spans and classes on it, same pairs
    FROZEN_RANDOM = "frozen_encoder_random_labels"  # the same on the labels that were bought at random
    GOLD_ONLY = "gold_only_logistic_regression"  # the same on the gold alone that trains
    BASE = "base_constrained"  # the bare causal base
    TEACHER = "teacher"


# Those that cost no more to ship and to serve than the model itself: a model that is clearly worse is not published.
# Always the same answer is a floor of its own for labels; the bare base is one for json and text.
HELD_TO = frozenset(
    (
        AlternativeName.COMMON_ANSWER,
        AlternativeName.FROZEN,
        AlternativeName.FROZEN_SPANS,
        AlternativeName.FROZEN_RANDOM,
        AlternativeName.GOLD_ONLY,
    )
)
WORDS = {
    AlternativeName.MAJORITY: "always the commonest label",
    AlternativeName.COMMON_ANSWER: "always the most typical training answer",
    AlternativeName.FROZEN: "logistic regression on the frozen base, same pairs",
    AlternativeName.FROZEN_SPANS: "heads for spans and classes on the frozen base, same pairs",
    AlternativeName.FROZEN_RANDOM: "logistic regression on the frozen base, random labels",
    AlternativeName.GOLD_ONLY: "logistic regression on the frozen base, gold alone",
    AlternativeName.BASE: "the base without an adapter",
    AlternativeName.TEACHER: "the teacher itself",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """One alternative on `n` held-out rows: the sums of its marks and of the model's on the same rows, and the interval
    of the difference of their means, model less alternative. `n_trained`: the pairs that it was fitted on, where that
    is known."""

    name: AlternativeName
    n: int
    marks_ppm: int
    model_marks_ppm: int
    low_ppm: int
    high_ppm: int
    n_trained: int | None = None

    @property
    def accuracy_ppm(self) -> int:
        return self.marks_ppm // self.n if self.n else 0

    @property
    def model_accuracy_ppm(self) -> int:
        return self.model_marks_ppm // self.n if self.n else 0

    @property
    def difference_ppm(self) -> int:
        return round((self.model_marks_ppm - self.marks_ppm) / self.n) if self.n else 0

    @property
    def is_clearly_better(self) -> bool:
        """Say whether the whole interval has the model worse."""
        return self.high_ppm < 0

    @property
    def is_held_to(self) -> bool:
        return self.name in HELD_TO

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name.value,
            "words": WORDS[self.name],
            "n": self.n,
            "accuracy_ppm": self.accuracy_ppm,
            "model_accuracy_ppm": self.model_accuracy_ppm,
            "difference_ppm": self.difference_ppm,
            "difference_low_ppm": self.low_ppm,
            "difference_high_ppm": self.high_ppm,
            "is_clearly_better": self.is_clearly_better,
            "is_held_to": self.is_held_to,
            **({} if self.n_trained is None else {"n_trained": self.n_trained}),
        }


def compare_marks(
    name: AlternativeName, model: Marks, theirs: Marks, *, confidence: float = 0.95, n_trained: int | None = None
) -> Alternative:
    """The alternative beside the model. Where all marks are all or nothing the interval is that of two paired
    proportions, else that of a mean of paired differences. Raises InvalidInput for sequences of different lengths.

    >>> found = compare_marks(AlternativeName.FROZEN, [0] * 9 + [1_000_000], [1_000_000] * 10)
    >>> found.difference_ppm, found.is_clearly_better
    (-900000, True)
    """
    if all(mark in (0, PPM) for mark in (*model, *theirs)):
        counts = Counter(zip(model, theirs, strict=True))
        paired = Paired(
            both=counts[PPM, PPM],
            first=counts[PPM, 0],
            second=counts[0, PPM],
            neither=counts[0, 0],
            confidence=confidence,
        )
        low, high = paired.low_ppm, paired.high_ppm
    else:
        low, high = mean_difference(model, theirs, confidence=confidence)
    return Alternative(
        name=name,
        n=len(model),
        marks_ppm=sum(theirs),
        model_marks_ppm=sum(model),
        low_ppm=low,
        high_ppm=high,
        n_trained=n_trained,
    )


def label_marks(truths: Sequence[str], answers: Sequence[str | None]) -> list[int]:
    return [PPM * (answer == truth) for truth, answer in zip(truths, answers, strict=True)]


def label_alternatives(
    truths: Sequence[str],
    predictions: Sequence[str | None],
    others: Mapping[AlternativeName, Sequence[str | None]],
    *,
    confidence: float = 0.95,
    n_trained: Mapping[AlternativeName, int | None] | None = None,
) -> tuple[Alternative, ...]:
    """The commonest label first, then the others, whose answers belong to the same rows. `n_trained`: the pairs that
    each was fitted on."""
    if not truths:
        return ()
    commonest = min(Counter(truths).items(), key=lambda item: (-item[1], item[0]))[0]
    ours = label_marks(truths, predictions)
    answers = {AlternativeName.MAJORITY: [commonest] * len(truths), **others}
    fitted = n_trained or {}
    return tuple(
        compare_marks(name, ours, label_marks(truths, theirs), confidence=confidence, n_trained=fitted.get(name))
        for name, theirs in answers.items()
    )


def worst_rival(alternatives: Sequence[Alternative]) -> Alternative | None:
    """The one that beats the model most clearly, or comes nearest to it, of those that it is held to."""
    return min((one for one in alternatives if one.is_held_to), key=lambda one: one.high_ppm, default=None)
