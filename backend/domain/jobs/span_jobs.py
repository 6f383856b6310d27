"""The jobs of a json task whose student extracts, as they cross the seam between the backend and a runner
(`runner_jobs` has the rules of that seam)."""

from dataclasses import dataclass, field
from typing import Any

from backend.domain.jobs.runner_jobs import Wire


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanOptions(Wire):
    """Hyper-parameters of one LoRA distillation of heads for spans and classes on an encoder (measured in
    docs/benchmarks/spans.md)."""

    rank: int = 16
    alpha: int = 32
    dropout: float = 0.1  # of what each layer adds to its input
    learning_rate: float = 2e-3
    epochs: int = 15
    batch_size: int = 16
    warmup_share: float = 0.1
    max_tokens: int = 256  # of a window; a longer input is read in windows that overlap
    seed: int = 7
    precision: str = "auto"  # auto | fp32 | bf16
    swap_share: float = 0.5  # of the texts of an epoch, in which values of other texts take the place of their own
    validation_share: float = 0.2  # of the pairs, which a fit of the others is asked about, for the confidences


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillSpansJob(Wire):
    """Train one LoRA adapter with its heads on an extraction's pairs.

    `dataset_sha256` is a JSONL blob, one `{"input": str, "output": str, "weight": float}` a line, the output as
    `json_values.answer_text` spells it. `plan` is the `ExtractionPlan` as JSON; `schema` the task's.
    """

    base_model: str
    schema: dict[str, Any]
    plan: dict[str, Any]
    dataset_sha256: str
    options: dict[str, Any]  # SpanOptions.to_json()
    checkpoint_every_s: float = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillSpansResult(Wire):
    """`adapter_sha256` is a safetensors blob as `gpu_runners.models.spans.adapter` writes it; `adapter_config` is its
    SpanConfig. `calibration` are the slopes and offsets, in millionths, that turn raw confidences into shares of right
    answers. `n_aligned` of the pairs gave all of their values a place. `n_tokens` are those of the pairs, each counted
    once in every epoch."""

    adapter_sha256: str
    adapter_config: dict[str, Any]
    base_model_sha256: str
    calibration: dict[str, list[int]]
    n_pairs: int
    n_aligned: int
    n_parameters: int
    training_log: list[dict[str, Any]]
    active: dict[str, Any]
    runner_ms: int
    resumed_from_epoch: int
    n_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateSpansJob(Wire):
    """Answer held-out inputs with the adapter, and with the same heads on the frozen base. The gold stays behind.
    `inputs_sha256` is a JSONL blob of `{"input": str}` lines, `rules_sha256` a rules.json ("": none)."""

    base_model: str
    base_model_sha256: str
    schema: dict[str, Any]
    plan: dict[str, Any]
    adapter_sha256: str
    adapter_config: dict[str, Any]
    calibration: dict[str, list[int]]
    inputs_sha256: str
    rules_sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateSpansResult(Wire):
    """Row i of every list belongs to input i. `outputs` are the model's own answers as JSON text, `confidences` in
    [0, 1] how sure it is of each as a whole; `fields` say of each answer's fields `{"path", "start", "end",
    "confidence_ppm"}`, offsets in code points, null where a value was not copied. Times and `rule_answers` are as in
    EvaluateResult. `n_tokens` are those of the inputs."""

    outputs: list[str]
    confidences: list[float]
    fields: list[list[dict[str, Any]]]
    baseline_outputs: list[str]
    rule_answers: list[str | None] = field(default_factory=list)
    latency_us: list[int]
    ruled_latency_us: list[int] = field(default_factory=list)
    own_ns: list[int] = field(default_factory=list)
    ruled_own_ns: list[int] = field(default_factory=list)
    own_reference_ns: int = 0
    own_clock: str = ""
    device: str
    runner_ms: int
    n_tokens: int = 0
