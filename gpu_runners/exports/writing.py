"""The export that a format's name asks for."""

from pathlib import Path

from gpu_runners.config import base_dir
from gpu_runners.exports.folder import Original, Target, check_empty
from gpu_runners.exports.to_gguf import export_gguf
from gpu_runners.exports.to_onnx import export_onnx
from gpu_runners.exports.to_openvino import export_openvino
from gpu_runners.exports.to_peft import export_peft
from gpu_runners.exports.to_sentence_transformers import export_sentence_transformers


def write_export(original: Original, out: Path, *, to: str, int8: bool, fp32: bool) -> int:
    """Write the folder `out`; returns its bytes. Raises ExportRefused, JobFailed, OSError, and ImportError where the
    format's library is missing."""
    check_empty(out)  # before minutes of work
    bases = base_dir()
    match Target(to):
        case Target.ONNX:
            return export_onnx(original, out, base_dir=bases, int8=int8)
        case Target.OPENVINO:
            return export_openvino(original, out, base_dir=bases, int8=int8)
        case Target.PEFT:
            return export_peft(original, out, base_dir=bases)
        case Target.SENTENCE_TRANSFORMERS:
            return export_sentence_transformers(original, out, base_dir=bases)
        case Target.GGUF:
            return export_gguf(original, out, base_dir=bases, fp32=fp32)
