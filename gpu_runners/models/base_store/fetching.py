"""The fetch of a base from a Hugging Face hub into the base cache.

In this order, so that what cannot be used costs nothing: what the hub says of the repository and its files, their
sizes beside the disk's room, the small files and what they declare, the weights. Only safetensors weights, at the top
of the repository; never pickles, never code.

`owner/model@revision` pins a commit, a tag or a branch. A name without a pin is what the hub had when this machine
fetched it first, until it is evicted. Private repositories are refused, whatever HF_TOKEN may read: names come from
tenants' specs, and the token is the operator's.
"""

import errno
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import TypeVar

from backend.domain.encoders.sentence_settings import TRANSFORMER_FILES, pooling_file
from gpu_runners.config import HubConfig
from gpu_runners.errors import JobFailed
from gpu_runners.models.base_store.cache import BaseCache, Hold
from gpu_runners.models.base_store.files import (
    INDEX,
    SINGLE,
    check_base,
    check_config,
    check_tokenizer,
    check_weights,
    indexed_shards,
    read_json,
    read_optional,
)

T = TypeVar("T")

log = logging.getLogger("kolm.bases")

MODULES = "modules.json"
SMALL_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    INDEX,
    MODULES,
    "config_sentence_transformers.json",
    *TRANSFORMER_FILES,
)
_MB = 1 << 20
MOST_BYTES = {"config.json": _MB, INDEX: 64 * _MB, "tokenizer.json": 256 * _MB}  # of a small file; others have 16 MiB
RETRY_S = (1.0, 5.0)  # waits between tries at what a network may have cut
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Repository:
    """The hub's description of a repository at one commit; `sizes` in bytes by file, None where it does not say."""

    commit: str
    sizes: dict[str, int | None]


def open_cached(name: str, config: HubConfig) -> tuple[Path, Hold | None] | None:
    """A base that is already on this machine: in the base cache, or offline in the hub library's own. None: neither."""
    cached = BaseCache(config.cache, limit=config.cache_bytes).take(name)
    if cached is not None or not config.is_offline:
        return cached
    folder = library_copy(name)
    return None if folder is None else (folder, None)


