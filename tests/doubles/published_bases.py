"""Bases on a hub as a stranger may name them, each wrong in its own way: what a hub lists and the small files are all
that a look reads, so nothing here can be trained."""

import json
from pathlib import Path

from tests.doubles.model_hub import ModelHub, Repository

SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
CONFIG = {
    "model_type": "qwen2",
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 100,
    "dtype": "float32",
}
NO_DISK = 10**15  # bytes; no machine of a test has as many
# base: its refusal, and a word of what to do
REFUSALS = {
    "acme/no-tokenizer": ("base_without_tokenizer", "fast tokenizer"),
    "acme/own-code": ("base_needs_remote_code", "architecture transformers knows"),
    "acme/gated": ("gated_base", "operator"),
    "acme/shard-missing": ("base_truncated", "another revision"),
    "acme/deeper": ("base_wrong_architecture", "another"),
    "acme/encoder": ("not_causal", "ForCausalLM"),
    "acme/no-template": ("not_causal", "instruct"),
    "acme/awq": ("base_unsupported", "made of"),
    "acme/longrope": ("unsupported_base", "another base"),
    "acme/huge": ("base_too_large", "base"),
    "acme/pickles": ("unknown_base", "copy"),
    "acme/nobody": ("unknown_base", "name"),
    "cut-here": ("base_truncated", "another revision"),
}


def whole() -> dict[str, bytes]:
    """The files of a base that would be taken."""
    tensors = {f"model.layers.{i}.self_attn.q_proj.weight": shard for i, shard in enumerate(SHARDS)}
    return {
        "config.json": json.dumps(CONFIG).encode(),
        "tokenizer.json": b"{}",
        "tokenizer_config.json": b"{}",
        "chat_template.jinja": b"{{ messages[0].content }}",
        "model.safetensors.index.json": json.dumps({"weight_map": tensors}).encode(),
        **dict.fromkeys(SHARDS, b"\0" * 64),
    }


def publish(hub: ModelHub) -> None:
    def add(name: str, **changes: bytes | None) -> Repository:
        files = whole() | {file.replace("__", "."): data for file, data in changes.items() if data is not None}
        gone = {file.replace("__", ".") for file, data in changes.items() if data is None}
        repository = Repository(revisions={"main": {f: data for f, data in files.items() if f not in gone}})
        hub.repositories[name] = repository
        return repository

    def declaring(**changes: object) -> bytes:
        return json.dumps(CONFIG | changes).encode()

    add("acme/no-tokenizer", tokenizer__json=None)
    add("acme/own-code", config__json=declaring(model_type="own", auto_map={"AutoModel": "m.M"}))
    add("acme/gated").is_gated = True
    add("acme/deeper", config__json=declaring(num_hidden_layers=99))
    add("acme/encoder", config__json=declaring(architectures=["BertModel"]))
    add("acme/no-template", chat_template__jinja=None)
    add("acme/awq", config__json=declaring(quantization_config={"quant_method": "awq", "bits": 4}))
    add("acme/longrope", config__json=declaring(rope_scaling={"type": "longrope"}))
    add("acme/huge").announces[SHARDS[0]] = NO_DISK
    del add("acme/shard-missing").revisions["main"][SHARDS[1]]
    pickles = add("acme/pickles").revisions["main"]
    for file in (*SHARDS, "model.safetensors.index.json"):
        del pickles[file]
    pickles["pytorch_model.bin"] = b"\0"


def install_cut(base_dir: Path) -> None:
    """Put a base into a runner's own folder whose weights end early, as an interrupted copy leaves them."""
    folder = base_dir / "cut-here"
    folder.mkdir(parents=True)
    header = json.dumps({"model.norm.weight": {"dtype": "F32", "shape": [64], "data_offsets": [0, 256]}}).encode()
    (folder / "config.json").write_bytes(json.dumps(CONFIG).encode())
    (folder / "tokenizer.json").write_bytes(b"{}")
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 100)
