"""Builds llama-server into .venv-llama: `python3 -m deploy.llama.build_server`. Done once; then a stamp is compared.

Its sources are those in llama-cpp-python's sdist, of the version that the lock names, and it is linked to the libraries
which that version has built here (`deploy.llama.setup`). Needs cmake and a C++ compiler, minutes of one core. Standard
library only.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from deploy.llama.setup import LOCK, ROOT, VENV, set_up
from deploy.setup import CannotSetUp, digest, say

PROJECT = Path(__file__).with_name("server")
SERVER = VENV / "bin" / "llama-server"
SDIST_SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"  # of 0.3.36
OPTIMISED = "-O1 -DNDEBUG"  # what computes is in the libraries; this is a third of the time that -O3 takes


def main() -> int:
    try:
        set_up()
        build()
    except CannotSetUp as fault:
        print(fault, file=sys.stderr)
        return 1
    return 0


def build() -> None:
    stamp = VENV / ".kolm-llama-server"
    parts = (Path(__file__).read_bytes(), (PROJECT / "CMakeLists.txt").read_bytes(), LOCK.read_bytes())
    wanted = digest(b"".join(parts) + sys.version.encode())
    if SERVER.exists() and stamp.exists() and stamp.read_text() == wanted:
        return
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kolm-llama-") as name:
        sources = unpack(Path(name))
        say("building llama-server (minutes of one core) ...")
        built = compile_server(sources, Path(name) / "build")
        fresh = shutil.copy2(built, SERVER.with_name("llama-server.new"))
        Path(fresh).replace(SERVER)
    stamp.write_text(wanted)
    say(f"built in {time.monotonic() - started:.0f} s")


def unpack(folder: Path) -> Path:
    """vendor/llama.cpp of the locked sdist, fetched and checked."""
    version = next(iter(re.findall(r"^llama-cpp-python==(\S+)$", LOCK.read_text(), re.MULTILINE)))
    pip = (str(VENV / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input", "download")
    only = ("--no-deps", "--no-binary", "llama-cpp-python", "--dest", str(folder), f"llama-cpp-python=={version}")
    _run(*pip, *only, fault="pip could not fetch the sources of llama.cpp.")
    sdist = next(folder.glob("llama_cpp_python-*.tar.gz"))
    if digest(sdist.read_bytes()) != SDIST_SHA256:
        raise CannotSetUp(f"{sdist.name} is not the one that was read when this was written; see SDIST_SHA256.")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    return next(folder.glob("llama_cpp_python-*/vendor/llama.cpp"))


def compile_server(sources: Path, folder: Path) -> Path:
    cmake = shutil.which("cmake")
    if cmake is None:
        raise CannotSetUp("llama-server is built with cmake (3.21 or later), which is not on the PATH.")
    library = next(VENV.glob("lib/python*/site-packages/lib/libllama-common.*"), None)
    if library is None:
        raise CannotSetUp(f"There is no libllama-common in {VENV}; remove it and run this again.")
    settings = {"LLAMA_CPP": str(sources), "LLAMA_LIB": str(library.parent)}
    settings |= {"CMAKE_BUILD_TYPE": "Release", "CMAKE_CXX_FLAGS_RELEASE": OPTIMISED}
    defined = [f"-D{name}={value}" for name, value in settings.items()]
    fault = "cmake could not build llama-server."
    _run(cmake, "-S", str(PROJECT), "-B", str(folder), *defined, fault=fault)
    jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", "1")
    _run(cmake, "--build", str(folder), "--target", "llama-server", "--parallel", jobs, fault=fault)
    return next(path for path in folder.rglob("llama-server") if path.is_file())


def _run(*command: str, fault: str) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT, check=False)
    if done.returncode:
        last = [line for line in done.stdout.splitlines() if line.strip()][-3:]
        raise CannotSetUp(f"{fault} Last words: {' / '.join(last)[-600:]}")


if __name__ == "__main__":
    sys.exit(main())
