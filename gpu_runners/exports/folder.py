"""The folder of an export: whole or not there, with the receipts of its `.kolm` and the digest of every file.

Nothing in it is signed again, for whoever exports holds no key: `export.json` names the sha256 of the `.kolm`, whose
signatures `kolm verify` checks, and of each file beside it. Members that were copied as they are can also be compared
with `kolm/manifest.json`, which `kolm/signatures.json` signs.
"""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from backend.domain.artifact.kolm_verify import Kolm
from gpu_runners.errors import ExportRefused

FORMAT = "kolm.export/1"
SHEET = "export.json"
_BLOCK = 1 << 20


class Target(StrEnum):
    """The format of an export, as `kolm export --to` names it."""

    ONNX = "onnx"
    PEFT = "peft"
    SENTENCE_TRANSFORMERS = "sentence-transformers"
    GGUF = "gguf"
    OPENVINO = "openvino"


@dataclass(frozen=True, slots=True, kw_only=True)
class Original:
    """The verified `.kolm` that is exported; `sha256` is that of the whole file."""

    kolm: Kolm
    sha256: str


Fill = Callable[[Path], Mapping[str, Any]]  # writes into the folder, and returns what export.json says beside digests


def write_folder(out: Path, original: Original, target: Target, fill: Fill) -> int:
    """Make the folder `out` with what `fill` writes, the receipts and `export.json`; returns its bytes. Where anything
    fails, nothing is left. Raises ExportRefused where `out` holds something, OSError."""
    check_empty(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        facts = fill(fresh)
        _write_receipts(fresh / "kolm", original.kolm)
        files = {path.relative_to(fresh).as_posix(): path for path in sorted(fresh.rglob("*")) if path.is_file()}
        digests = {name: {"sha256": _sha256(path), "size": path.stat().st_size} for name, path in files.items()}
        sheet = {"format": FORMAT, "to": target.value, "artifact": _artifact(original), **facts, "files": digests}
        (fresh / SHEET).write_text(json.dumps(sheet, indent=1, ensure_ascii=False) + "\n", "utf-8")
        fresh.chmod(0o755)
        if out.exists():
            out.rmdir()
        fresh.rename(out)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    return sum(path.stat().st_size for path in out.rglob("*") if path.is_file())


def check_empty(out: Path) -> None:
    """Raises ExportRefused unless the folder is not there or holds nothing."""
    if out.is_dir() and not any(out.iterdir()):
        return
    if out.exists() or out.is_symlink():
        raise ExportRefused(f"{out} is there and not an empty folder: name another one with --out, or remove it.")


def copy_members(kolm: Kolm, folder: Path, names: tuple[str, ...]) -> None:
    """Write those of the members that the artifact has, byte for byte."""
    for name in names:
        if name in kolm.members:
            (folder / name).write_bytes(kolm.members[name])


def _write_receipts(folder: Path, kolm: Kolm) -> None:
    for name in kolm.members:
        if name in ("manifest.json", "signatures.json") or name.startswith("receipts/"):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(kolm.members[name])


def _artifact(original: Original) -> dict[str, Any]:
    manifest = original.kolm.manifest
    kept = {key: manifest[key] for key in ("name", "compile", "created_at", "task_type", "base")}
    return {"sha256": original.sha256, **kept, "signed_by": list(original.kolm.signers)}


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
