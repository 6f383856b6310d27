"""`kolm export --to peft`: the LoRA adapter as PEFT loads it over the base, an encoder's heads beside it.

The base is named, not copied: `export.json` has its sha256.
"""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from backend.domain.artifact.kolm_verify import Kolm
from gpu_runners.artifacts.label_model import read_json
from gpu_runners.errors import ExportRefused
from gpu_runners.exports.folder import Original, Target, copy_members, write_folder
from gpu_runners.exports.head import write_head, write_span_heads
from gpu_runners.exports.span_student import SpanStudent, Student, open_student, write_documents
from gpu_runners.models import causal_adapter
from gpu_runners.models.tensor_files import is_bf16, save_arrays

CAUSAL_MEMBERS = ("prompt.json", "labels.json", "calibration.json", "rules.json", "recipes.json")


def export_peft(original: Original, out: Path, *, base_dir: Path | None) -> int:
    """Write the folder; returns its bytes. Raises ExportRefused, JobFailed, OSError."""
    if causal_adapter.is_causal(original.kolm.members):
        return write_folder(out, original, Target.PEFT, partial(_fill_causal, original.kolm))
    student = open_student(original.kolm, base_dir=base_dir)
    if not student.adapter.lora:
        raise ExportRefused(
            "The student is a head on its frozen base and has no adapter that PEFT could load: use --to onnx or, of a "
            "label student, --to sentence-transformers."
        )
    return write_folder(out, original, Target.PEFT, partial(_fill_encoder, student, original.kolm))


def write_causal_adapter(kolm: Kolm, folder: Path) -> None:
    """Write the adapter of a causal artifact. Raises JobFailed(invalid_adapter)."""
    config = causal_adapter.AdapterConfig.from_json(read_json(kolm.members, "adapter_config.json"))
    adapter = causal_adapter.from_bytes(kolm.members["adapter.safetensors"], config)
    causal_adapter.write_peft_folder(folder, adapter, config)


def _fill_causal(kolm: Kolm, folder: Path) -> Mapping[str, Any]:
    write_causal_adapter(kolm, folder)
    copy_members(kolm, folder, CAUSAL_MEMBERS)
    return {}


def _fill_encoder(student: Student, kolm: Kolm, folder: Path) -> Mapping[str, Any]:
    tensors = {}
    for path, (a, b) in student.adapter.lora.items():
        tensors[f"base_model.model.{path}.lora_A.weight"] = a
        tensors[f"base_model.model.{path}.lora_B.weight"] = b
    data = save_arrays(tensors, in_bf16=lambda name: is_bf16(tensors[name]), metadata={"format": "pt"})
    (folder / "adapter_model.safetensors").write_bytes(data)
    (folder / "adapter_config.json").write_text(json.dumps(_peft_config(student), indent=1), "utf-8")
    if isinstance(student, SpanStudent):
        write_span_heads(student, folder)
    else:
        write_head(student, folder)
    write_documents(student, kolm, folder)
    return {"reading": student.reading.to_json()}


def _peft_config(student: Student) -> dict[str, Any]:
    """Whole paths as targets: where the top layers alone were trained, PEFT adds nothing to the others."""
    return {
        "peft_type": "LORA",
        "task_type": "FEATURE_EXTRACTION",
        "base_model_name_or_path": student.config.base,
        "r": student.config.rank,
        "lora_alpha": student.config.alpha,
        "lora_dropout": 0.0,
        "target_modules": sorted(student.adapter.lora),
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }
