"""`kolm export --to sentence-transformers`: the adapted encoder as `SentenceTransformer(folder)` loads it.

Its embeddings are the student's unit vectors; the head lies beside them (`head.py`), for a Dense module in the chain
would make logits of them.
"""

import json
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from gpu_runners.errors import ExportRefused
from gpu_runners.exports.encoder_student import LabelStudent, open_label_student
from gpu_runners.exports.folder import Original, Target, copy_members, write_folder
from gpu_runners.exports.head import write_head
from gpu_runners.exports.span_student import is_span_student

_MEMBERS = ("labels.json", "calibration.json", "rules.json")
_TOKENIZER_FILES = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.txt", "vocab.json")
_PROMPT = "classification"


def export_sentence_transformers(original: Original, out: Path, *, base_dir: Path | None) -> int:
    """Write the folder; returns its bytes. Raises ExportRefused, JobFailed, OSError."""
    if is_span_student(original.kolm):
        raise ExportRefused(
            "The artifact has a span student, which tags tokens and has no sentence vectors: use --to onnx, --to "
            "openvino or --to peft."
        )
    student = open_label_student(original.kolm, base_dir=base_dir)
    return write_folder(out, original, Target.SENTENCE_TRANSFORMERS, partial(_fill, student, original))


def _fill(student: LabelStudent, original: Original, folder: Path) -> Mapping[str, Any]:
    _write_body(student, folder)
    (folder / "tokenizer.json").write_text(student.tokenizer_json(), "utf-8")
    for name in _TOKENIZER_FILES:
        if (student.base.folder / name).is_file():
            shutil.copyfile(student.base.folder / name, folder / name)
    _write_chain(student, folder)
    write_head(student, folder)
    copy_members(original.kolm, folder, _MEMBERS)
    return {"reading": student.reading.to_json()}


def _write_body(student: LabelStudent, folder: Path) -> None:
    """The whole model of the base with the adapter in its weights."""
    from gpu_runners.models.encoder import load_body
    from gpu_runners.models.merging import merged_body

    merged: Any = merged_body(load_body(student.base, keep_pooler=True), student.adapter, student.config)
    merged.save_pretrained(folder)


def _write_chain(student: LabelStudent, folder: Path) -> None:
    """The files by which sentence-transformers puts its modules together, as it writes them itself."""
    kinds = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(kinds.items())
    ]
    width = student.adapter.head.weight.shape[1]
    prefix = student.config.prefix
    chain: dict[str, Any] = {
        "modules.json": modules,
        "1_Pooling/config.json": {
            "embedding_dimension": width,
            "pooling_mode": student.pooling.value,
            "include_prompt": True,
        },
        "sentence_bert_config.json": {"max_seq_length": student.reading.max_length, "do_lower_case": False},
        "config_sentence_transformers.json": {
            "prompts": {_PROMPT: prefix} if prefix else {},
            "default_prompt_name": _PROMPT if prefix else None,
            "similarity_fn_name": "cosine",
        },
    }
    (folder / "1_Pooling").mkdir()
    (folder / "2_Normalize").mkdir()
    for name, content in chain.items():
        (folder / name).write_text(json.dumps(content, indent=1, ensure_ascii=False), "utf-8")
