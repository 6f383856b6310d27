"""`python -m gpu_runners.agent.device_probe`: the device of this machine as one line of JSON.

A process of its own: to ask a GPU for its memory makes a context on it, which stays as long as the process."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

WAIT_S = 120.0
_GPU_FILES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/kfd")


def main() -> None:
    from gpu_runners.models.device import detect

    can = detect()
    has_4_bits = can.device == "cuda" and "bitsandbytes" in can.libraries
    value = {"device": can.device, "device_name": can.name, "has_bf16": can.bf16, "has_4_bits": has_4_bits}
    if can.device != "cpu":
        value["memory_bytes"] = can.memory_bytes
    print(json.dumps(value))


def probe() -> dict[str, Any]:
    """The fields of a RunnerReport about the device; without those that cannot be told. A machine without the files of
    a GPU's driver is a CPU, and torch is not imported to say so."""
    if not any(Path(file).exists() for file in _GPU_FILES):
        return {"device": "cpu", "device_name": "cpu", "memory_bytes": main_memory(), "has_4_bits": False}
    command = [sys.executable, "-m", "gpu_runners.agent.device_probe"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=WAIT_S, check=True, cwd=Path(__file__).parents[2]
        )
        value: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return {}
    return {"memory_bytes": main_memory()} | value if value.get("device") == "cpu" else value


def main_memory() -> int | None:
    """Bytes of main memory that this process may have: the machine's, or its container's limit."""
    import os

    try:
        most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text("utf-8"))
    except (OSError, ValueError):  # "max", or no such file
        return most
    return min(most, limit)


if __name__ == "__main__":
    main()
