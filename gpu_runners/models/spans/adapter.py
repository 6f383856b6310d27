"""A span student's adapter as bytes. Needs no torch.

One safetensors blob: `lora.<module>.A` and `.B` as a label adapter has them, and linear heads on the last layer's
states: `tags.<layer>` of one tagging each, (1 + 2 n, d) for its n leaves, rows outside, begins, goes on, begins ...;
`opens` (1, d), whether a span begins a new element of its list, where the plan has lists of objects;
`elements.<rule>` (n_choices, d) of each closed set in such a list, on the token that opens the element;
`classes.<rule>` (n_choices, d) of each closed set, on the mean of the states. `baseline.<head>` are the same heads
trained on the frozen base. `kinds` (N_FEATURES, d): what each feature of a token's kind adds to the embedding of its
word, where the adapter has it. All bfloat16 but biases; in memory float32.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from backend.domain.encoders.sentence_settings import MAX_PREFIX
from backend.domain.extraction.plan import ExtractionPlan
from gpu_runners.models.label_adapter import Head, finite_arrays, unfit
from gpu_runners.models.spans.kinds import LINE, N_FEATURES, N_KINDS, N_SHAPES, SENTENCE
from gpu_runners.models.tensor_files import Array, save_arrays

FORMAT = "kolm.spans-encoder/1"
TAGS, OPENS, ELEMENTS, CLASSES, BASELINE = "tags.", "opens", "elements.", "classes.", "baseline."
KINDS = "kinds"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanConfig:
    """The settings that the tensors do not hold. Whole numbers and texts only: it is signed as it stands."""

    format: str
    base: str
    base_sha256: str
    rank: int
    alpha: int
    target_modules: list[str]
    max_tokens: int
    prefix: str

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Raises JobFailed(invalid_adapter) unless it is exactly a config that this code computes."""
        names = {field.name for field in dataclasses.fields(cls)}
        if set(data) != names:
            raise unfit(f"its config has the keys {sorted(data)}, not {sorted(names)}")
        config = cls(**data)
        if config.format != FORMAT:
            raise unfit(f"its config is not of the kind {FORMAT}")
        if not isinstance(config.prefix, str) or len(config.prefix) > MAX_PREFIX:
            raise unfit(f"its prefix is not a text of at most {MAX_PREFIX} characters")
        if not all(type(n) is int and 0 < n <= 8192 for n in (config.rank, config.alpha, config.max_tokens)):
            raise unfit("rank, alpha and max_tokens must be whole numbers in [1, 8192]")
        return config


def features() -> Array:
    """(N_KINDS, N_FEATURES) float32: the features of each kind, 0 or 1."""
    out = np.zeros((N_KINDS, N_FEATURES), np.float32)
    for kind in range(1, N_KINDS):
        flags, shape = divmod(kind - 1, N_SHAPES)
        out[kind, shape] = 1
        out[kind, LINE], out[kind, SENTENCE] = flags & 1, flags >> 1
    return out


def is_spans(config: Mapping[str, Any]) -> bool:
    """Say whether an adapter_config.json is a span student's."""
    return config.get("format") == FORMAT


def head_sizes(plan: ExtractionPlan, *, has_lists: bool) -> dict[str, int]:
    """The heads of a plan by their names, with their numbers of rows."""
    sizes = {f"{TAGS}{n}": 1 + 2 * len(layer) for n, layer in enumerate(plan.layers)}
    if has_lists:
        sizes[OPENS] = 1
    sizes |= {f"{ELEMENTS}{i}": len(plan.rules[i].choices) for i in plan.element_rules()}
    return sizes | {f"{CLASSES}{i}": len(plan.rules[i].choices) for i in plan.class_rules()}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanAdapter:
    """`lora` maps a module's path inside the base to its (A, B); `heads` and `baseline` have the names of
    `head_sizes`."""

    lora: Mapping[str, tuple[Array, Array]]
    heads: Mapping[str, Head]
    baseline: Mapping[str, Head]
    kinds: Array | None = None

    @property
    def n_parameters(self) -> int:
        """The number of trained parameters: LoRA matrices, heads and kinds, not the baseline."""
        heads = sum(head.weight.size + head.bias.size for head in self.heads.values())
        kinds = 0 if self.kinds is None else self.kinds.size
        return sum(a.size + b.size for a, b in self.lora.values()) + heads + kinds

    def added_kinds(self) -> Array | None:
        """(N_KINDS, d): what each kind adds to the embedding of a token's word."""
        return None if self.kinds is None else features() @ self.kinds


def to_bytes(adapter: SpanAdapter) -> bytes:
    tensors: dict[str, Array] = {}
    for path, (a, b) in adapter.lora.items():
        tensors[f"lora.{path}.A"], tensors[f"lora.{path}.B"] = a, b
    if adapter.kinds is not None:
        tensors[KINDS] = adapter.kinds
    for prefix, heads in (("", adapter.heads), (BASELINE, adapter.baseline)):
        for name, head in heads.items():
            tensors[f"{prefix}{name}.weight"], tensors[f"{prefix}{name}.bias"] = head.weight, head.bias
    return save_arrays(tensors, in_bf16=lambda name: not name.endswith(".bias"))


def from_bytes(data: bytes, sizes: Mapping[str, int]) -> SpanAdapter:
    """Raises JobFailed(invalid_adapter) for anything but LoRA pairs and the heads of these sizes, whole and finite."""
    tensors = finite_arrays(data)
    heads = {name: _head(tensors, name, rows) for name, rows in sizes.items()}
    baseline = {name: _head(tensors, f"{BASELINE}{name}", rows) for name, rows in sizes.items()}
    kinds = tensors.pop(KINDS, None)
    if kinds is not None and (kinds.ndim != 2 or len(kinds) != N_FEATURES):
        raise unfit(f"its kinds are {kinds.shape}, not {N_FEATURES} vectors")
    paths = sorted({name.removeprefix("lora.")[:-2] for name in tensors})
    if set(tensors) != {f"lora.{path}.{side}" for path in paths for side in "AB"}:
        raise unfit("it has tensors that are neither a head nor a whole LoRA pair")
    lora = {path: (tensors[f"lora.{path}.A"], tensors[f"lora.{path}.B"]) for path in paths}
    return SpanAdapter(lora=lora, heads=heads, baseline=baseline, kinds=kinds)


def _head(tensors: dict[str, Array], name: str, rows: int) -> Head:
    weight, bias = tensors.pop(f"{name}.weight", None), tensors.pop(f"{name}.bias", None)
    if weight is None or bias is None or weight.ndim != 2 or weight.shape[0] != rows or bias.shape != (rows,):
        raise unfit(f"the weight and bias of its head {name!r} are missing or do not fit the plan")
    return Head(weight=weight, bias=bias)
