"""The seam between the backend and a runner, as JSON values. Both sides import this module and nothing
else of each other.

A job names its inputs and outputs by sha256 in the blob store; a runner holds no credential but the job's own token.
`to_json`/`from_json` are strict: an unknown key, or a missing one that has no default, is a ValueError, so that the two
sides cannot drift apart silently. What a release adds to a payload or a result has a default that means what the
release before did: its jobs may still be queued, and its runners at work.
"""

import dataclasses
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

_PART = "[A-Za-z0-9][A-Za-z0-9._-]*"
# a base model: a name, owner/model of a hub, or owner/model@revision, a commit, tag or branch of it
BASE_NAME = f"^{_PART}(/{_PART}(@{_PART})?)?$"


class RunnerJobKind(StrEnum):
    CHECK_BASE = "check_base"
    DISTILL = "distill"
    DISTILL_CAUSAL = "distill_causal"
    DISTILL_SPANS = "distill_spans"
    EVALUATE = "evaluate"
    EVALUATE_CAUSAL = "evaluate_causal"
    EVALUATE_SPANS = "evaluate_spans"
    INFER = "infer"
    PACK_RECIPES = "pack_recipes"
    SELECT = "select"


class SelectStage(StrEnum):
    """The stage of a select job: embedding its texts, looking for neighbours, joining clusters, or at anything else. A
    heartbeat's note is free text; these words alone are kept of it, beside its counts."""

    EMBEDDING = "embedding"
    NEIGHBOURS = "neighbours"
    CLUSTERING = "clustering"
    SELECTING = "selecting"


class Wire:
    """Strict JSON in and out for flat frozen dataclasses."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)  # type: ignore[call-overload,no-any-return]

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        fields = dataclasses.fields(cls)  # type: ignore[arg-type]
        needed = {f.name for f in fields if f.default is f.default_factory is dataclasses.MISSING}
        missing, unknown = needed - set(data), set(data) - {f.name for f in fields}
        if missing or unknown:
            raise ValueError(f"{cls.__name__}: missing {sorted(missing)}, unknown {sorted(unknown)}")
        return cls(**data)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions(Wire):
    """Hyper-parameters of one LoRA distillation on an encoder (settings measured in docs/decisions)."""

    rank: int = 8
    alpha: int = 16
    dropout: float = 0.05
    learning_rate: float = 2e-3
    epochs: int = 7
    batch_size: int = 16
    warmup_share: float = 0.1
    max_tokens: int = 128
    seed: int = 7
    precision: str = "auto"  # auto | fp32 | bf16
    validation_share: float = 0.33  # of the training pairs that a fold of the calibration holds; never held-out gold
    layers: int = 0  # the top layers that train; 0: all
    student: str = "auto"  # auto | adapter | contrastive | frozen (students.Student)


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillJob(Wire):
    """Train one LoRA adapter + linear head on labelled pairs.

    `dataset_sha256` is a JSONL blob, one `{"input": str, "label": str, "weight": float}` a line, in the order that the
    seed permutes. A line whose label is not sure has `"targets": {label: int}` too: parts of a million, the label's the
    greatest.
    """

    base_model: str
    labels: list[str]
    dataset_sha256: str
    train: dict[str, Any]  # TrainOptions.to_json()
    checkpoint_every_s: float = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillResult(Wire):
    """`adapter_sha256` is a safetensors blob with the LoRA matrices, `head.weight` (n_labels, d), `head.bias`
    (n_labels,), and the same for the frozen-base baseline as `baseline.weight`, `baseline.bias`. `training_log` has one
    row per epoch. `active` says what was really switched on. `held_confidences_ppm` and `held_right` are the calibrated
    answers to the pairs that the calibrating fit did not train on, one entry each ([] where there are none). `n_tokens`
    are the tokens of the pairs, each counted once in every epoch of the adapter's own fit, once in all where the frozen
    head is the `student` (0: a runner that counts none). `student` is "" of a runner that knows adapters alone;
    `competition` are `students.Standing`s as JSON, the student's own first ([] where nobody was asked)."""

    adapter_sha256: str
    adapter_config: dict[str, Any]
    base_model_sha256: str
    n_pairs: int
    n_parameters: int
    temperature: float
    training_log: list[dict[str, Any]]
    active: dict[str, Any]
    runner_ms: int
    resumed_from_epoch: int
    held_confidences_ppm: list[int] = field(default_factory=list)
    held_right: list[bool] = field(default_factory=list)
    n_tokens: int = 0
    student: str = ""
    competition: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateJob(Wire):
    """Predict labels for held-out inputs. The labels stay behind: a runner cannot leak or overfit what it never sees.

    `inputs_sha256` is a JSONL blob of `{"input": str}` lines, `rules_sha256` a rules.json ("": none). `gold_sha256` is
    the gold that trains, as the lines of a DistillJob's dataset: a head on the frozen base is fitted on it alone ("":
    none is); `random_sha256` are lines of labels that were bought at random, for a head of their own."""

    base_model: str
    base_model_sha256: str
    labels: list[str]
    adapter_sha256: str
    adapter_config: dict[str, Any]
    temperature: float
    inputs_sha256: str
    rules_sha256: str = ""
    gold_sha256: str = ""
    random_sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateResult(Wire):
    """Row i belongs to input i; `predictions` are the model's own, `rule_answers` what the rules say before it (None:
    nothing; [] where the job has no rules), `gold_predictions` and `random_predictions` those of the heads that were
    fitted on gold alone and on random labels ([] where none was). `latency_us` are single-input wall times of the model
    on a sample of the inputs, warm; `ruled_latency_us` those of rules and then model on the same sample ([] without
    rules). `own_ns` and `ruled_own_ns` are the own times of such answers by `own_clock`, beside `own_reference_ns` of
    the reference workload, and `head_own_ns` those of a head on the frozen base, beside its own `head_reference_ns` ([]
    from runners that measured none). `n_tokens` are the tokens of inputs, gold and random labels (0: not
    counted)."""

    predictions: list[str]
    confidences: list[float]
    baseline_predictions: list[str]
    gold_predictions: list[str] = field(default_factory=list)
    random_predictions: list[str] = field(default_factory=list)
    rule_answers: list[str | None] = field(default_factory=list)
    latency_us: list[int]
    ruled_latency_us: list[int] = field(default_factory=list)
    own_ns: list[int] = field(default_factory=list)
    ruled_own_ns: list[int] = field(default_factory=list)
    own_reference_ns: int = 0
    own_clock: str = ""
    head_own_ns: list[int] = field(default_factory=list)
    head_reference_ns: int = 0
    device: str
    runner_ms: int
    n_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class InferJob(Wire):
    """Run a published `.kolm` (by the sha256 of its bytes) on a few inputs, at once. `grant` says whose it is where it
    has a recipe pack, whose feedback is told under it ("": none is told)."""

    artifact_sha256: str
    inputs: list[str]
    grant: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InferResult(Wire):
    """One row an input. A label task's: `{"label": str, "confidence": float, "latency_us": int}`; a json or text
    task's: `{"output": str, "finish_reason": "stop" | "length", "n_tokens": int, "latency_us": int}`."""

    outputs: list[dict[str, Any]]
    load_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectJob(Wire):
    """Choose `k` of `n` rows with `domain.selection.select`.

    `columns_sha256` is a JSON blob `{"selection": id, "ids": [text], "scores": [number] or null, "labels": [text] or
    null}`. `rows_sha256` is, for `width` 0, a JSONL blob of texts, one JSON string a line; else `n * width` float32,
    little-endian, row by row. Both begin with what makes them this selection's own: the first line of the texts is the
    selection's id, the first ROWS_OFFSET bytes of the numbers are its UUID. `options` are the keyword arguments of
    `select` other than k.
    """

    columns_sha256: str
    rows_sha256: str
    n: int
    width: int
    k: int
    options: dict[str, Any]


