"""Makes .venv-llama, where the tests' llama.cpp lives: `python3 -m deploy.llama.setup`. Done once; then it only
compares a stamp.

A venv of its own, because nothing of kolm needs llama.cpp: what the hook in `gpu_runners.speculation.llama_cpp`
promises is tested with the real library where it was built, and skipped by name elsewhere. Standard library only, like
`deploy.setup`.
"""

import sys
from pathlib import Path

from deploy.setup import CannotSetUp
from deploy.side_venv import SideVenv

ROOT = Path(__file__).resolve().parent.parent.parent
VENV = ROOT / ".venv-llama"
LOCK = Path(__file__).with_name("requirements.lock.txt")


def main() -> int:
    try:
        set_up()
    except CannotSetUp as fault:
        print(fault, file=sys.stderr)
        return 1
    return 0


def set_up() -> None:
    """Raises CannotSetUp."""
    SideVenv(folder=VENV, made_by=(LOCK, Path(__file__))).install(
        "llama.cpp, built from source (10 minutes of one core)",
        ("--no-deps", "-r", str(LOCK)),
        fault="pip could not build llama.cpp. It needs cmake's parts and a C++ compiler.",
    )


if __name__ == "__main__":
    sys.exit(main())
