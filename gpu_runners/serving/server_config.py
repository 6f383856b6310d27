"""A server's settings, read once from the environment."""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from backend.domain.jobs.blob_transfers import MAX_BLOB_BYTES
from gpu_runners.config import BadSetting, encoder_engine, folder, hub_config, number, require
from gpu_runners.engine.planning.plan import Speculation
from gpu_runners.serving.adapter_files import is_digest

_MIB = 1 << 20
_SHM = Path("/dev/shm")
Kind = TypeVar("Kind", bound=StrEnum)


class EngineKind(StrEnum):
    """AUTO: vLLM where it is installed, else our own engine on transformers."""

    AUTO = "auto"
    TORCH = "torch"
    VLLM = "vllm"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """`url` is where the gateway reaches this server. `bases` empty: every causal base under `base_dir`. `state` holds
    the usage journal and the fetched artifacts, `unpacked` their adapters (in memory where the system has a tmpfs).
    `dedicated`: the sha256 of the one artifact that this server answers for, merged into its base; "" for many."""

    api_url: str
    token: str
    keyring: Path
    base_dir: Path | None
    bases: tuple[str, ...]
    name: str
    host: str
    port: int
    url: str
    engine: EngineKind
    state: Path
    unpacked: Path
    disk_bytes: int
    ram_bytes: int
    artifact_bytes: int
    slots: int
    max_rank: int
    max_context: int
    max_running: int
    max_waiting: int
    max_engines: int
    speculation: Speculation
    draft: str
    dedicated: str
    drain_s: float


def read_server_config(environ: Mapping[str, str] = os.environ) -> ServerConfig:
    """Read KOLM_API_URL, KOLM_RUNNER_TOKEN, KOLM_KEYRING (required), KOLM_BASE_DIR, KOLM_MAX_BLOB_BYTES and
    KOLM_SERVER_*, which deploy/env.example explains. Raises BadSetting, for what `hub_config` and `encoder_engine`
    would refuse too."""
    hub_config(environ)  # read when a base is opened; a wrong value ends the server here
    encoder_engine(environ)
    api_url = require(environ, "KOLM_API_URL", "the web process's address, such as http://127.0.0.1:8000").rstrip("/")
    host = environ.get("KOLM_SERVER_HOST") or "127.0.0.1"
    port = int(number(environ, "KOLM_SERVER_PORT", 8014, low=1, high=65535))
    name = environ.get("KOLM_SERVER_NAME") or f"{socket.gethostname()}-{port}"
    state = folder(environ, "KOLM_SERVER_DIR") or Path.home() / ".local" / "state" / "kolm" / f"server-{port}"
    return ServerConfig(
        api_url=api_url,
        token=require(environ, "KOLM_RUNNER_TOKEN", "the token that the web process was started with"),
        keyring=Path(require(environ, "KOLM_KEYRING", "the pinned keys whose artifacts may be loaded")).expanduser(),
        base_dir=folder(environ, "KOLM_BASE_DIR"),
        bases=tuple(part.strip() for part in environ.get("KOLM_SERVER_BASES", "").split(",") if part.strip()),
        name=name,
        host=host,
        port=port,
        url=(environ.get("KOLM_SERVER_URL") or f"http://{host}:{port}").rstrip("/"),
        engine=_one_of(EngineKind, environ, "KOLM_SERVER_ENGINE", EngineKind.AUTO),
        state=state,
        unpacked=folder(environ, "KOLM_SERVER_RAM_DIR") or _memory_backed(state, port),
        disk_bytes=int(number(environ, "KOLM_SERVER_DISK_MIB", 20_000, low=1, high=1e7)) * _MIB,
        ram_bytes=int(number(environ, "KOLM_SERVER_RAM_MIB", 1_000, low=1, high=1e7)) * _MIB,
        artifact_bytes=int(number(environ, "KOLM_MAX_BLOB_BYTES", MAX_BLOB_BYTES, low=1 << 24, high=1 << 50)),
        slots=int(number(environ, "KOLM_SERVER_SLOTS", 8, low=1, high=512)),
        max_rank=int(number(environ, "KOLM_SERVER_MAX_RANK", 32, low=1, high=512)),
        max_context=int(number(environ, "KOLM_SERVER_MAX_CONTEXT", 8192, low=64, high=1 << 20)),
        max_running=int(number(environ, "KOLM_SERVER_MAX_RUNNING", 32, low=1, high=4096)),
        max_waiting=int(number(environ, "KOLM_SERVER_MAX_WAITING", 256, low=0, high=100_000)),
        max_engines=int(number(environ, "KOLM_SERVER_ENGINES", 1, low=1, high=16)),
        speculation=_one_of(Speculation, environ, "KOLM_SERVER_SPECULATION", Speculation.RECIPES),
        draft=environ.get("KOLM_SERVER_DRAFT", ""),
        dedicated=_digest(environ, "KOLM_SERVER_DEDICATED"),
        drain_s=number(environ, "KOLM_SERVER_DRAIN_S", 30, low=0, high=3600),
    )


def _memory_backed(state: Path, port: int) -> Path:
    """A folder under /dev/shm, where there is one to write to: adapters are read from memory then."""
    is_there = _SHM.is_dir() and os.access(_SHM, os.W_OK)
    return _SHM / f"kolm-{os.getuid()}-server-{port}" if is_there else state / "unpacked"


def _digest(environ: Mapping[str, str], name: str) -> str:
    text = environ.get(name, "").strip()
    if text and not is_digest(text):
        raise BadSetting(f"{name} is {text[:80]!r}; use the sha256 of a .kolm file, or leave it out.")
    return text


def _one_of(kind: type[Kind], environ: Mapping[str, str], name: str, default: Kind) -> Kind:
    text = environ.get(name, "").strip()
    try:
        return kind(text) if text else default
    except ValueError as error:
        raise BadSetting(f"{name} is {text!r}; use one of {', '.join(kind)}.") from error
