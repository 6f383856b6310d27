"""Writes requirements.lock.txt from pyproject.toml: every package of every extra, pinned and hashed, except torch and
its CUDA tree.

    make lock            (needs `uv` on the PATH; nothing else in the project does)

torch stays out because one pin has several builds: the CPU wheel of one platform, PyTorch's own CPU index and PyPI's
CUDA build carry different hashes, and pip's --require-hashes is all or nothing per call. Set-up therefore installs this
file first and torch in a second call.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# the whole of it for a clone; the closures of two images and of their pages, whose pins a test holds to the first
LOCKS = {
    ROOT / "requirements.lock.txt": ("dev",),
    ROOT / "deploy" / "web.lock.txt": ("web",),
    ROOT / "deploy" / "models.lock.txt": ("worker", "runner"),
    ROOT / "deploy" / "docs.lock.txt": ("docs",),
    ROOT / "deploy" / "node.lock.txt": ("node",),  # only where set-up finds no npm
}
# a group has nothing of the project itself: the clients' pins are at odds with ours
CLIENTS_LOCK = ROOT / "deploy" / "clients.lock.txt"
NOT_LOCKED = re.compile(r"(torch|triton|cuda-[\w-]+|nvidia-[\w-]+)==")

HEAD = """\
# Written by `make lock` from pyproject.toml: do not edit.
# Packages for any platform, pinned and hashed, with two kinds left out:
#   torch   its wheel, and so its hash, differs by platform and by CPU or CUDA: `torch==2.13.0` is a call of its own
#   nvidia-*, cuda-*, triton   the CUDA build of torch brings its own; a CPU build needs none of them
# Install with:  pip install --no-deps --require-hashes -r {name} && pip install torch==2.13.0
"""
_CLIENTS_HEAD = """\
# Written by `make lock` from pyproject.toml's group `clients`: do not edit.
# Install with:  pip install --no-deps --require-hashes -r deploy/clients.lock.txt
"""


def strip_torch(compiled: str) -> str:
    """The lock without torch's block and those of its CUDA tree; a block is a pin and the indented lines under it."""
    blocks = re.split(r"(?m)^(?=[A-Za-z0-9])", compiled)
    return "".join(block for block in blocks if not NOT_LOCKED.match(block))


def compile_lock(extras: tuple[str, ...]) -> str:
    return _compile("pyproject.toml", *(part for extra in extras for part in ("--extra", extra)))


def _compile(*sources: str) -> str:
    command = ["uv", "pip", "compile", *sources, "--universal", "--python-version", "3.11", "--generate-hashes"]
    command += ["--no-header", "--no-annotate", "--quiet"]
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> int:
    try:
        for path, extras in LOCKS.items():
            path.write_text(HEAD.format(name=path.relative_to(ROOT)) + strip_torch(compile_lock(extras)))
        CLIENTS_LOCK.write_text(_CLIENTS_HEAD + _compile("--group", "clients"))
    except FileNotFoundError:
        print("make lock needs uv: install it with `pipx install uv` or `pip install uv`.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
