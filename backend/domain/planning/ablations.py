"""An ablation: the same candidates compiled again with another choice of what is labelled, to see what the compile's
was worth on this task; or the same pairs with another student.

Arm `all` labels every valid candidate and trains on every pair; arm `random` labels as many as were selected, drawn by
the seed; arm `fixed` selects as the spec says, at the K that `plan: fixed` has, where the compile bought by
`plan: auto`. All start from the candidates, scores and labels of the compile they ablate, so what differs is which
candidates are labelled, and how many. Arms `adapter`, `contrastive` and `frozen` take its pairs as they are and
train that student.
What is here decides; `backend.compiles.lifecycle.ablations` reads the rows.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from backend.domain.errors import InvalidInput
from backend.domain.evaluation.classification import PPM, interval_ppm
from backend.domain.evaluation.paired import Paired
from backend.domain.jobs.students import Student
from backend.domain.lifecycle import StepName
from backend.domain.planning.estimates import Estimate, Range
from backend.domain.spec.parsing import Spec

MAX_NAME = 64


class Arm(StrEnum):
    ALL = "all"
    RANDOM = "random"
    FIXED = "fixed"
    ADAPTER = "adapter"
    CONTRASTIVE = "contrastive"
    FROZEN = "frozen"


STUDENT_ARMS = {Arm(student.value): student for student in Student}


def arm_spec(spec: Spec, arm: Arm) -> Spec:
    """The spec of an arm: method, plan or student is the arm's (with `all`, every labelled pair trains), the name is
    its own (so that the customer's versions do not count on), and what it does not keep is no draft: the ablated
    compile has it, and the teacher's answers to the held-out inputs too. With method all or random no plan buys rows.
    """
    sampling: dict[str, Any] = {"method": arm.value} if arm in (Arm.ALL, Arm.RANDOM) else {}
    if arm is Arm.ALL:
        sampling["k_distill"] = None
    plan = spec.plan.model_copy(update={"kind": "fixed", "point_usd": None}) if arm is Arm.FIXED else spec.plan
    student = {"student": STUDENT_ARMS[arm].value, "kind": "encoder"} if arm in STUDENT_ARMS else {}
    return spec.model_copy(
        update={
            "train": spec.train.model_copy(update=student),
            "name": arm_name(spec.name, arm),
            "plan": plan,
            "sampling": spec.sampling.model_copy(update=sampling),
            "draft_cache": spec.draft_cache.model_copy(update={"enabled": False}),
            "evaluation": spec.evaluation.model_copy(update={"teacher_rows": 0}),
        }
    )


def arm_name(name: str, arm: Arm) -> str:
    """A slug of at most 64 characters.

    >>> arm_name("refund-router", Arm.ALL)
    'refund-router-ablation-all'
    """
    ending = f"-ablation-{arm}"
    return name[: MAX_NAME - len(ending)].rstrip("-") + ending


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """One slice of the ablated compile: `n` valid candidates, of which `k` were labelled; `k_fixed` is what
    `plan: fixed` labels of it. Of captures (`is_captured`) it may be others, of written ones it is the first `k`."""

    n: int
    k: int
    k_fixed: int = 0
    is_captured: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Paid:
    """The costs of the ablated compile, micro-USD: of the labels of each text, for training on `n_pairs` pairs (of them
    `n_gold` gold) in `n_passes`, of which `job` is the fee of a job of any size, and for the evaluation. `passes` are
    those that the arm's training makes over so many pairs."""

    labels: Sequence[int]
    training: int
    evaluation: int
    n_pairs: int
    n_gold: int
    n_passes: int
    job: int
    passes: Callable[[int], int]


def n_to_label(pools: Sequence[Pool], arm: Arm) -> tuple[int, float]:
    """Return how many texts an arm labels, and how many of them, as expected, have no label yet.

    >>> n_to_label([Pool(n=12, k=4)], Arm.ALL), n_to_label([Pool(n=12, k=4)], Arm.RANDOM)
    ((12, 8), (4, 2.666666666666667))
    """
    if arm is Arm.ALL:
        return sum(pool.n for pool in pools), sum(pool.n - pool.k for pool in pools)
    if arm in STUDENT_ARMS:
        return sum(pool.k for pool in pools), 0
    if arm is Arm.FIXED:
        captured = [pool for pool in pools if pool.is_captured and pool.n]
        return sum(pool.k_fixed for pool in pools), sum(pool.k_fixed * (1 - pool.k / pool.n) for pool in captured)
    return sum(pool.k for pool in pools), sum(pool.k * (1 - pool.k / pool.n) for pool in pools if pool.n)


def estimate_arm(base: Estimate, arm: Arm, pools: Sequence[Pool], paid: Paid) -> Estimate:
    """Return what an arm will cost, by what the ablated compile paid for the same things. `base` is the estimate of the
    arm's spec: its prices and its largest batch hold here too."""
    n_labeled, n_new = n_to_label(pools, arm)
    zero = Range(low=0, expected=0, high=0)
    mean = sum(paid.labels) / max(1, len(paid.labels))
    n_most = n_new if arm is Arm.ALL or arm in STUDENT_ARMS else n_labeled
    n_pairs = paid.n_pairs if arm is Arm.RANDOM or arm in STUDENT_ARMS else paid.n_gold + n_labeled
    steps = dict.fromkeys(StepName, zero)
    steps[StepName.LABELING] = Range(
        low=int(n_new * mean / 2),
        expected=math.ceil(n_new * mean),
        high=math.ceil(2 * n_most * max(paid.labels, default=0)),
    )
    trained, theirs = n_pairs * paid.passes(n_pairs), paid.n_pairs * paid.n_passes
    job = min(paid.job, paid.training)
    steps[StepName.DISTILLATION] = _runner(job + (paid.training - job) * trained / max(1, theirs))
    steps[StepName.EVALUATION] = _runner(paid.evaluation)
    ours = steps[StepName.DISTILLATION].high + steps[StepName.EVALUATION].high
    return replace(base, steps=steps, assumptions=tuple(_assumptions(n_labeled, n_new, paid)), platform_high=ours)


def _runner(expected: float) -> Range:
    return Range(low=int(expected / 5), expected=math.ceil(expected), high=4 * math.ceil(expected))


def _assumptions(n_labeled: int, n_new: float, paid: Paid) -> list[str]:
    return [
        f"{n_labeled} inputs are labeled, about {round(n_new)} of them anew; the others have their labels already",
        "candidates, embeddings and scores are copied and cost nothing",
        f"a label costs what {len(paid.labels)} cost in the ablated compile; training and evaluation likewise",
        "low: half the label tokens, a fifth of the training; high: twice the dearest label, four times the training",
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The purchase of one side of an ablation and what came of it. `label_cost_microusd` is what all its labels cost,
    also those it took over; `n_labels` counts labelled inputs, `n_pairs` the pairs that trained (gold included)."""

    correct: int
    n: int
    n_labels: int
    n_labels_reused: int
    label_cost_microusd: int
    n_pairs: int
    k_score_ppm: int | None

    @property
    def accuracy_ppm(self) -> int:
        return self.correct * PPM // self.n if self.n else 0

    @property
    def accuracy_low_ppm(self) -> int:
        return interval_ppm(self.correct, self.n)[0]

    @property
    def accuracy_high_ppm(self) -> int:
        return interval_ppm(self.correct, self.n)[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The compile beside one arm, on the same held-out rows. Differences are selected less arm."""

    selected: Outcome
    arm: Outcome
    paired: Paired

    def __post_init__(self) -> None:
        if not self.selected.n == self.arm.n == self.paired.n:
            raise InvalidInput("Both sides of an ablation are evaluated on the same rows.")

    @property
    def k_score_difference_ppm(self) -> int | None:
        ours, theirs = self.selected.k_score_ppm, self.arm.k_score_ppm
        return None if ours is None or theirs is None else ours - theirs

    @property
    def label_cost_difference_microusd(self) -> int:
        return self.selected.label_cost_microusd - self.arm.label_cost_microusd
