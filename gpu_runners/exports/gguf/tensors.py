"""Weights under llama.cpp's names and in its order."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_runners.errors import ExportRefused
from gpu_runners.exports.gguf.architectures import Architecture
from gpu_runners.models.base_store.files import weight_files

_TURNED = {"self_attn.q_proj": "num_attention_heads", "self_attn.k_proj": "num_key_value_heads"}


class Names:
    """llama.cpp's name for each tensor of an architecture."""

    def __init__(self, architecture: Architecture, n_layers: int) -> None:
        import gguf

        kind = next(kind for kind, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture.name)
        self._map = gguf.get_tensor_name_map(kind, n_layers)

    def of(self, name: str) -> str:
        """Raises ExportRefused for a tensor that llama.cpp does not know."""
        known = self._map.get_name(name, try_suffixes=(".weight", ".bias"))
        if known is None:
            raise ExportRefused(f"llama.cpp has no name for the tensor {name!r}: use --to peft.")
        return str(known)


def turn_heads(name: str, values: NDArray[Any], architecture: Architecture, config: dict[str, Any]) -> NDArray[Any]:
    """The rows of a query's or key's matrix in llama.cpp's order, other tensors as they are."""
    key = next((key for part, key in _TURNED.items() if f".{part}." in f"{name}."), None)
    if key is None or not architecture.turns_heads:
        return values
    n_heads = int(config.get(key) or config["num_attention_heads"])
    halves = values.reshape(n_heads, 2, values.shape[0] // n_heads // 2, *values.shape[1:])
    return halves.swapaxes(1, 2).reshape(values.shape)


def stored_tensors(folder: Path) -> Iterator[tuple[str, Any]]:
    """Each tensor of a base, one in memory at a time, as torch reads it."""
    from safetensors import safe_open

    for file in weight_files(folder):
        with safe_open(folder / file, "pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118
                yield name, tensors.get_tensor(name)


def as_numpy(tensor: Any, *, fp32: bool) -> tuple[NDArray[Any], bool]:
    """(values, whether they are the bits of bfloat16): matrices as they are stored unless `fp32`, vectors in float32,
    as llama.cpp wants them."""
    import torch

    keeps = tensor.ndim > 1 and not fp32
    if keeps and tensor.dtype == torch.bfloat16:
        return tensor.view(torch.uint16).numpy(), True
    if keeps and tensor.dtype == torch.float16:
        return tensor.numpy(), False
    return np.asarray(tensor.float().numpy()), False
