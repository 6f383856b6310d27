"""The architectures whose bases are written, and what llama.cpp wants to know of them.

Each is held to llama.cpp by a test. What a config asks for beyond that (scaled rotations, other windows) is refused: a
file that llama.cpp reads and computes differently is worse than none.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpu_runners.errors import ExportRefused

_GEMMA_PATTERN = 6  # every sixth layer attends to everything; llama.cpp has it built in


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """`turns_heads`: llama.cpp rotates pairs of neighbours where transformers rotates halves, so rows of queries and
    keys change places. `norms_from_one`: the base stores norms as their distance from 1, llama.cpp whole."""

    name: str
    turns_heads: bool = False
    norms_from_one: bool = False


_KNOWN = {
    "llama": Architecture(name="llama", turns_heads=True),
    "qwen2": Architecture(name="qwen2"),
    "gemma3_text": Architecture(name="gemma3", norms_from_one=True),
}


def architecture_of(config: Mapping[str, Any]) -> Architecture:
    """Raises ExportRefused for a base that is not written."""
    kind = str(config.get("model_type"))
    if kind not in _KNOWN:
        raise ExportRefused(
            f"--to gguf writes bases of the kinds {', '.join(_KNOWN)}, and this one is {kind!r}: use --to peft, and "
            "llama.cpp's own converter for the base."
        )
    _theta(config)
    if kind == "gemma3_text":
        _check_gemma(config)
    return _KNOWN[kind]


def describe(writer: Any, architecture: Architecture, config: Mapping[str, Any]) -> None:
    """Write the sizes into a GGUFWriter."""
    heads = int(config["num_attention_heads"])
    width = int(config.get("head_dim") or config["hidden_size"] // heads)
    writer.add_context_length(int(config["max_position_embeddings"]))
    writer.add_embedding_length(int(config["hidden_size"]))
    writer.add_block_count(int(config["num_hidden_layers"]))
    writer.add_feed_forward_length(int(config["intermediate_size"]))
    writer.add_head_count(heads)
    writer.add_head_count_kv(int(config.get("num_key_value_heads") or heads))
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_rope_dimension_count(width)
    writer.add_rope_freq_base(_theta(config))
    writer.add_layer_norm_rms_eps(float(config["rms_norm_eps"]))
    writer.add_vocab_size(int(config["vocab_size"]))
    if architecture.name == "gemma3":
        writer.add_sliding_window(int(config["sliding_window"]))


def _theta(config: Mapping[str, Any]) -> float:
    """The base of the rotations, of full attention where there are two. Raises ExportRefused for scaled ones."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    every = list(rope.values()) if rope and all(isinstance(part, dict) for part in rope.values()) else [rope]
    if any(part.get("rope_type", part.get("type", "default")) != "default" for part in every):
        raise ExportRefused("The base scales its rotations, which --to gguf does not write: use --to peft.")
    whole = rope.get("full_attention", rope)
    return float(whole.get("rope_theta") or config.get("rope_theta") or 10_000.0)


def _check_gemma(config: Mapping[str, Any]) -> None:
    kinds = list(config.get("layer_types") or [])
    expected = ["sliding_attention" if (i + 1) % _GEMMA_PATTERN else "full_attention" for i in range(len(kinds))]
    local = (config.get("rope_parameters") or {}).get("sliding_attention", {}).get("rope_theta")
    scale = config.get("query_pre_attn_scalar")
    capped = config.get("attn_logit_softcapping") or config.get("final_logit_softcapping")
    if kinds != expected or local != 10_000.0 or scale != config.get("head_dim") or capped:
        raise ExportRefused("The base is no plain Gemma 3, which is what --to gguf writes of them: use --to peft.")
