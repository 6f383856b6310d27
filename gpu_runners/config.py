"""A runner's settings, read once from the environment."""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path

from backend.domain.jobs.runner_jobs import RunnerJobKind

STILL_S = 60.0  # of silence without work, until a child is taken to stand still (`stalling`)


class BadSetting(Exception):
    """A setting is missing or cannot be read; the message says which and what to put."""


class EncoderEngine(StrEnum):
    """The library that computes a plain BERT or RoBERTa base when it answers; auto: ONNX Runtime where it pays."""

    NUMPY = "numpy"
    AUTO = "auto"
    ONNX = "onnx"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerConfig:
    """`keyring` names the keys whose artifacts this runner may load; `wait_s` is the length of a claim's long poll,
    `outage_s` how long a job goes on without an answer of the server, `still_s` how long a child may use no processor
    and say nothing."""

    api_url: str
    token: str
    name: str
    kinds: tuple[RunnerJobKind, ...]
    keyring: Path | None
    base_dir: Path | None
    keep_models: int
    keep_bases: int
    wait_s: float
    outage_s: float = 600.0
    still_s: float = STILL_S


@dataclass(frozen=True, slots=True, kw_only=True)
class HubConfig:
    """The source of bases that are not installed. `cache_bytes` is the most that all fetched bases have together,
    None: what the disk holds. `endpoint` None: the hub library's own."""

    is_offline: bool
    endpoint: str | None
    token: str = field(repr=False)
    cache: Path
    cache_bytes: int | None


def hub_config(environ: Mapping[str, str] = os.environ) -> HubConfig:
    """Read HF_HUB_OFFLINE (1: never ask a hub), HF_ENDPOINT, HF_TOKEN, KOLM_BASE_CACHE (the folder of fetched bases),
    KOLM_BASE_CACHE_BYTES. Raises BadSetting."""
    home = Path(environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    most = number(environ, "KOLM_BASE_CACHE_BYTES", 0, low=0, high=1 << 60)
    return HubConfig(
        is_offline=environ.get("HF_HUB_OFFLINE", "").strip().lower() not in ("", "0", "false", "no", "off"),
        endpoint=environ.get("HF_ENDPOINT", "").strip().rstrip("/") or None,
        token=environ.get("HF_TOKEN", "").strip(),
        cache=folder(environ, "KOLM_BASE_CACHE") or home / "kolm" / "bases",
        cache_bytes=int(most) or None,
    )


def encoder_engine(environ: Mapping[str, str] = os.environ) -> EncoderEngine:
    """Read KOLM_ENCODER_ENGINE: auto (default; numpy where ONNX Runtime's packages are not here), numpy, onnx. Raises
    BadSetting."""
    text = environ.get("KOLM_ENCODER_ENGINE", "").strip() or EncoderEngine.AUTO
    try:
        engine = EncoderEngine(text)
    except ValueError as error:
        raise BadSetting(f"KOLM_ENCODER_ENGINE is {text[:40]!r}; use one of {', '.join(EncoderEngine)}.") from error
    missing = [name for name in ("onnx", "onnxruntime") if find_spec(name) is None]
    if engine is EncoderEngine.ONNX and missing:
        raise BadSetting(
            f"KOLM_ENCODER_ENGINE is 'onnx', and {missing[0]} is not here: install kolm with its extra 'runner' "
            "(docs/client.md), or use auto."
        )
    return EncoderEngine.NUMPY if missing else engine


def read_config(environ: Mapping[str, str] = os.environ) -> RunnerConfig:
    """Read KOLM_API_URL, KOLM_RUNNER_TOKEN (required), KOLM_RUNNER_NAME, KOLM_RUNNER_KINDS (comma-separated, default
    all), KOLM_KEYRING, KOLM_BASE_DIR, KOLM_RUNNER_MODELS (models kept warm, 8), KOLM_RUNNER_BASES (bases under them,
    3), KOLM_RUNNER_WAIT_S (20), KOLM_OUTAGE_S (600), KOLM_RUNNER_STILL_S (60). Raises BadSetting, for what
    `hub_config` and `encoder_engine` would refuse too."""
    hub_config(environ)  # a child reads it when it opens a base; a wrong value ends the agent here
    encoder_engine(environ)
    return RunnerConfig(
        api_url=require(environ, "KOLM_API_URL", "the web process's address, such as http://127.0.0.1:8000").rstrip(
            "/"
        ),
        token=require(environ, "KOLM_RUNNER_TOKEN", "the token that the web process was started with"),
        name=environ.get("KOLM_RUNNER_NAME") or f"{socket.gethostname()}-{os.getpid()}",
        kinds=_kinds(environ.get("KOLM_RUNNER_KINDS", "")),
        keyring=folder(environ, "KOLM_KEYRING"),
        base_dir=base_dir(environ),
        keep_models=int(number(environ, "KOLM_RUNNER_MODELS", 8, low=1, high=1000)),
        keep_bases=int(number(environ, "KOLM_RUNNER_BASES", 3, low=1, high=100)),
        wait_s=number(environ, "KOLM_RUNNER_WAIT_S", 20, low=0, high=60),
        outage_s=number(environ, "KOLM_OUTAGE_S", 600, low=1, high=86_400),
        still_s=number(environ, "KOLM_RUNNER_STILL_S", STILL_S, low=3, high=86_400),
    )


def base_dir(environ: Mapping[str, str] = os.environ) -> Path | None:
    """KOLM_BASE_DIR: where bases lie that are neither in a wheel nor on the hub."""
    return folder(environ, "KOLM_BASE_DIR")


def require(environ: Mapping[str, str], name: str, what: str) -> str:
    value = environ.get(name, "").strip()
    if not value:
        raise BadSetting(f"Set {name} to {what}.")
    return value


def _kinds(text: str) -> tuple[RunnerJobKind, ...]:
    names = [part.strip() for part in text.split(",") if part.strip()]
    try:
        return tuple(RunnerJobKind(name) for name in names) or tuple(RunnerJobKind)
    except ValueError as error:
        raise BadSetting(f"KOLM_RUNNER_KINDS is {text!r}; use some of {', '.join(RunnerJobKind)}.") from error


def folder(environ: Mapping[str, str], name: str) -> Path | None:
    return Path(environ[name]).expanduser() if environ.get(name) else None


def number(environ: Mapping[str, str], name: str, default: float, *, low: float, high: float) -> float:
    text = environ.get(name, "")
    try:
        value = float(text) if text else default
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        raise BadSetting(f"{name} is {text!r}; use a number from {low:g} to {high:g}.")
    return value
