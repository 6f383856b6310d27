"""The device that a serving engine runs on, as a value that `plan` can be asked about without having one."""

import importlib.util
import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

_CPU_INFO = Path("/proc/cpuinfo")


class DeviceKind(StrEnum):
    CPU = "cpu"
    CUDA = "cuda"


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """`memory_bytes` of one of the `count` like devices; on a CPU all of the machine's. `capability` is CUDA's compute
    capability as (major, minor), (0, 0) on a CPU. `has_bf16`: the machine computes in bfloat16 without emulating it."""

    kind: DeviceKind
    name: str
    memory_bytes: int
    count: int = 1
    capability: tuple[int, int] = (0, 0)
    has_bf16: bool = False


def detect() -> Device:
    """The GPUs of this machine (all like the first), else its CPU. Imports torch where it is installed."""
    if importlib.util.find_spec("torch") is not None:
        import torch

        if torch.cuda.is_available():
            facts = torch.cuda.get_device_properties(0)
            capability = (int(facts.major), int(facts.minor))
            return Device(
                kind=DeviceKind.CUDA,
                name=str(facts.name),
                memory_bytes=int(facts.total_memory),
                count=torch.cuda.device_count(),
                capability=capability,
                has_bf16=capability >= (8, 0),
            )
    return cpu()


def cpu() -> Device:
    flags = _cpu_flags()
    return Device(
        kind=DeviceKind.CPU,
        name="cpu",
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        has_bf16=bool({"avx512_bf16", "amx_bf16"} & flags),
    )


def _cpu_flags() -> set[str]:
    if not _CPU_INFO.is_file():
        return set()
    for line in _CPU_INFO.read_text().splitlines():
        if line.startswith(("flags", "Features")):
            return set(line.partition(":")[2].split())
    return set()
