"""The outputs of each step of a compile: digests of blobs, which go on the receipt of the step and chain the steps, and
facts, which the receipt and the API tell. One value a step; a step's row keeps it as JSON, `{"digests", "facts"}`.

A field's name in the JSON is its own, unless DIGESTS or FACTS give it another. What is optional and not there is left
out of the JSON. A fact that the release of before did not tell is read as empty: compiles under way outlive releases.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self, get_origin

from backend.domain.lifecycle import StepName
from backend.domain.planning.trials import Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutput:
    """`copied_from` names the compile whose step an ablation took over."""

    STEP: ClassVar[StepName]
    DIGESTS: ClassVar[Mapping[str, str]] = {}  # {field: its name among the digests}
    FACTS: ClassVar[Mapping[str, str]] = {}  # {field: its name among the facts, where that is another}
    OPTIONAL: ClassVar[frozenset[str]] = frozenset()

    copied_from: str | None = None

    def digests(self) -> dict[str, str]:
        """The digests by name; one that is "" is none."""
        named = {name: str(getattr(self, own)) for own, name in self.DIGESTS.items()}
        return {name: digest for name, digest in named.items() if digest}

    def facts(self) -> dict[str, Any]:
        """The facts by name, as JSON."""
        optional = self.OPTIONAL | {"copied_from"}
        own = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in self.DIGESTS}
        there = {name: value for name, value in own.items() if value is not None or name not in optional}
        return {self.FACTS.get(name, name): value for name, value in there.items()}

    def to_json(self) -> dict[str, Any]:
        return {"digests": self.digests(), "facts": self.facts()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """The output that `to_json` wrote. Raises KeyError where the step is not finished."""
        digests, facts = value["digests"], value["facts"]
        own = [one for one in fields(cls) if one.name not in cls.DIGESTS]
        read = {one.name: facts.get(cls.FACTS.get(one.name, one.name), _empty(one.type)) for one in own}
        return cls(**{one: digests.get(name, "") for one, name in cls.DIGESTS.items()}, **read)


def _empty(annotation: Any) -> Any:
    """0, "", [] or {} of a field's type; None of one that may be None."""
    kind = get_origin(annotation) or annotation
    return kind() if kind in (int, str, bool, list, dict) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicingOut(StepOutput):
    """`gold_train` and `gold_heldout` are the two sides of the split, as JSONL. `is_heldout_named` is True where the
    spec itself names the held-out side, `n_gold_left_out` counts what then shares a text or a group with it."""

    STEP = StepName.SLICING
    OPTIONAL = frozenset({"is_heldout_named", "n_gold_left_out"})
    DIGESTS = {"gold_train": "gold_train", "gold_heldout": "gold_heldout"}

    gold_train: str
    gold_heldout: str
    n_slices: int
    n_gold_train: int
    n_gold_heldout: int
    n_captures: int
    embedder: str
    slices: list[dict[str, Any]]
    is_heldout_named: bool | None = None
    n_gold_left_out: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SynthesisOut(StepOutput):
    """`candidates` is the digest of the candidates' keys, `drafts` what the receipt says of the draft cache."""

    STEP = StepName.SYNTHESIS
    DIGESTS = {"candidates": "candidates"}
    OPTIONAL = frozenset({"n_copied"})

    candidates: str
    slices: list[dict[str, Any]]
    drafts: dict[str, Any]
    n_copied: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationOut(StepOutput):
    """`scores` is the digest of states and scores by candidate; `signal` is by slice, `signals` counts the candidates
    that were scored by each. `verifier` is "spec" or "default"; `reward` tells who gave rewards, to how many, and how
    they became scores."""

    STEP = StepName.VERIFICATION
    DIGESTS = {"scores": "scores"}
    OPTIONAL = frozenset({"reward"})

    scores: str
    n_candidates: int
    n_valid: int
    rejected_for: dict[str, int]
    signal: dict[str, str]
    signals: dict[str, int] = field(default_factory=dict)
    verifier: str = ""
    reward: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionOut(StepOutput):
    """`picks` is the digest of the picks' keys, `drafts` what the receipt says of the draft cache, verdicts included;
    an ablation says how many labels it did not have to buy."""

    STEP = StepName.SELECTION
    DIGESTS = {"picks": "picks"}
    OPTIONAL = frozenset({"drafts", "n_labels_reused", "reused_label_cost_microusd"})

    picks: str
    method: str
    n_picked: int
    n_drafts: int
    slices: list[dict[str, Any]]
    drafts: dict[str, Any] | None = None
    n_labels_reused: int | None = None
    reused_label_cost_microusd: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelingOut(StepOutput):
    """`dataset` are the pairs that train, `completions` those that train a causal base where they are others: labels as
    answers, all `n_samples` different answers, or answers of which `n_soft_targets` have the teacher's distributions.
    `observations` are the samples behind the answers, `rules` a rules.json and `random_labels` the pairs that were
    bought at random (lines with `input` and `label`); "" for none. `labels` is the digest of the votes, which `votes`
    counts: all, and the inputs by how many they have. `purchases` are the rounds of a label task that followed the
    first picks, each with what was known before it, `at_end` is what was known after the last, and `stopped_for` says
    why there were no more; `noise` is the teacher's estimated error, `curve` what further labels had brought, and
    `cuts` how parts of the pairs did beside all, out of fold. `extraction` is the plan of a json task that a span
    student can answer, "" of one that it cannot, and `extraction_plan` what was learned of either."""

    STEP = StepName.LABELING
    DIGESTS = {
        "dataset": "dataset",
        "labels": "labels",
        "completions": "completions",
        "observations": "observations",
        "rules": "rules",
        "random_labels": "random_labels",
        "extraction": "extraction",
    }
    FACTS = {"rule_induction": "rules", "extraction_plan": "extraction"}
    OPTIONAL = frozenset(
        {"unverified_for", "votes", "noise", "purchases", "at_end", "stopped_for", "curve", "cuts"}
        | {"n_samples", "n_soft_targets", "extraction_plan"}
    )

    dataset: str
    labels: str
    completions: str = ""
    observations: str = ""
    rules: str = ""
    random_labels: str = ""
    extraction: str = ""
    n_labeled: int
    n_labeled_before: int
    n_unverified: int
    n_synthetic_pairs: int
    n_gold_pairs: int
    n_pairs: int
    label_samples: int
    balance: dict[str, Any] | None
    selection: dict[str, Any]
    rule_induction: dict[str, Any] | None = None
    unverified_for: dict[str, int] | None = None
    votes: dict[str, Any] | None = None
    noise: dict[str, Any] | None = None
    purchases: list[dict[str, Any]] | None = None
    at_end: dict[str, Any] | None = None
    stopped_for: str | None = None
    curve: list[dict[str, Any]] | None = None
    cuts: list[dict[str, Any]] | None = None
    n_samples: int | None = None
    n_soft_targets: int | None = None
    extraction_plan: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillationOut(StepOutput):
    """`training` is what receipts and the API tell about the training that the first trial was."""

    STEP = StepName.DISTILLATION
    DIGESTS = {"adapter": "adapter"}

    adapter: str
    trial: Trial
    attempts: int
    job: str
    training: Mapping[str, Any] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        return {**self.training, "attempts": self.attempts, "trial": self.trial.to_json(), "job": self.job}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        facts = dict(value["facts"])
        return cls(
            adapter=value["digests"]["adapter"],
            trial=Trial.from_json(facts.pop("trial")),
            attempts=facts.pop("attempts", 1),
            job=facts.pop("job", ""),
            training=facts,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationOut(StepOutput):
    """`evals` are the held-out answers of the chosen trial, `figures` what is made of them, `trials` a line for each
    trial, `chosen` the number of the best."""

    STEP = StepName.EVALUATION
    DIGESTS = {"evals": "evals"}

    evals: str
    figures: Mapping[str, Any]
    trials: list[dict[str, Any]]
    chosen: int

    @property
    def best_trial(self) -> dict[str, Any]:
        """The line of the trial whose model was kept; {} of an evaluation without trials."""
        return self.trials[self.chosen] if self.trials else {}

    @property
    def competition(self) -> dict[str, Any]:
        """The trials that competed, and the number of the one that was kept."""
        return {"trials": self.trials, "chosen": self.chosen}

    def facts(self) -> dict[str, Any]:
        return {**self.figures, **self.competition}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        facts = dict(value["facts"])
        return cls(
            evals=value["digests"].get("evals", ""),
            trials=facts.pop("trials", []),
            chosen=facts.pop("chosen", 0),
            figures=facts,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOut(StepOutput):
    """The score and the decision, the blobs that hold them for the artifact, and the quality card."""

    STEP = StepName.GATE
    DIGESTS = {"k_score_sha256": "k_score", "gate_sha256": "gate"}
    OPTIONAL = frozenset({"card"})

    k_score_sha256: str
    gate_sha256: str
    passed: bool
    k_score: dict[str, Any]
    gate: dict[str, Any]
    card: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PackagingOut(StepOutput):
    """`kolm` is the digest of the file, `artifact` the public id under which it is published."""

    STEP = StepName.PACKAGING
    DIGESTS = {"kolm": "kolm"}

    kolm: str
    artifact: str
    version: int
    size_bytes: int
