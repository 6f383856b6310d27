"""The bytes of an adapter and of a checkpoint before anything is trained, from a causal base's config.json.

    lora_parameters(config, rank=16)     40,370,176 for Qwen2.5-7B: every linear layer but the output's
    adapter_bytes(config, rank=16)       81 MB: bfloat16
    checkpoint_bytes(config, rank=16)    565 MB: weights and AdamW's two moments in float32, the best epoch so far in
                                         bfloat16: 14 bytes a weight
    checkpoint_bytes(config, rank=16, optimizer="paged_adamw_8bit")     325 MB: moments of one byte: 8 bytes a weight

`docs/benchmarks/sizes.md` has them beside what a trainer wrote. What an adapter may have is KOLM_MAX_BLOB_BYTES.
"""

from collections.abc import Mapping
from typing import Any

_BF16, _F32 = 2, 4
_HEADER = 128  # bytes of a tensor's entry in a file: its name, type, shape and place
_MOMENTS = {"adamw": 2 * _F32, "paged_adamw_8bit": 2}  # bytes a weight; 8-bit ones also have a scale for 256 of them
_8_BIT_SCALES = 2 * _F32 / 256
_8_BIT_FROM = 4096  # weights of a tensor: bitsandbytes keeps the moments of smaller ones in float32


def linear_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """(in, out) of the linear layers of one decoder block, by name. Raises KeyError, ValueError where the config is
    not that of a Llama or its like (Qwen, Mistral)."""
    width, heads, inner = (
        int(config["hidden_size"]),
        int(config["num_attention_heads"]),
        int(config["intermediate_size"]),
    )
    head = int(config.get("head_dim") or width // heads)
    kv = int(config.get("num_key_value_heads") or heads) * head
    return {
        "q_proj": (width, heads * head),
        "k_proj": (width, kv),
        "v_proj": (width, kv),
        "o_proj": (heads * head, width),
        "gate_proj": (width, inner),
        "up_proj": (width, inner),
        "down_proj": (inner, width),
    }


def lora_parameters(config: Mapping[str, Any], *, rank: int) -> int:
    """The number of weights of A (rank, in) and B (out, rank) for every linear layer of every block."""
    per_block = sum(rank * (n_in + n_out) for n_in, n_out in linear_shapes(config).values())
    return int(config["num_hidden_layers"]) * per_block


def magnitudes(config: Mapping[str, Any], *, variant: str) -> int:
    """The number of DoRA's magnitudes, one an output; 0 for other variants."""
    per_block = sum(n_out for _, n_out in linear_shapes(config).values())
    return int(config["num_hidden_layers"]) * per_block if variant == "dora" else 0


def adapter_bytes(config: Mapping[str, Any], *, rank: int, variant: str = "lora") -> int:
    """Bytes of adapter.safetensors, to within its header: 1 % and less."""
    n_tensors = _n_tensors(config, variant)
    weights = lora_parameters(config, rank=rank) * _BF16
    return weights + magnitudes(config, variant=variant) * _F32 + n_tensors * _HEADER


def checkpoint_bytes(
    config: Mapping[str, Any], *, rank: int, variant: str = "lora", optimizer: str = "adamw", has_best: bool = True
) -> int:
    """Bytes of a checkpoint of such a training once an epoch has ended (`has_best`), to within its header. `optimizer`
    is adamw or paged_adamw_8bit; raises KeyError for another one."""
    matrices, vectors = lora_parameters(config, rank=rank), magnitudes(config, variant=variant)
    weights = matrices + vectors
    moments = weights * _MOMENTS[optimizer]
    if optimizer == "paged_adamw_8bit":
        moments = sum(_8_bit_bytes(n) for n in _tensor_sizes(config, rank, variant))
    best = matrices * _BF16 + vectors * _F32 if has_best else 0
    n_entries = _n_tensors(config, variant) * (4 + has_best)
    return weights * _F32 + moments + best + n_entries * _HEADER


def _8_bit_bytes(n: int) -> int:
    if n < _8_BIT_FROM:
        return n * _MOMENTS["adamw"]
    return round(n * (_MOMENTS["paged_adamw_8bit"] + _8_BIT_SCALES))


def _tensor_sizes(config: Mapping[str, Any], rank: int, variant: str) -> list[int]:
    shapes = linear_shapes(config).values()
    block = [rank * n for pair in shapes for n in pair] + [n_out for _, n_out in shapes if variant == "dora"]
    return block * int(config["num_hidden_layers"])


def _n_tensors(config: Mapping[str, Any], variant: str) -> int:
    return len(linear_shapes(config)) * int(config["num_hidden_layers"]) * (3 if variant == "dora" else 2)
