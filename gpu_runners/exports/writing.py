"""The export that a format's name asks for."""

from pathlib import Path

from gpu_runners.config import base_dir
from gpu_runners.errors import ExportRefused
from gpu_runners.exports.folder import Original, Target, check_empty
from gpu_runners.exports.to_onnx import export_onnx


def write_export(original: Original, out: Path, *, to: str, int8: bool) -> int:
    """Write the folder `out`; returns its bytes. Raises ExportRefused, JobFailed, OSError, and ImportError where the
    format's library is missing."""
    check_empty(out)  # before minutes of work
    bases = base_dir()
    match Target(to):
        case Target.ONNX:
            return export_onnx(original, out, base_dir=bases, int8=int8)
        case other:
            raise ExportRefused(f"--to {other} is not there yet.")
