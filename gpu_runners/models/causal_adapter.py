"""A causal adapter as bytes, and as the folder that engines load. Needs no torch.

One safetensors blob: `lora.<module>.A` (r, in) and `lora.<module>.B` (out, r) in bfloat16 for every adapted linear
layer, with DoRA also `lora.<module>.magnitude` (out,) in float32, which multiplies whole outputs; older blobs are
float32 throughout. In memory all are float32. Never a pickle. `write_peft_folder` makes of it what PEFT, vLLM and our
own engine read: adapter_model.safetensors and adapter_config.json.
"""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from gpu_runners.models.label_adapter import finite_arrays, unfit
from gpu_runners.models.tensor_files import Array, is_bf16, save_arrays

FORMAT = "kolm.lora-causal/1"
VARIANTS = ("lora", "rslora", "dora", "qlora")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterConfig:
    """The settings that the tensors do not hold. Whole numbers and texts only: it is signed as it stands. `variant`
    qlora: the base was quantised to 4 bits while the adapter was trained."""

    format: str
    base: str
    base_sha256: str
    tokenizer_sha256: str
    rank: int
    alpha: int
    variant: str
    target_modules: list[str]
    max_tokens: int

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Raises JobFailed(invalid_adapter)."""
        names = {f.name for f in dataclasses.fields(cls)}
        if set(data) != names:
            raise unfit(f"its config has the keys {sorted(data)}, not {sorted(names)}")
        config = cls(**data)
        if config.format != FORMAT or config.variant not in VARIANTS:
            raise unfit(f"its config is not of the kind {FORMAT}")
        if not all(type(n) is int and 0 < n <= 1 << 20 for n in (config.rank, config.alpha, config.max_tokens)):
            raise unfit("rank, alpha and max_tokens must be whole numbers above 0")
        if not isinstance(config.target_modules, list) or not all(isinstance(m, str) for m in config.target_modules):
            raise unfit("target_modules is no list of names")
        return config

    @property
    def scaling(self) -> float:
        """The factor of B @ A (rsLoRA: Kalajdzievski 2023, eq. 6)."""
        return self.alpha / (self.rank**0.5 if self.variant == "rslora" else self.rank)


@dataclass(frozen=True, slots=True, kw_only=True)
class CausalAdapter:
    """`lora` maps a module's path inside the base (`model.layers.0.self_attn.q_proj`) to its (A, B); `magnitude` is
    empty but for DoRA."""

    lora: Mapping[str, tuple[Array, Array]]
    magnitude: Mapping[str, Array]

    @property
    def n_parameters(self) -> int:
        return sum(a.size + b.size for a, b in self.lora.values()) + sum(m.size for m in self.magnitude.values())


def to_bytes(adapter: CausalAdapter) -> bytes:
    tensors: dict[str, Array] = {}
    for path, (a, b) in adapter.lora.items():
        tensors[f"lora.{path}.A"], tensors[f"lora.{path}.B"] = a, b
    for path, m in adapter.magnitude.items():
        tensors[f"lora.{path}.magnitude"] = m
    return save_arrays(tensors, in_bf16=lambda name: not name.endswith(".magnitude"))


def from_bytes(data: bytes, config: AdapterConfig) -> CausalAdapter:
    """Raises JobFailed(invalid_adapter) for anything but whole, finite LoRA pairs of the config's rank."""
    tensors = finite_arrays(data)
    magnitude = {
        name.removeprefix("lora.").removesuffix(".magnitude"): tensors.pop(name)
        for name in list(tensors)
        if name.endswith(".magnitude")
    }
    paths = sorted({name.removeprefix("lora.")[:-2] for name in tensors})
    if not paths or set(tensors) != {f"lora.{path}.{side}" for path in paths for side in "AB"}:
        raise unfit("it has tensors that are no whole LoRA pair")
    lora = {path: (tensors[f"lora.{path}.A"], tensors[f"lora.{path}.B"]) for path in paths}
    if any(
        a.ndim != 2 or b.ndim != 2 or a.shape[0] != config.rank or b.shape[1] != config.rank for a, b in lora.values()
    ):
        raise unfit(f"a pair is not of rank {config.rank}")
    if set(magnitude) != (set(paths) if config.variant == "dora" else set()):
        raise unfit("its magnitudes do not fit its variant")
    return CausalAdapter(lora=lora, magnitude=magnitude)


def write_peft_folder(folder: Path, adapter: CausalAdapter, config: AdapterConfig) -> None:
    """`folder` must exist. Tensors that bfloat16 holds exactly are written in it, others in float32: engines compute
    with the numbers that were measured. `base_model_name_or_path` is the base's name, not a path of this machine."""
    tensors: dict[str, Array] = {}
    for path, (a, b) in adapter.lora.items():
        tensors[f"base_model.model.{path}.lora_A.weight"] = a
        tensors[f"base_model.model.{path}.lora_B.weight"] = b
    for path, m in adapter.magnitude.items():
        tensors[f"base_model.model.{path}.lora_magnitude_vector"] = m
    data = save_arrays(tensors, in_bf16=lambda name: is_bf16(tensors[name]), metadata={"format": "pt"})
    (folder / "adapter_model.safetensors").write_bytes(data)
    peft = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": config.base,
        "r": config.rank,
        "lora_alpha": config.alpha,
        "lora_dropout": 0.0,
        "use_rslora": config.variant == "rslora",
        "use_dora": config.variant == "dora",
        "target_modules": sorted({path.rpartition(".")[2] for path in adapter.lora}),
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }
    (folder / "adapter_config.json").write_text(json.dumps(peft, indent=1))


def is_causal(members: Mapping[str, bytes]) -> bool:
    """Say whether a verified artifact's adapter is for a causal base."""
    try:
        config = json.loads(members.get("adapter_config.json", b"{}"))
    except ValueError:
        return False
    return isinstance(config, dict) and config.get("format") == FORMAT
