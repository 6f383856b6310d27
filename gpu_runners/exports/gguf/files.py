"""base.gguf and adapter.gguf. Tensors are written one at a time: a base of any size fits into memory."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from gpu_runners.errors import ExportRefused
from gpu_runners.exports.gguf.architectures import Architecture, architecture_of, describe
from gpu_runners.exports.gguf.tensors import Names, as_numpy, stored_tensors, turn_heads
from gpu_runners.exports.gguf.vocabulary import write_tokens
from gpu_runners.models.causal_adapter import AdapterConfig, CausalAdapter
from gpu_runners.models.causal_base import CausalBase


def write_base(base: CausalBase, path: Path, *, fp32: bool) -> None:
    """Write the base; matrices keep the type in which it stores them unless `fp32`. Raises ExportRefused."""
    import gguf

    config = read_config(base)
    architecture = architecture_of(config)
    writer = gguf.GGUFWriter(str(path), architecture.name)
    writer.add_type("model")
    writer.add_name(base.name)
    describe(writer, architecture, config)
    write_tokens(writer, json.loads((base.folder / "tokenizer.json").read_text("utf-8")), base.vocab_size)
    _write_ends(writer, base)
    names = Names(architecture, int(config["num_hidden_layers"]))
    tied = bool(config.get("tie_word_embeddings"))
    for name, tensor in stored_tensors(base.folder):
        if not (tied and name == "lm_head.weight"):
            values, is_bf16 = as_numpy(tensor[:1], fp32=fp32) if tensor.ndim > 1 else as_numpy(tensor, fp32=fp32)
            raw = gguf.GGMLQuantizationType.BF16 if is_bf16 else None
            size = values.dtype.itemsize * tensor.numel()
            writer.add_tensor_info(names.of(name), tuple(tensor.shape), values.dtype, size, raw)
    _begin(writer)
    for name, tensor in stored_tensors(base.folder):
        if not (tied and name == "lm_head.weight"):
            writer.write_tensor_data(_values(name, as_numpy(tensor, fp32=fp32)[0], architecture, config))
    writer.close()


def write_adapter(base: CausalBase, adapter: CausalAdapter, config: AdapterConfig, path: Path) -> None:
    """The pairs in float32, with the alpha that gives llama.cpp the adapter's own scaling. Raises ExportRefused."""
    import gguf

    if adapter.magnitude:
        raise ExportRefused("The adapter is of DoRA, which llama.cpp does not load: use --to peft.")
    described = read_config(base)
    architecture = architecture_of(described)
    writer = gguf.GGUFWriter(str(path), architecture.name)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", config.scaling * config.rank)
    names = Names(architecture, int(described["num_hidden_layers"]))
    for module, (a, b) in sorted(adapter.lora.items()):
        if ".layers." not in module:
            raise ExportRefused(f"The adapter changes {module!r}, outside of the layers: use --to peft.")
        name = names.of(f"{module}.weight")
        writer.add_tensor(f"{name}.lora_a", np.ascontiguousarray(a))
        writer.add_tensor(f"{name}.lora_b", np.ascontiguousarray(turn_heads(module, b, architecture, described)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def read_config(base: CausalBase) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((base.folder / "config.json").read_text("utf-8"))
    return config


def adds_begin(base: CausalBase) -> bool:
    """Say whether the tokenizer begins each text with its token of beginning."""
    begin = base.tokenizer.bos_token_id
    return begin is not None and base.tokenizer("a")["input_ids"][:1] == [begin]


def _write_ends(writer: Any, base: CausalBase) -> None:
    """The end of a turn, which the student learned, and the tokenizer's own end: either ends an answer."""
    tokenizer = base.tokenizer
    if tokenizer.bos_token_id is not None:
        writer.add_bos_token_id(int(tokenizer.bos_token_id))
    writer.add_add_bos_token(adds_begin(base))
    writer.add_eos_token_id(base.eos_ids[-1])
    writer.add_eot_token_id(base.eos_ids[0])
    writer.add_pad_token_id(base.pad_id)
    writer.add_chat_template(str(tokenizer.chat_template))


def _begin(writer: Any) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()


def _values(name: str, values: Any, architecture: Architecture, config: dict[str, Any]) -> Any:
    if architecture.norms_from_one and name.endswith("norm.weight"):
        values = values + np.float32(1)
    return np.ascontiguousarray(turn_heads(name, values, architecture, config))
