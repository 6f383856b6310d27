"""A runner's report about itself, and the job that looks at a base without fetching its weights, as they cross the seam
(`runner_jobs` has its rules)."""

from dataclasses import dataclass, field
from typing import Any

from backend.domain.jobs.result_checks import check, is_count, is_string, is_whole, read
from backend.domain.jobs.runner_jobs import RunnerJobKind, Wire

MOST_BYTES = 1 << 50
MAX_BASES = 200
MAX_NAME = 200
MAX_MESSAGE = 2_000
MAX_CONFIG, MOST_IN_CONFIG = 16, 1 << 31


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerReport(Wire):
    """`kinds` are the jobs that it takes. `memory_bytes` is what the device that it trains on has in all, `room_bytes`
    the most that a base may have which is fetched now, once bases that nobody uses have made room; None: not known.
    `bases` are those that it holds, as a spec names them. `is_offline`: it never asks a hub. `has_4_bits`: it can hold
    a base in 4 bits (train.causal.variant qlora); None: not known."""

    kinds: list[str]
    device: str = ""  # cpu | cuda | "" not known
    device_name: str = ""
    memory_bytes: int | None = None
    has_bf16: bool = False
    room_bytes: int | None = None
    bases: list[str] = field(default_factory=list)
    is_offline: bool = False
    has_4_bits: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckBaseJob(Wire):
    """Look whether a base can be had and used; `kind` is encoder or causal. No weights are fetched."""

    base_model: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckBaseResult(Wire):
    """`code` is that of the error which a training would end with, "" where the base can be used, `message` its
    sentence. Counts are 0 where they are not known. `adapter_parameters` are those of an adapter for each rank, on all
    linear layers. `config` are the numbers of the base's own config.json that sizes are counted from
    (`adapter_sizes.CONFIG_KEYS`), none where the base is of a kind that is not known there."""

    code: str = ""
    message: str = ""
    is_here: bool = False
    size_bytes: int = 0
    n_parameters: int = 0
    adapter_parameters: int = 0
    config: dict[str, int] = field(default_factory=dict)
    runner_ms: int = 0


def read_report(value: dict[str, Any]) -> RunnerReport:
    """A report as it can be stored: a runner is half trusted. Raises ValueError."""
    report = RunnerReport.from_json(value)
    names = [*report.kinds, *report.bases, report.device, report.device_name]
    if not isinstance(report.kinds, list) or not isinstance(report.bases, list) or len(report.bases) > MAX_BASES:
        raise ValueError(f"kinds and bases are lists, of at most {MAX_BASES} bases")
    if not all(is_string(name, MAX_NAME) for name in names):
        raise ValueError(f"kinds, bases and device are texts of at most {MAX_NAME} characters")
    for size in (report.memory_bytes, report.room_bytes):
        if size is not None and not is_whole(size, 0, MOST_BYTES):
            raise ValueError("memory_bytes and room_bytes are bytes, or null")
    if not isinstance(report.has_bf16, bool) or not isinstance(report.is_offline, bool):
        raise ValueError("has_bf16 and is_offline are true or false")
    return report


def check_base_result(value: dict[str, Any]) -> CheckBaseResult:
    """Raises BadResult."""
    result = read(CheckBaseResult, value)
    check(is_string(result.code, 64) and is_string(result.message, MAX_MESSAGE), "the refusal is no short text")
    check(isinstance(result.is_here, bool), "is_here is neither true nor false")
    for name in ("size_bytes", "n_parameters", "adapter_parameters"):
        check(is_whole(getattr(result, name), 0, MOST_BYTES), f"{name} is no count")
    check(is_count(result.runner_ms), "runner_ms is no count")
    check(isinstance(result.config, dict) and len(result.config) <= MAX_CONFIG, "config is no small object")
    for key, number in result.config.items():
        check(is_string(key, MAX_NAME) and is_whole(number, 1, MOST_IN_CONFIG), "a number of the config is none")
    return result


def trains(report: RunnerReport, *, is_causal: bool) -> bool:
    """Tell whether a runner takes the trainings of this kind of base."""
    return (RunnerJobKind.DISTILL_CAUSAL if is_causal else RunnerJobKind.DISTILL) in report.kinds
