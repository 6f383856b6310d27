"""A causal base of the tests as a GGUF file for llama.cpp. Runs in .venv-llama, which has neither torch nor
safetensors:

    python -m tests.gpu_runners.speculation.tiny_gguf BASE_FOLDER OUT.gguf

llama.cpp's own converter refuses a tokenizer that it does not know; prompts go in as ids, so how this one cuts a text
is not told to llama.cpp.
"""

import json
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np

_LAYER = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
_WHOLE = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}


def write_gguf(base: Path, out: Path) -> None:
    import gguf

    config = json.loads((base / "config.json").read_text())
    writer = gguf.GGUFWriter(str(out), "llama")
    _describe(writer, config)
    _write_tokens(writer, json.loads((base / "tokenizer.json").read_text()), config["vocab_size"], gguf)
    for name, tensor in read_safetensors(base / "model.safetensors").items():
        writer.add_tensor(_name(name), np.ascontiguousarray(_turned(name, tensor, config)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def read_safetensors(path: Path) -> dict[str, Any]:
    """float32 tensors by name."""
    data = path.read_bytes()
    (n_header,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + n_header])
    tensors = {}
    for name, one in header.items():
        if name == "__metadata__":
            continue
        begin, end = (8 + n_header + at for at in one["data_offsets"])
        tensors[name] = _float32(data[begin:end], one["dtype"]).reshape(one["shape"])
    return tensors


def _float32(data: bytes, kind: str) -> Any:
    if kind == "BF16":
        return (np.frombuffer(data, dtype=np.uint16).astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(data, dtype={"F32": np.float32, "F16": np.float16}[kind]).astype(np.float32)


def _describe(writer: Any, config: dict[str, Any]) -> None:
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(float(config["rope_parameters"]["rope_theta"]))
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])


def _write_tokens(writer: Any, tokenizer: dict[str, Any], n_vocab: int, gguf: Any) -> None:
    by_id = {i: token for token, i in tokenizer["model"]["vocab"].items()}
    special = {one["id"] for one in tokenizer["added_tokens"]}
    by_id |= {one["id"]: one["content"] for one in tokenizer["added_tokens"]}
    kinds = [gguf.TokenType.CONTROL if i in special else gguf.TokenType.NORMAL for i in range(n_vocab)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([by_id.get(i, f"<unused{i}>") for i in range(n_vocab)])
    writer.add_token_types([int(kind) for kind in kinds])
    writer.add_token_merges([one if isinstance(one, str) else " ".join(one) for one in tokenizer["model"]["merges"]])
    writer.add_eos_token_id(0)
    writer.add_add_bos_token(False)


def _name(name: str) -> str:
    if name in _WHOLE:
        return _WHOLE[name]
    layer, _, part = name.removeprefix("model.layers.").removesuffix(".weight").partition(".")
    return f"blk.{layer}.{_LAYER[part]}.weight"


def _turned(name: str, tensor: Any, config: dict[str, Any]) -> Any:
    """llama.cpp rotates pairs of neighbours where transformers rotates halves."""
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    n_heads = next((n for part, n in heads.items() if part in name), 0)
    if not n_heads:
        return tensor
    halves = tensor.reshape(n_heads, 2, tensor.shape[0] // n_heads // 2, *tensor.shape[1:])
    return halves.swapaxes(1, 2).reshape(tensor.shape)


if __name__ == "__main__":
    write_gguf(Path(sys.argv[1]), Path(sys.argv[2]))
