"""The check that a PEFT folder's matrices fit a base, from the files' headers alone.

vLLM finds out inside its worker, which does not outlive the surprise: one bad adapter would end everybody's engine.
"""

import json
import re
from pathlib import Path

from safetensors import SafetensorError, safe_open

from backend.domain.planning.adapter_sizes import linear_shapes
from gpu_runners.models.protocol import Rejected

_NAME = re.compile(r"base_model\.model\.model\.layers\.(\d+)\.(?:self_attn|mlp)\.(\w+)\.lora_([AB])\.weight")


def check_shapes(adapter: Path, base: Path, *, rank: int) -> None:
    """Raises Rejected(bad_adapter)."""
    config = json.loads((base / "config.json").read_text("utf-8"))
    shapes, n_layers = linear_shapes(config), int(config["num_hidden_layers"])
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


def _bad(why: str) -> Rejected:
    return Rejected(f"The adapter does not fit the base: {why}.", code="bad_adapter")
