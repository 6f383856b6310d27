"""Makes .venv-llama, where the tests' llama.cpp lives: `python3 -m deploy.llama.setup`. Done once; then it only
compares a stamp.

A venv of its own, because nothing of kolm needs llama.cpp: what the hook in `gpu_runners.speculation.llama_cpp`
promises is tested with the real library where it was built, and skipped by name elsewhere. Standard library only, like
`deploy.setup`.
"""

import subprocess
import sys
import time
from pathlib import Path

from deploy.setup import PIP_FAULTS, CannotSetUp, digest, say

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
    wanted = digest(LOCK.read_bytes() + Path(__file__).read_bytes() + sys.version.encode())
    stamp = VENV / ".kolm-packages"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    started = time.monotonic()
    if not (VENV / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    say("building llama.cpp (10 minutes of one core) ...")
    command = [str(VENV / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input"]
    command += ["install", "--no-deps", "-r", str(LOCK)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT, check=False)
    if done.returncode:
        sentence = next(
            (sentence_of for sign, sentence_of in PIP_FAULTS if sign in done.stdout), "pip could not build llama.cpp."
        )
        last = (done.stdout.strip().splitlines() or ["nothing"])[-1]
        raise CannotSetUp(f"{sentence} It needs cmake's parts and a C++ compiler. pip's last words: {last[:300]}")
    stamp.write_text(wanted)
    say(f"installed in {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
