"""`kolm export --to onnx`: a label or span student as model.onnx, its tokenizer and a small program that runs it."""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backend.domain.rules.javascript.export import to_javascript
from gpu_runners.artifacts.rules_first import RulesFirst
from gpu_runners.exports.folder import Original, Target, write_folder
from gpu_runners.exports.onnx.label_head import label_model
from gpu_runners.exports.onnx.runners import placing_of, write_label_runners, write_span_runners
from gpu_runners.exports.onnx.span_heads import span_model
from gpu_runners.exports.span_student import SpanStudent, Student, open_student, write_documents

if TYPE_CHECKING:
    from onnx import ModelProto

MODEL = "model.onnx"


def export_onnx(original: Original, out: Path, *, base_dir: Path | None, int8: bool) -> int:
    """Write the folder; returns its bytes. Raises ExportRefused, JobFailed, OSError, ImportError."""
    student = open_student(original.kolm, base_dir=base_dir)
    return write_folder(out, original, Target.ONNX, partial(_fill, student, original, int8))


def _fill(student: Student, original: Original, int8: bool, folder: Path) -> Mapping[str, Any]:
    write_model(student, folder / MODEL, artifact_sha256=original.sha256, int8=int8)
    write_reading(student, folder)
    write_documents(student, original.kolm, folder)
    has_rules = _write_rules(student.model.rules, folder)
    reading = student.reading.to_json()
    if isinstance(student, SpanStudent):
        placing = placing_of(student.tokenizer_json())
        write_span_runners(folder, placing, has_rules=has_rules)
        reading |= {} if placing is None else {"placing": placing.value}
    else:
        write_label_runners(folder, has_rules=has_rules)
    return {"precision": "int8" if int8 else "fp32", "reading": reading}


def write_model(student: Student, path: Path, *, artifact_sha256: str, int8: bool) -> None:
    metadata = {"kolm.artifact_sha256": artifact_sha256}
    model, heads = _graph(student, metadata, int8_words=int8)
    if int8:
        from gpu_runners.exports.onnx.int8 import write_int8

        write_int8(model, path, heads=heads)
    else:
        path.write_bytes(model.SerializeToString())


def _graph(student: Student, metadata: Mapping[str, str], *, int8_words: bool) -> "tuple[ModelProto, list[str]]":
    """The model, and the names of its heads."""
    bert = student.merged_bert()
    if isinstance(student, SpanStudent):
        heads = student.adapter.heads
        kinds = student.adapter.added_kinds()
        return span_model(bert, heads, metadata=metadata, kinds=kinds, int8_words=int8_words), list(heads)
    model = label_model(
        bert,
        student.adapter.head,
        pooling=student.pooling,
        temperature=student.model.temperature,
        metadata=metadata,
        int8_words=int8_words,
    )
    return model, ["head"]


def write_reading(student: Student, folder: Path) -> None:
    """Write tokenizer.json, which cuts as a label student does and not at all for spans, and the little that
    tokenizers of JavaScript want beside it."""
    (folder / "tokenizer.json").write_text(student.tokenizer_json(), "utf-8")
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": student.reading.max_length}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")


def _write_rules(rules: RulesFirst | None, folder: Path) -> bool:
    if rules is None:
        return False
    (folder / "rules.mjs").write_text(to_javascript(rules.rules), "utf-8")
    return True
