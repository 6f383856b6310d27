"""A look at a base without its weights: whether it can be had and used here, and how large it is. What a preflight
knows of a base is from here.

A base that is on this machine is judged by its files' headers, one on the hub by what the hub announces of it. What
only the weights themselves tell (a header that is cut, an embedding of another width) is found when they are here.
"""

import math
import tempfile
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from backend.domain.jobs.base_checks import CheckBaseJob, CheckBaseResult
from backend.domain.planning.adapter_sizes import config_numbers, parameters_a_rank
from gpu_runners.config import HubConfig
from gpu_runners.errors import JobFailed
from gpu_runners.models.base_store.cache import BaseCache
from gpu_runners.models.base_store.fetching import disk_failed, inspect, library_copy, never_asked
from gpu_runners.models.base_store.files import (
    adapted_parameters,
    check_base,
    check_indexed_layers,
    read_json,
    read_optional,
    weight_files,
    wrong_architecture,
)
from gpu_runners.models.base_store.refusals import (
    GENERATION_CONFIG,
    READ_OF,
    TOKENIZER_CONFIG,
    causal_refusal,
    encoder_refusal,
)
from gpu_runners.models.bases import check_name, installed_folder

_WEIGHT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def look_at_base(job: CheckBaseJob, *, base_dir: Path | None, hub: HubConfig) -> CheckBaseResult:
    """Look, and say what a training would meet. A refusal is the result; nothing in a base's files makes it raise."""
    began = time.monotonic()

    def took_ms() -> int:
        return round((time.monotonic() - began) * 1000)

    try:
        check_name(job.base_model)
        folder = _folder_here(job.base_model, base_dir, hub)
        if folder is None and hub.is_offline:
            raise never_asked(job.base_model)
        values: dict[str, Any] = _of_hub(job, hub) if folder is None else _of_folder(job, folder)
        return CheckBaseResult(is_here=folder is not None, runner_ms=took_ms(), **values)
    except JobFailed as error:
        refusal = error
    except OSError as error:
        refusal = disk_failed(job.base_model, error)
    except (TypeError, ValueError, LookupError, AttributeError, RecursionError) as error:
        refusal = wrong_architecture(job.base_model, f"its files cannot be understood ({type(error).__name__})")
    return CheckBaseResult(code=refusal.code, message=refusal.message[:2000], runner_ms=took_ms())


def _folder_here(name: str, base_dir: Path | None, hub: HubConfig) -> Path | None:
    folder = installed_folder(name, base_dir) or BaseCache(hub.cache, limit=hub.cache_bytes).peek(name)
    if folder is None and hub.is_offline:
        folder = library_copy(name)
    return folder


def _of_folder(job: CheckBaseJob, folder: Path) -> dict[str, Any]:
    shapes = check_base(folder, job.base_model)
    config = read_json(folder, "config.json")
    check_usable(job.base_model, folder, kind=job.kind)
    return {
        "config": config_numbers(config),
        "size_bytes": sum((folder / file).stat().st_size for file in weight_files(folder)),
        "n_parameters": sum(math.prod(shape) for shape in shapes.values()),
        "adapter_parameters": adapted_parameters(shapes),
    }


def _of_hub(job: CheckBaseJob, hub: HubConfig) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="kolm-base-") as at:
        folder = Path(at)
        announced = inspect(job.base_model, hub, folder, wanted=READ_OF[job.kind])
        check_indexed_layers(folder, job.base_model)
        config = read_json(folder, "config.json")
        check_usable(job.base_model, folder, kind=job.kind, files=announced.small)
    width = _weight_bytes(config)
    return _room(job.base_model, announced.size, hub) | {
        "size_bytes": announced.size,
        "n_parameters": announced.weights // width if width else 0,
        "adapter_parameters": parameters_a_rank(config),
        "config": config_numbers(config),
    }


def _room(name: str, size: int, hub: HubConfig) -> dict[str, Any]:
    """The refusal by what others' bases take in the cache, after all that no waiting mends; nothing where it fits."""
    try:
        BaseCache(hub.cache, limit=hub.cache_bytes).check_room(name, size)
    except JobFailed as full:
        return {"code": full.code, "message": full.message[:2000]}
    return {}


def check_usable(name: str, folder: Path, *, kind: str, files: Collection[str] | None = None) -> None:
    """Refuse a base that no training of this kind (causal, encoder) can end with, by its small files. `files`: what
    else the base has beside those in the folder. Raises JobFailed: not_causal, base_unsupported, unsupported_base,
    base_truncated."""
    config = read_json(folder, "config.json")
    if kind == "causal":
        tokens, ends = (
            read_json(folder, file) if (folder / file).is_file() else None
            for file in (TOKENIZER_CONFIG, GENERATION_CONFIG)
        )
        names = [path.name for path in folder.iterdir()] if files is None else files
        refusal = causal_refusal(name, config, names, tokens or {}, ends)
    else:
        refusal = encoder_refusal(name, config, lambda file: read_optional(folder, file))
    if refusal is not None:
        raise refusal


def _weight_bytes(config: Mapping[str, Any]) -> int:
    """Bytes of a weight as the files hold it; 0 where the config does not say, or says that they are quantised."""
    if config.get("quantization_config"):
        return 0
    return _WEIGHT_BYTES.get(str(config.get("dtype") or config.get("torch_dtype")), 0)
