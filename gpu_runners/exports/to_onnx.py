"""`kolm export --to onnx`: a label student as model.onnx, with its tokenizer and a small program that runs it."""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from backend.domain.rules.javascript.export import to_javascript
from gpu_runners.artifacts.rules_first import RulesFirst
from gpu_runners.exports.encoder_student import LabelStudent, open_label_student
from gpu_runners.exports.folder import Original, Target, copy_members, write_folder
from gpu_runners.exports.onnx import runners
from gpu_runners.exports.onnx.label_head import label_model

MODEL = "model.onnx"
MEMBERS = ("labels.json", "calibration.json", "rules.json")


def export_onnx(original: Original, out: Path, *, base_dir: Path | None, int8: bool) -> int:
    """Write the folder; returns its bytes. Raises ExportRefused, JobFailed, OSError, ImportError."""
    student = open_label_student(original.kolm, base_dir=base_dir)
    return write_folder(out, original, Target.ONNX, partial(_fill, student, original, int8))


def _fill(student: LabelStudent, original: Original, int8: bool, folder: Path) -> Mapping[str, Any]:
    write_model(student, folder / MODEL, artifact_sha256=original.sha256, int8=int8)
    write_reading(student, folder)
    copy_members(original.kolm, folder, MEMBERS)
    has_rules = _write_rules(student.model.rules, folder)
    (folder / "run.py").write_text(runners.PYTHON, "utf-8")
    (folder / "run.mjs").write_text(runners.javascript(has_rules=has_rules), "utf-8")
    return {"precision": "int8" if int8 else "fp32", "reading": student.reading.to_json()}


def write_model(student: LabelStudent, path: Path, *, artifact_sha256: str, int8: bool) -> None:
    model = label_model(
        student.merged_bert(),
        student.adapter.head,
        pooling=student.pooling,
        temperature=student.model.temperature,
        metadata={"kolm.artifact_sha256": artifact_sha256},
        int8_words=int8,
    )
    if int8:
        from gpu_runners.exports.onnx.int8 import write_int8

        write_int8(model, path)
    else:
        path.write_bytes(model.SerializeToString())


def write_reading(student: LabelStudent, folder: Path) -> None:
    """Write tokenizer.json, which cuts as the student does, and the little that tokenizers of JavaScript want beside
    it."""
    (folder / "tokenizer.json").write_text(student.tokenizer_json(), "utf-8")
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": student.reading.max_length}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")


def _write_rules(rules: RulesFirst | None, folder: Path) -> bool:
    if rules is None:
        return False
    (folder / "rules.mjs").write_text(to_javascript(rules.rules), "utf-8")
    return True
