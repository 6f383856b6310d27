"""The facts about a base that planning needs, read from its config without loading anything."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "fp8": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseFacts:
    """The facts that a base's files state. `quantization` is the method its weights were shipped in (awq, gptq, ...),
    or "". `adapted_width` is the sum of (in + out) over the linear layers of one block: an adapter of rank r has r *
    adapted_width * n_layers weights."""

    name: str
    weight_bytes: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    context: int
    adapted_width: int
    quantization: str = ""

    @classmethod
    def of(cls, name: str, folder: Path) -> Self:
        """Raises KeyError for a config without the fields of a decoder."""
        config = json.loads((folder / "config.json").read_text("utf-8"))
        weights = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
        return cls.from_config(name, config, weight_bytes=weights)

    @classmethod
    def from_config(cls, name: str, config: Mapping[str, Any], *, weight_bytes: int) -> Self:
        width, n_heads = int(config["hidden_size"]), int(config["num_attention_heads"])
        n_kv, inner = int(config.get("num_key_value_heads") or n_heads), int(config["intermediate_size"])
        head = int(config.get("head_dim") or width // n_heads)
        return cls(
            name=name,
            weight_bytes=weight_bytes,
            n_layers=int(config["num_hidden_layers"]),
            n_heads=n_heads,
            n_kv_heads=n_kv,
            head_dim=head,
            context=int(config.get("max_position_embeddings") or 2048),
            # q, o; k, v; gate, up, down
            adapted_width=2 * (width + n_heads * head) + 2 * (width + n_kv * head) + 3 * (width + inner),
            quantization=str((config.get("quantization_config") or {}).get("quant_method") or ""),
        )

    def kv_bytes_a_token(self, kv_dtype: str) -> int:
        return 2 * self.n_layers * self.n_kv_heads * self.head_dim * BYTES[kv_dtype]
