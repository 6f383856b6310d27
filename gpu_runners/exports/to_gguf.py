"""`kolm export --to gguf`: a causal student for llama.cpp and Ollama, base and adapter in files of their own.

The recipe pack goes along as llama-server's look-up file where there is something in it that llama-server can read.
"""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from backend.domain.artifact.kolm_verify import Kolm
from backend.domain.recipes.pack import InvalidPack, read_pack
from gpu_runners.artifacts.generative_model import TaskPrompt
from gpu_runners.artifacts.label_model import read_json
from gpu_runners.artifacts.loader import check_base_digest
from gpu_runners.errors import ExportRefused
from gpu_runners.exports.folder import Original, Target, copy_members, write_folder
from gpu_runners.exports.gguf.files import adds_begin, write_adapter, write_base
from gpu_runners.exports.gguf.modelfile import around_of, modelfile
from gpu_runners.exports.gguf.vocabulary import cut_of
from gpu_runners.exports.to_peft import CAUSAL_MEMBERS
from gpu_runners.models.causal_adapter import AdapterConfig, from_bytes, is_causal
from gpu_runners.models.causal_base import CausalBase, check_fit, open_causal_base
from gpu_runners.models.chat import prompt_end
from gpu_runners.speculation.llama_cpp import PAIR, write_static_lookup

LOOKUP = "recipes.bin"


def export_gguf(original: Original, out: Path, *, base_dir: Path | None, fp32: bool) -> int:
    """Write the folder, with `fp32` a base whose matrices are in float32; returns its bytes. Raises ExportRefused,
    JobFailed, OSError, ImportError."""
    kolm = original.kolm
    if not is_causal(kolm.members):
        raise ExportRefused(
            "The artifact answers with an encoder, and --to gguf is made for causal students: use --to onnx, peft or, "
            "of a label student, sentence-transformers."
        )
    wanted = kolm.manifest["base"]
    base = open_causal_base(wanted["id"], base_dir=base_dir)
    check_base_digest(wanted, base.base)
    return write_folder(out, original, Target.GGUF, partial(_fill, kolm, base, fp32))


def _fill(kolm: Kolm, base: CausalBase, fp32: bool, folder: Path) -> Mapping[str, Any]:
    config = AdapterConfig.from_json(read_json(kolm.members, "adapter_config.json"))
    check_fit(config, base)
    adapter = from_bytes(kolm.members["adapter.safetensors"], config)
    write_adapter(base, adapter, config, folder / "adapter.gguf")
    write_base(base, folder / "base.gguf", fp32=fp32)
    copy_members(kolm, folder, CAUSAL_MEMBERS)
    n_pairs = _write_lookup(kolm, base, folder / LOOKUP)
    reading = _reading(TaskPrompt.from_members(kolm.members), base, folder)
    return {"precision": "fp32" if fp32 else "stored", "reading": reading, "lookup_pairs": n_pairs}


def _reading(prompt: TaskPrompt, base: CausalBase, folder: Path) -> dict[str, Any]:
    """The way to a prompt, and the Modelfile where a text is enough for that."""
    cut = cut_of(json.loads((base.folder / "tokenizer.json").read_text("utf-8")))
    around = around_of(base, prompt.system) if cut is not None else None
    if around is None:
        return {"max_new_tokens": prompt.max_new_tokens, "is_cut_alike": False}
    begin = str(base.tokenizer.bos_token) if adds_begin(base) else ""
    ends = [str(base.tokenizer.convert_ids_to_tokens(i)) for i in base.eos_ids]
    text = modelfile(around, begin=begin, ends=ends, max_new_tokens=prompt.max_new_tokens)
    (folder / "Modelfile").write_text(text, "utf-8")
    return {
        "max_new_tokens": prompt.max_new_tokens,
        "is_cut_alike": True,
        "before": around.before.removeprefix(begin),
        "after": around.after,
    }


def _write_lookup(kolm: Kolm, base: CausalBase, path: Path) -> int:
    """The pairs of tokens that the look-up file knows; 0: the artifact has no recipe that it could hold. Raises
    ExportRefused for a pack that cannot be read."""
    if "recipes.json" not in kolm.members:
        return 0
    try:
        pack = read_pack(kolm.members["recipes.json"])
        if not pack.recipes:
            return 0
        return write_static_lookup(
            pack,
            path,
            tokenizer_sha256=base.tokenizer_sha256,
            n_vocab=base.vocab_size,
            prompt_end=prompt_end(base, n_tokens=PAIR),
        )
    except InvalidPack as error:
        raise ExportRefused(f"The artifact's recipes cannot be written for llama-server: {error.message}") from error
