"""The jobs of a generative task, as they cross the seam between the backend and a runner (`runner_jobs` has the rules
of that seam and the jobs of an encoder).

A prompt is never sent: both sides make it from the task's system message and one input (`gpu_runners.models.chat`), so
that training, evaluation and serving cannot differ.
"""

from dataclasses import dataclass, field
from typing import Any

from backend.domain.jobs.runner_jobs import Wire


@dataclass(frozen=True, slots=True, kw_only=True)
class CausalOptions(Wire):
    """Hyper-parameters of one LoRA distillation on a causal base. "auto" is what the device and the libraries at hand
    allow; what was really active stands in the result's `active`."""

    rank: int = 8
    alpha: int = 16
    dropout: float = 0.0
    variant: str = "lora"  # lora | rslora | dora | qlora
    learning_rate: float = 0.0  # 0: chosen by the width of the base
    epochs: int = 3
    tokens_per_step: int = 4096  # of prompt and completion, in one optimiser step
    max_tokens: int = 1024  # of one example; a longer one is left out and counted
    warmup_share: float = 0.05
    seed: int = 7
    precision: str = "auto"  # auto | fp32 | bf16
    batching: str = "auto"  # auto | shared_prefix | packed | bucketed | padded
    optimizer: str = "auto"  # auto | adamw | paged_adamw_8bit
    kernels: str = "auto"  # auto | liger | plain
    attention: str = "auto"  # auto | sdpa | flash_attention_2 | flex_attention
    patch_size: int = 1  # above 1: the first `patch_share` of the steps predict patches of so many tokens
    patch_share: float = 0.0
    validation_share: float = 0.1  # of the pairs, for early stopping; never the held-out gold
    patience: int = 2  # epochs without a lower validation loss before it stops; 0: never
    soft_weight: float = 0.0  # of the teacher's distribution in the loss of a token, where the dataset has it
    divergence: str = "jsd"  # forward_kl | reverse_kl | jsd: of a student's own answers, where the dataset has some


@dataclass(frozen=True, slots=True, kw_only=True)
class StudentSampling(Wire):
    """The way in which a trained student answers inputs for on-policy distillation: once each, at `temperature`, in the
    form that `answer` says (as of an EvaluateCausalJob)."""

    answer: dict[str, Any]
    max_new_tokens: int
    temperature: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillCausalJob(Wire):
    """Train one LoRA adapter on completions.

    `dataset_sha256` is a JSONL blob, one `{"input": str, "output": str, "weight": float}` a line, in the order that
    the seed permutes. A line may have `soft_targets` too: of each token of the output, as the teacher wrote it, its
    text and the log-probs of the likeliest in its place (`[[text, {text: log-prob}], ...]`). With `"on_policy": true`
    the output is the student's own, and only the teacher's distributions of its tokens are learnt. `system` opens every
    chat. `start_sha256` is the adapter that the training goes on from, with its `start_config` ("": a new one).
    `sampling`: a StudentSampling as JSON, by which the trained student answers the `{"input": str}` lines of the blob
    `sampled_sha256`; {}: it answers none.
    """

    base_model: str
    system: str
    dataset_sha256: str
    options: dict[str, Any]  # CausalOptions.to_json()
    checkpoint_every_s: float = 20.0
    start_sha256: str = ""
    start_config: dict[str, Any] = field(default_factory=dict)
    sampling: dict[str, Any] = field(default_factory=dict)
    sampled_sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillCausalResult(Wire):
    """`adapter_sha256` is a safetensors blob as `gpu_runners.models.causal_adapter` writes it; `adapter_config` is its
    AdapterConfig, whole numbers and texts alone. `training_log` has one row an epoch, `active` what was really switched
    on. `n_tokens` are those of the pairs that were read in all epochs (0: a runner that counts none). `samples_sha256`
    is a JSONL blob of the student's own answers, `{"input": str, "output": str}` a line ("": none were asked for), for
    which `n_read` tokens of prompts were read and `n_written` written."""

    adapter_sha256: str
    adapter_config: dict[str, Any]
    base_model_sha256: str
    tokenizer_sha256: str
    n_pairs: int
    n_parameters: int
    training_log: list[dict[str, Any]]
    active: dict[str, Any]
    runner_ms: int
    resumed_from_step: int
    n_tokens: int = 0
    samples_sha256: str = ""
    n_read: int = 0
    n_written: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateCausalJob(Wire):
    """Answer held-out inputs, greedily, with the adapter and with the bare base under the same constraint. The gold
    answers stay behind.

    `inputs_sha256` is a JSONL blob of `{"input": str}` lines. `answer` says what an answer is: `{"type": "json",
    "schema": {...}}` (decoding is constrained to the schema), `{"type": "label", "labels": [...]}` (constrained to one
    of them) or `{"type": "text"}`. `rules_sha256` is a rules.json ("": none).
    """

    base_model: str
    base_model_sha256: str
    system: str
    answer: dict[str, Any]
    max_new_tokens: int
    adapter_sha256: str
    adapter_config: dict[str, Any]
    inputs_sha256: str
    rules_sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateCausalResult(Wire):
    """Row i of every list belongs to input i; `rule_answers` are as in EvaluateResult, all else is the model's own.
    `finish_reasons` are stop or length. `confidences` in [0, 1] are the probability of the whole answer under the
    constraint. `latency_us` are single-input wall times of a sample of the inputs, warm, `ruled_latency_us` the same
    with the rules first; the own times are as in EvaluateResult, `own_tokens` what the model's own answers of that
    sample have; `engine` says what computed them. `n_read` are the tokens of the prompts and `n_written` those of the
    answers, of adapter and bare base together (0: not counted)."""

    outputs: list[str]
    finish_reasons: list[str]
    n_tokens: list[int]
    confidences: list[float]
    baseline_outputs: list[str]
    rule_answers: list[str | None] = field(default_factory=list)
    latency_us: list[int]
    ruled_latency_us: list[int] = field(default_factory=list)
    own_ns: list[int] = field(default_factory=list)
    ruled_own_ns: list[int] = field(default_factory=list)
    own_tokens: list[int] = field(default_factory=list)
    own_reference_ns: int = 0
    own_clock: str = ""
    device: str
    engine: dict[str, Any]
    runner_ms: int
    n_read: int = 0
    n_written: int = 0
