"""The models that a compile tries, one after the other: a trial is one distillation and one evaluation.

The first is what the spec asks for; of a json task whose pairs no extraction reproduces, a causal base. A label or json
task with `train.kind: auto` then tries a causal base too, and the measured K-score decides. When the best of them
misses the gate by its accuracy or a class's or field's, `train.escalate` holds, the money lasts and the rank was
nobody's wish but the default, twice the rank (and alpha) is tried once: it is more to ship, so a K-score that size or
time made too low it only lowers; nor can it better a model without a mistake. What is here decides; it measures
nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from backend.domain.evaluation.classification import PPM
from backend.domain.evaluation.gate_floors import OF_ACCURACY
from backend.domain.jobs.causal_jobs import CausalOptions
from backend.domain.jobs.runner_jobs import TrainOptions
from backend.domain.jobs.span_jobs import SpanOptions
from backend.domain.jobs.students import Student
from backend.domain.spec.defaults import may_extract, train_kind
from backend.domain.spec.models import Spec
from backend.domain.spec.training import CausalTrain, SpanTrain, Train


class TrialKind(StrEnum):
    """The kinds of student in the order of what an answer costs to serve."""

    ENCODER = "encoder"
    SPANS = "spans"
    CAUSAL = "causal"


class TrialReason(StrEnum):
    FIRST = "first"
    AUTO = "auto"
    ESCALATION = "escalation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    kind: TrialKind
    rank: int
    alpha: int
    why: TrialReason

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        return cls(
            kind=TrialKind(value["kind"]),
            rank=value["rank"],
            alpha=value["alpha"],
            why=TrialReason(value["why"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialOutcome:
    """The outcome of a trial: whether its model passes the gate, or which floor it misses first, with its score and its
    accuracy. `cost_microusd` is what the trial cost, where known. A `failure` (an error's code) means that there is no
    model. `student` and `competition` are of a label task's training on an encoder, as its result has them."""

    trial: Trial
    passed: bool
    k_score_ppm: int
    first_failed: str | None = None
    accuracy_ppm: int = 0
    cost_microusd: int = 0
    failure: str = ""
    student: str = ""
    competition: Sequence[Mapping[str, Any]] = ()

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__} | {"trial": self.trial.to_json()}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        return cls(**(value | {"trial": Trial.from_json(value["trial"])}))


def first_kind(spec: Spec, *, extracts: bool = True) -> TrialKind:
    """Return the kind that a compile begins with; of `auto` that which is cheaper to train and to serve. `extracts`:
    whether an extraction reproduces the pairs of a json task."""
    if may_extract(spec):
        return TrialKind.SPANS if extracts else TrialKind.CAUSAL
    return TrialKind.ENCODER if train_kind(spec) == "auto" else TrialKind(train_kind(spec))


def may_be_causal(spec: Spec) -> bool:
    """Say whether a causal base may be trained: where it is asked for, or where a json task that leaves its kind open
    turns out to be no extraction."""
    kind = train_kind(spec)
    return kind in ("causal", "auto") or (kind == "spans" and spec.train.kind is None)


def first_trial(spec: Spec, *, extracts: bool = True) -> Trial:
    """Return what a compile begins with."""
    return _as_written(spec, first_kind(spec, extracts=extracts), TrialReason.FIRST)


def next_trial(spec: Spec, done: Sequence[TrialOutcome], money_left: int) -> Trial | None:
    """The trial to go on with after `done` (in their order, the first among them); None when it is enough.

    `money_left` is in micro-USD. A further trial is started only when there is more of it than the dearest trial so far
    has cost.
    """
    if money_left <= max((outcome.cost_microusd for outcome in done), default=0):
        return None
    if train_kind(spec) == "auto" and not any(outcome.trial.kind is TrialKind.CAUSAL for outcome in done):
        return _as_written(spec, TrialKind.CAUSAL, TrialReason.AUTO)
    if any(outcome.trial.why is TrialReason.ESCALATION for outcome in done):
        return None
    if not spec.train.escalate or all(outcome.failure for outcome in done):
        return None
    leading = done[best(done)]
    if leading.student == Student.FROZEN:  # which has no rank
        return None
    if leading.first_failed not in OF_ACCURACY or leading.accuracy_ppm == PPM:
        return None
    if leading.trial.rank != _default_rank(leading.trial.kind):
        return None
    trial = leading.trial
    return Trial(kind=trial.kind, rank=2 * trial.rank, alpha=2 * trial.alpha, why=TrialReason.ESCALATION)


def best(outcomes: Sequence[TrialOutcome]) -> int:
    """The index of the trial whose model is judged: one that passes the gate before one that does not, then the higher
    K-score; of equal ones the cheaper to serve (encoder, lower rank), then the earlier. Raises ValueError when none
    came to a model."""
    able = [i for i, outcome in enumerate(outcomes) if not outcome.failure]
    if not able:
        raise ValueError("No trial came to a model.")
    return max(able, key=lambda i: (*_merit(outcomes[i]), -i))


def most_trials(spec: Spec) -> int:
    """Return how many trials a compile can come to."""
    kinds = [first_kind(spec)]
    if train_kind(spec) == "auto":
        kinds.append(TrialKind.CAUSAL)
    n_kinds = len(kinds)
    if spec.train.student == Student.FROZEN.value:  # which has no rank
        kinds = [kind for kind in kinds if kind is not TrialKind.ENCODER]
    may_escalate = any(_as_written(spec, kind, TrialReason.FIRST).rank == _default_rank(kind) for kind in kinds)
    return n_kinds + (spec.train.escalate and may_escalate)


def _merit(outcome: TrialOutcome) -> tuple[bool, int, int, int]:
    place = list(TrialKind).index(outcome.trial.kind)
    return outcome.passed, outcome.k_score_ppm, -place, -outcome.trial.rank


def _as_written(spec: Spec, kind: TrialKind, why: TrialReason) -> Trial:
    part = part_of(spec, kind)
    return Trial(kind=kind, rank=part.rank, alpha=part.alpha, why=why)


def part_of(spec: Spec, kind: TrialKind) -> Train | SpanTrain | CausalTrain:
    """The part of the spec that says how this kind is trained."""
    match kind:
        case TrialKind.ENCODER:
            return spec.train
        case TrialKind.SPANS:
            return spec.train.spans
        case TrialKind.CAUSAL:
            return spec.train.causal


def _default_rank(kind: TrialKind) -> int:
    ranks = {
        TrialKind.ENCODER: TrainOptions().rank,
        TrialKind.SPANS: SpanOptions().rank,
        TrialKind.CAUSAL: CausalOptions().rank,
    }
    return ranks[kind]
