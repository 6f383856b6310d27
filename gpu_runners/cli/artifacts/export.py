"""`kolm export FILE --to FORMAT`: an artifact's model in a folder that another library loads."""

import os
from pathlib import Path

import click

from backend.domain.errors import OurError
from gpu_runners.cli.artifacts.loading import Refused, read_with_digest
from gpu_runners.cli.options import PATH, file_argument, trust_options
from gpu_runners.cli.terminal import fail

FORMATS = ("onnx", "peft", "sentence-transformers", "gguf", "openvino")
_EXTRA = {"gguf": "export", "openvino": "openvino"}
_INT8, _FP32 = ("onnx", "openvino"), "gguf"


@click.command()
@file_argument
@click.option("--to", required=True, type=click.Choice(FORMATS), metavar="FORMAT", help=", ".join(FORMATS))
@click.option("--out", type=PATH, metavar="FOLDER", help="new or empty (default: NAME-FORMAT here)")
@click.option("--int8", is_flag=True, help="onnx, openvino: weights in one byte instead of four")
@click.option("--fp32", is_flag=True, help="gguf: the base in float32 where it is stored in 16 bits: twice the bytes")
@trust_options("export")
def export(
    *, file: str, to: str, out: str | None, int8: bool, fp32: bool, keyring: str | None, allow_untrusted: bool
) -> int:
    if int8 and to not in _INT8:
        return fail(f"--int8 is for {' and '.join(_INT8)}; leave it out for {to}.", code=2)
    if fp32 and to != _FP32:
        return fail(f"--fp32 is for {_FP32}; leave it out for {to}.", code=2)
    try:
        kolm, sha256 = read_with_digest(file, keyring, allow_untrusted)
    except Refused as error:
        return fail(str(error), code=error.exit_code)
    folder = Path(out if out is not None else f"{kolm.manifest['name']}-{to}")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        from gpu_runners.errors import ExportRefused
        from gpu_runners.exports.folder import Original
        from gpu_runners.exports.writing import write_export
    except ImportError as error:
        return fail(f"{error.name} is needed to export models: install kolm with its extra 'runner' (docs/client.md).")
    try:
        n_bytes = write_export(Original(kolm=kolm, sha256=sha256), folder, to=to, int8=int8, fp32=fp32)
    except ExportRefused as error:
        return fail(str(error))
    except OurError as error:
        return fail(error.message)
    except ImportError as error:
        extra = _EXTRA.get((error.name or "").partition(".")[0], "runner")
        return fail(f"{error.name} is needed for --to {to}: install kolm with its extra '{extra}' (docs/exports.md).")
    except OSError as error:
        return fail(f"{folder} cannot be written ({error.strerror}).")
    print(f"{folder}: {n_bytes / 1e6:,.1f} MB. export.json names {file} by its sha256, {sha256[:16]}….")
    if "extraction.json" in kolm.members and kolm.manifest["task_type"] == "text":
        print("What it reads is the kind of a text and its parts; kolm run and kolm serve write the text.")
    return 0