def library_copy(name: str) -> Path | None:
    """A base in the hub library's own cache. No hub is asked."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    repo, revision = _split(name)
    try:
        return Path(snapshot_download(repo, revision=revision, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError):
        return None


def fetch(name: str, config: HubConfig) -> tuple[Path, Hold | None]:
    """The folder of a base, fetched where it is not here yet, and the hold that keeps it from being evicted. Raises
    JobFailed: unknown_base, gated_base, base_too_large, base_truncated, base_needs_remote_code,
    base_without_tokenizer, base_wrong_architecture; ours: hub_unavailable, base_cache_full, base_cache_failed."""
    try:
        while True:
            cached = open_cached(name, config)
            if cached is not None:
                return cached
            if config.is_offline:
                raise never_asked(name)
            _fill(name, config)
    except OSError as error:
        raise disk_failed(name, error) from error


def never_asked(name: str) -> JobFailed:
    return JobFailed(
        f"The base {name!r} is not installed on this runner, which never asks a hub (HF_HUB_OFFLINE): "
        f"put its files under KOLM_BASE_DIR/{name}, or use a base that is there.",
        code="unknown_base",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced:
    """The sizes of a base as the hub announces them, in bytes: of all that would be fetched, and of its weights; and
    the small files among it."""

    size: int
    weights: int
    small: tuple[str, ...]


def inspect(name: str, config: HubConfig, folder: Path, *, wanted: Sequence[str] = ()) -> Announced:
    """Look at a base on the hub as `fetch` does before the weights; config.json, the weights' index and those of the
    `wanted` small files that are there are put into `folder`. Raises what `fetch` raises, but for what only the weights
    tell."""
    try:
        repository = _trying(name, lambda: _look_up(name, config))
        small, weights = _checked_listing(name, repository)
        size = sum(repository.sizes[file] or 0 for file in [*small, *weights])
        BaseCache(config.cache, limit=config.cache_bytes).check_possible(name, size)
        _download(name, repository, [file for file in ("config.json", INDEX) if file in small], folder, config)
        check_config(read_json(folder, "config.json"), name)
        in_bytes = sum(repository.sizes[file] or 0 for file in _wanted_weights(name, folder, repository))
        _download_small(name, repository, [file for file in wanted if file in small], folder, config)
        return Announced(size=size, weights=in_bytes, small=tuple(small))
    except OSError as error:
        raise disk_failed(name, error) from error


def _checked_listing(name: str, repository: _Repository) -> tuple[list[str], list[str]]:
    """The small files and the weights that a repository lists. Small files are read whole, so their size is bounded."""
    small = [file for file in SMALL_FILES if file in repository.sizes]
    weights = _announced_weights(repository)
    _check_small(name, repository, small)
    check_tokenizer("tokenizer.json" in small, name)
    check_weights(bool(weights), name)
    return small, weights


def _check_small(name: str, repository: _Repository, files: Sequence[str]) -> None:
    for file in files:
        size, most = repository.sizes[file] or 0, MOST_BYTES.get(file, 16 * _MB)
        if size > most:
            raise JobFailed(
                f"The base {name!r} announces {size:,} bytes of {file}, where {most:,} are the most. Use another "
                "revision or another base.",
                code="base_truncated",
            )


def _download_small(name: str, repository: _Repository, files: list[str], folder: Path, config: HubConfig) -> None:
    """Fetch small files and, where modules.json is one of them, the pooling that it names, wherever that lies."""
    _download(name, repository, files, folder, config)
    pooling = pooling_file(read_optional(folder, MODULES))
    if pooling in repository.sizes and not (folder / pooling).exists():
        _check_small(name, repository, [pooling])
        _download(name, repository, [pooling], folder, config)


def _fill(name: str, config: HubConfig) -> None:
    cache = BaseCache(config.cache, limit=config.cache_bytes)
    with cache.filling(name):
        if cache.is_whole(name):
            return
        began = time.monotonic()
        repository = _trying(name, lambda: _look_up(name, config))
        small, weights = _checked_listing(name, repository)
        size = sum(repository.sizes[file] or 0 for file in [*small, *weights])
        folder = cache.make_room(name, repository.commit, size)
        try:
            _download_small(name, repository, small, folder, config)
            check_config(read_json(folder, "config.json"), name)
            _download(name, repository, _wanted_weights(name, folder, repository), folder, config)
            check_base(folder, name)
        except JobFailed as error:
            if not error.retryable:
                cache.drop(name)
            raise
        cache.keep(name, repository.commit, size)
        log.info("fetched the base %r (%d bytes) in %.0f s", name, size, time.monotonic() - began)


def _look_up(name: str, config: HubConfig) -> _Repository:
    from huggingface_hub import HfApi

    repo, revision = _split(name)
    info = HfApi(endpoint=config.endpoint, token=config.token or False).model_info(
        repo, revision=revision, files_metadata=True, timeout=30
    )
    if info.private:
        raise JobFailed(
            f"The base {name!r} is in a private repository, which is never fetched for a spec: put its files under "
            f"KOLM_BASE_DIR/{name} of the runners.",
            code="unknown_base",
        )
    sizes = {file.rfilename: file.size for file in info.siblings or []}
    if "config.json" not in sizes:
        raise JobFailed(f"The repository {name!r} has no config.json: it is no model.", code="unknown_base")
    return _Repository(commit=str(info.sha), sizes=sizes)


def _announced_weights(repository: _Repository) -> list[str]:
    """The weights by their names alone, before the index is read: shards where there is an index, else the single
    file, else all. Other formats of the same weights (`consolidated.safetensors`) are left out."""
    files = [file for file in repository.sizes if fnmatch(file, "*.safetensors") and "/" not in file]
    if INDEX in repository.sizes:
        return [file for file in files if fnmatch(file, "model-*.safetensors")] or files
    return [SINGLE] if SINGLE in files else files


def _wanted_weights(name: str, folder: Path, repository: _Repository) -> list[str]:
    if not (folder / INDEX).is_file():
        return _announced_weights(repository)
    shards = indexed_shards(folder)
    absent = [shard for shard in shards if shard not in repository.sizes]
    if absent:
        raise JobFailed(
            f"The base {name!r} is not whole: its index names {absent[0]!r}, which the hub does not have. Use another "
            "revision.",
            code="base_truncated",
        )
    return shards


def _download(name: str, repository: _Repository, files: list[str], folder: Path, config: HubConfig) -> None:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()
    repo, _ = _split(name)
    get = partial(
        hf_hub_download,
        repo,
        revision=repository.commit,
        local_dir=folder,
        endpoint=config.endpoint,
        token=config.token or False,
    )
    for file in files:
        _trying(name, partial(get, file))
        size, announced = (folder / file).stat().st_size, repository.sizes[file]
        if announced is not None and size != announced:
            raise JobFailed(
                f"The base {name!r} is not whole: the hub announced {announced:,} bytes of {file} and gave {size:,}.",
                code="base_truncated",
            )


def _trying(name: str, act: Callable[[], T]) -> T:
    from huggingface_hub import errors

    # not every release that vLLM goes with has the last two
    own = [getattr(errors, kind, OSError) for kind in ("HTTPError", "XetDownloadError")]
    of_a_fetch: tuple[type[Exception], ...] = (OSError, ValueError, RuntimeError, *own)
    for wait_s in (*RETRY_S, None):
        try:
            return act()
        except of_a_fetch as error:
            failure = _failure(name, error)
            if not failure.retryable or wait_s is None:
                raise failure from error
            log.warning("the hub did not give %r (%s); trying again", name, type(error).__name__)
            time.sleep(wait_s)
    raise AssertionError("unreachable")


def _failure(name: str, error: Exception) -> JobFailed:
    """Say what an exception of the hub's library means. Its own text is left out: it has addresses in it."""
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return JobFailed(
            f"The base {name!r} is gated: its licence has to be accepted on the hub, and the operator gives the runner "
            "an HF_TOKEN of the account that accepted it.",
            code="gated_base",
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return _unknown(name, "the hub has no such revision of it")
    status = getattr(getattr(error, "response", None), "status_code", 0)
    if isinstance(error, (errors.RepositoryNotFoundError, errors.HFValidationError)) or status in (401, 403):
        return _unknown(name, "the hub has no such public repository")
    if isinstance(error, errors.RemoteEntryNotFoundError):
        return _unknown(name, "the hub lists files of it that it does not have")
    if isinstance(error, OSError) and error.errno in _DISK:
        return disk_failed(name, error)
    return JobFailed(
        f"The base {name!r} could not be fetched: the hub does not answer ({type(error).__name__}).",
        code="hub_unavailable",
        retryable=True,
    )


def _unknown(name: str, why: str) -> JobFailed:
    return JobFailed(
        f"The base {name!r} is not installed here, and {why}. Check its name, or have its files put under "
        f"KOLM_BASE_DIR/{name} of the runners.",
        code="unknown_base",
    )


def disk_failed(name: str, error: OSError) -> JobFailed:
    return JobFailed(
        f"The base {name!r} could not be stored: {error.strerror or type(error).__name__}.",
        code="base_cache_failed",
        retryable=True,
    )


def _split(name: str) -> tuple[str, str | None]:
    """(repository, revision or None); a name without an owner is sentence-transformers'."""
    repo, _, revision = name.partition("@")
    return repo if "/" in repo else f"sentence-transformers/{repo}", revision or None
