"""The check that a PEFT folder's matrices fit a base, from the files' headers alone.

vLLM finds out inside its worker, which does not outlive the surprise: one bad adapter would end everybody's engine.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from backend.domain.planning.adapter_sizes import linear_shapes
from gpu_runners.models.protocol import Rejected

_NAME = re.compile(r"base_model\.model\.model\.layers\.(\d+)\.(?:self_attn|mlp)\.(\w+)\.lora_([AB])\.weight")

# model_type: {a layer: those of a Llama that it is made of}, where vLLM takes an adapter of the whole layer. GLM's and
# GLM-4's gate_up_proj is such a layer too, and vLLM wants its halves there: their adapters are refused.
_FUSED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "phi3": {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")},
}


def check_shapes(adapter: Path, base: Path, *, rank: int) -> None:
    """Raises Rejected(bad_adapter)."""
    config = json.loads((base / "config.json").read_text("utf-8"))
    shapes, n_layers = block_shapes(config), int(config["num_hidden_layers"])
    try:
        with safe_open(str(adapter / "adapter_model.safetensors"), framework="np") as file:
            stored = {name: list(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise _bad("its file cannot be read") from error
    for name, shape in stored.items():
        match = _NAME.fullmatch(name)
        if match is None or match[2] not in shapes or int(match[1]) >= n_layers:
            raise _bad(f"it adapts {name[:80]!r}, which the base does not have")
        n_in, n_out = shapes[match[2]]
        if shape != ([rank, n_in] if match[3] == "A" else [n_out, rank]):
            raise _bad(f"{name[:80]!r} is of shape {shape}")


def block_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """(in, out) of the linear layers of one block by name, where some are one layer in this kind of base."""
    shapes = linear_shapes(config)
    for fused, parts in _FUSED.get(str(config.get("model_type")), {}).items():
        widths = [shapes.pop(part) for part in parts]
        shapes[fused] = widths[0][0], sum(n_out for _, n_out in widths)
    return shapes


def _bad(why: str) -> Rejected:
    return Rejected(f"The adapter does not fit the base: {why}.", code="bad_adapter")
