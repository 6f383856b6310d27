"""`kolm export --to openvino`: the ONNX graph as OpenVINO's model.xml and model.bin, in the folder of the ONNX export.

The graph is read by OpenVINO's ONNX reader itself and not by its `convert_model`, which does the same and sends usage
statistics unless told otherwise.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from gpu_runners.exports.folder import Original, Target, write_folder
from gpu_runners.exports.span_student import Student, open_student, write_documents
from gpu_runners.exports.to_onnx import MODEL, write_model, write_reading


def export_openvino(original: Original, out: Path, *, base_dir: Path | None, int8: bool) -> int:
    """Write the folder; returns its bytes. Raises ExportRefused, JobFailed, OSError, ImportError."""
    student = open_student(original.kolm, base_dir=base_dir)
    return write_folder(out, original, Target.OPENVINO, partial(_fill, student, original, int8))


def _fill(student: Student, original: Original, int8: bool, folder: Path) -> Mapping[str, Any]:
    import openvino

    graph = folder / MODEL
    write_model(student, graph, artifact_sha256=original.sha256, int8=int8)
    model = openvino.Core().read_model(graph)
    openvino.save_model(model, folder / "model.xml", compress_to_fp16=False)
    graph.unlink()
    write_reading(student, folder)
    write_documents(student, original.kolm, folder)
    return {"precision": "int8" if int8 else "fp32", "reading": student.reading.to_json()}