ROWS_OFFSET = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectResult(Wire):
    """`picks` are row numbers, best first, and `nearest_pick_ppm` belongs to them; `cluster_of` has one cluster a row,
    -1 for a row below the score floor (`floor_dropped`). `report` is `SelectionReport.to_json()` without its columns of
    one entry a row, `log` the cohesion log as text. `embedder` and `n_tokens` are "" and 0 for embeddings that the
    customer brought."""

    picks: list[int]
    nearest_pick_ppm: list[int | None]
    cluster_of: list[int]
    floor_dropped: list[int]
    report: dict[str, Any]
    log: str
    embedder: str
    n_tokens: int
    runner_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim(Wire):
    """The answer to a successful claim. `token` opens this job's endpoints only, until the lease is lost."""

    job_id: str
    kind: str
    token: str
    payload: dict[str, Any]
    lease_s: float
    attempt: int
    checkpoint_sha256: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(Wire):
    """A heartbeat's body; counts, not rates. `loss` is None before the first step. `checkpoint_step` is the step that
    `checkpoint_sha256` was made at (0: a runner of the release before, which does not say). `unkept` says why the last
    checkpoint, of `unkept_bytes`, could not be handed over (`blob_transfers.Unkept`; "": it was, or this was said
    before)."""

    step: int
    n_steps: int
    loss: float | None
    eta_s: float | None
    checkpoint_sha256: str | None
    note: str
    checkpoint_step: int = 0
    unkept: str = ""
    unkept_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswer(Wire):
    """The answer to a heartbeat. `cancel`: stop, the job is over. `preempt`: hand over a checkpoint and give the job
    back (`fair_turns`); a job that cannot, and a runner of the release before, works on."""

    cancel: bool
    lease_s: float
    preempt: bool = False
