"""An adapter as bytes. Needs no torch.

One safetensors blob: `lora.<module>.A` (r, in) and `lora.<module>.B` (out, r) for every adapted linear layer,
`head.weight` (n_labels, d), `head.bias` (n_labels,), and the same for the frozen-base baseline as `baseline.*`. Pairs
are bfloat16, heads float32; older blobs are float32 throughout. In memory all are float32. Never a pickle.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from backend.domain.encoders.sentence_settings import MAX_PREFIX, Pooling
from gpu_runners.errors import JobFailed
from gpu_runners.models.tensor_files import Array, load_arrays, save_arrays

FORMAT = "kolm.lora-encoder/1"
SCALE = 16  # of the logits, see encoder.py


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterConfig:
    """The settings that the tensors do not hold. Integers and strings only: it is signed as it stands. `pooling`,
    `prefix` and `max_tokens` are how the base read each text in training, and how every text is read afterwards,
    whatever the base's files say then."""

    format: str
    base: str
    base_sha256: str
    rank: int
    alpha: int
    target_modules: list[str]
    pooling: str
    normalize: bool
    scale: int
    max_tokens: int
    prefix: str = ""  # left out of the JSON where there is none, as before there were any

    def to_json(self) -> dict[str, Any]:
        data = dataclasses.asdict(self)
        return data if self.prefix else {key: value for key, value in data.items() if key != "prefix"}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Raises JobFailed(invalid_adapter) unless it is exactly a config that this code computes."""
        types = {f.name: f.type for f in dataclasses.fields(cls)}
        if set(data) | {"prefix"} != set(types):
            raise unfit(f"its config has the keys {sorted(data)}, not {sorted(types)}")
        config = cls(**data)
        if (config.format, config.normalize, config.scale) != (FORMAT, True, SCALE):
            raise unfit(f"its config is not of the kind {FORMAT}")
        if config.pooling not in set(Pooling):
            raise unfit(f"this version does not compute its pooling {config.pooling!r}")
        if not isinstance(config.prefix, str) or len(config.prefix) > MAX_PREFIX:
            raise unfit(f"its prefix is not a text of at most {MAX_PREFIX} characters")
        if not all(type(n) is int and 0 < n <= 4096 for n in (config.rank, config.alpha, config.max_tokens)):
            raise unfit("rank, alpha and max_tokens must be whole numbers in [1, 4096]")
        return config


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """`weight` (n_labels, d), `bias` (n_labels,)."""

    weight: Array
    bias: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """`lora` maps a module's path inside the base to its (A, B); delta W = B @ A * alpha / rank."""

    lora: Mapping[str, tuple[Array, Array]]
    head: Head
    baseline: Head

    @property
    def n_parameters(self) -> int:
        """The number of trained parameters: LoRA matrices and head, not the baseline."""
        return sum(a.size + b.size for a, b in self.lora.values()) + self.head.weight.size + self.head.bias.size


def to_bytes(adapter: Adapter) -> bytes:
    tensors: dict[str, Array] = {}
    for path, (a, b) in adapter.lora.items():
        tensors[f"lora.{path}.A"], tensors[f"lora.{path}.B"] = a, b
    for name, head in (("head", adapter.head), ("baseline", adapter.baseline)):
        tensors[f"{name}.weight"], tensors[f"{name}.bias"] = head.weight, head.bias
    return save_arrays(tensors, in_bf16=lambda name: name.startswith("lora."))


def from_bytes(data: bytes) -> Adapter:
    """Raises JobFailed(invalid_adapter) for anything but the tensors above, whole and finite."""
    tensors = finite_arrays(data)
    heads = {}
    for name in ("head", "baseline"):
        weight, bias = tensors.pop(f"{name}.weight", None), tensors.pop(f"{name}.bias", None)
        if weight is None or bias is None or weight.ndim != 2 or bias.shape != weight.shape[:1]:
            raise unfit(f"the {name}'s weight and bias are missing or do not fit")
        heads[name] = Head(weight=weight, bias=bias)
    paths = sorted({name.removeprefix("lora.")[:-2] for name in tensors})
    if set(tensors) != {f"lora.{path}.{side}" for path in paths for side in "AB"}:
        raise unfit("it has tensors that are neither a head nor a whole LoRA pair")
    lora = {path: (tensors[f"lora.{path}.A"], tensors[f"lora.{path}.B"]) for path in paths}
    return Adapter(lora=lora, head=heads["head"], baseline=heads["baseline"])


def deltas(adapter: Adapter, config: AdapterConfig) -> Iterator[tuple[str, Array]]:
    """(module path, B @ A * alpha / rank) for every adapted layer. Raises JobFailed(invalid_adapter) for another rank
    than the config's."""
    yield from lora_deltas(adapter.lora, rank=config.rank, alpha=config.alpha)


def lora_deltas(lora: Mapping[str, tuple[Array, Array]], *, rank: int, alpha: int) -> Iterator[tuple[str, Array]]:
    """(module path, B @ A * alpha / rank) for every adapted layer. Raises JobFailed(invalid_adapter) for another rank
    than `rank`."""
    for path, (a, b) in lora.items():
        if a.ndim != 2 or b.ndim != 2 or a.shape[0] != rank or b.shape[1] != rank:
            raise unfit(f"the LoRA pair of {path!r} is not of rank {rank}")
        yield path, b @ a * np.float32(alpha / rank)


def finite_arrays(data: bytes) -> dict[str, Array]:
    """The tensors of an adapter's blob as float32. Raises JobFailed(invalid_adapter)."""
    try:
        tensors = load_arrays(data)
    except ValueError as error:
        raise unfit(f"it is not a safetensors file of floats ({error})") from error
    for name, tensor in tensors.items():
        if not np.isfinite(tensor).all():
            raise unfit(f"the tensor {name!r} is not finite")
    return tensors


def unfit(why: str) -> JobFailed:
    return JobFailed(f"The adapter cannot be used: {why}.", code="invalid_adapter")
