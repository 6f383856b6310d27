"""PEFT folders read back: checked against the base, kept in RAM, least recently used out first."""

import json
import math
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from gpu_runners.engine.lora_slots import Prepared
from gpu_runners.models.protocol import AdapterRef, Rejected

PREFIX = "base_model.model."
MAX_RANK = 256
Shapes = Mapping[str, tuple[int, int]]


class AdapterShelf:
    """Prepared adapters by key. Reading one takes milliseconds of disk, so it happens outside the engine's thread."""

    def __init__(self, model: torch.nn.Module, shapes: Shapes, *, keep: int) -> None:
        self._model, self._shapes, self._keep = model, shapes, keep
        self._lock = threading.Lock()
        self._prepared: OrderedDict[str, Prepared] = OrderedDict()

    def get(self, ref: AdapterRef) -> Prepared:
        """Raises Rejected(bad_adapter)."""
        with self._lock:
            if ref.key in self._prepared:
                self._prepared.move_to_end(ref.key)
                return self._prepared[ref.key]
        prepared = prepare(ref.key, ref.folder, self._model, self._shapes)
        with self._lock:
            self._prepared[ref.key] = prepared
            while len(self._prepared) > self._keep:
                self._prepared.popitem(last=False)
        return prepared

    def forget(self, key: str) -> None:
        with self._lock:
            self._prepared.pop(key, None)


def prepare(key: str, folder: Path, model: torch.nn.Module, shapes: Shapes) -> Prepared:
    """An adapter made ready for the LoRA slots. Raises Rejected(bad_adapter)."""
    config, tensors = _read(folder)
    scaling = _scaling(config)
    pairs = {path: (a, b * scaling) for path, a, b in _pairs(config, tensors, shapes)}
    stretch = {}
    if config.get("use_dora"):
        for path, (a, b) in pairs.items():
            stretch[path] = _magnitude(tensors, path, b.shape[0]) / _direction(model, path, a, b).norm(dim=1).cpu() - 1
    return Prepared(key=key, rank=int(config["r"]), pairs=pairs, stretch=stretch)


def deltas(folder: Path, model: torch.nn.Module, shapes: Shapes) -> Iterator[tuple[str, torch.Tensor]]:
    """(module, what is added to its weight) of an adapter that is merged. Raises Rejected(bad_adapter)."""
    adapter = prepare("", folder, model, shapes)
    for path, (a, b) in adapter.pairs.items():
        delta = b @ a
        if path in adapter.stretch:
            delta += adapter.stretch[path][:, None] * _direction(model, path, a, b).cpu()
        yield path, delta


def _direction(model: torch.nn.Module, path: str, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """W + B A of a DoRA (Liu et al. 2024, eq. 5), float32, on the base's device."""
    weight = model.get_submodule(path).weight
    assert isinstance(weight, torch.Tensor)
    return weight.float() + b.to(weight.device) @ a.to(weight.device)


def _magnitude(tensors: Mapping[str, torch.Tensor], path: str, n: int) -> torch.Tensor:
    magnitude = tensors.get(f"{PREFIX}{path}.lora_magnitude_vector")
    if magnitude is None or magnitude.shape != (n,):
        raise _bad(f"the magnitudes of {path!r} are missing or do not fit")
    return magnitude


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    try:
        config = json.loads((folder / "adapter_config.json").read_bytes())
        tensors = load_file(folder / "adapter_model.safetensors")
    except (OSError, ValueError, SafetensorError) as error:
        raise _bad(f"its files cannot be read ({type(error).__name__})") from error
    rank = config.get("r") if isinstance(config, dict) else None
    if type(rank) is not int or not 0 < rank <= MAX_RANK or config.get("peft_type") != "LORA":
        raise _bad(f"it is not a LoRA of a rank up to {MAX_RANK}")
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() or not bool(torch.isfinite(tensor).all()):
            raise _bad(f"the tensor {name!r} is not finite")
    return config, {name: tensor.float() for name, tensor in tensors.items()}


def _pairs(
    config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], shapes: Shapes
) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    n_tensors = 0
    for name, a in tensors.items():
        if not name.endswith(".lora_A.weight"):
            continue
        path = name.removeprefix(PREFIX).removesuffix(".lora_A.weight")
        b = tensors.get(f"{PREFIX}{path}.lora_B.weight")
        if path not in shapes or b is None:
            raise _bad(f"the base has no layer {path!r} that it could change")
        wide, tall = shapes[path]
        if a.shape != (config["r"], wide) or b.shape != (tall, config["r"]):
            raise _bad(f"the pair of {path!r} is {tuple(a.shape)}, {tuple(b.shape)}; the layer is {wide} to {tall}")
        n_tensors += 2
        yield path, a, b
    if n_tensors == 0 or n_tensors + sum(name.endswith(".lora_magnitude_vector") for name in tensors) != len(tensors):
        raise _bad("it has tensors that are no whole LoRA pair")


def _scaling(config: Mapping[str, Any]) -> float:
    rank = config["r"]
    return float(config["lora_alpha"]) / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _bad(why: str) -> Rejected:
    return Rejected(f"The adapter does not fit this base: {why}.", code="bad_adapter")
