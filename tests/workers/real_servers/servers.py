"""Real servers on loopback over a real language model, Gemma 3 270M: llama-server, `transformers serve` and vLLM, each
as its own documentation starts it. One that is not installed here says which make target brings it.

Gemma is no instruct model, and its chat template is ours: what it answers is mostly nonsense in the right language,
which is what these tests and benches want of it: a client is held to what servers do, not to what a model knows.
"""

import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx

from deploy.embedded.home import ROOT
from deploy.embedded.ports import free_ports
from deploy.gemma import gguf
from deploy.gemma.__main__ import HERE, NAME
from tests.gpu_runners.speculation.llama_server import SERVER, llama_server
from tests.vllm import engine

BASE = ROOT / "build" / "bases" / NAME
CONTEXT = 2048
SLOTS = 4
START_S = 1200.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RealServer:
    """A server that answers at `origin`; `model` is what it calls the model, `version` what it says of itself."""

    name: str
    origin: str
    model: str
    version: str

    @property
    def base_url(self) -> str:
        return f"{self.origin}/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """How a server is started, under the name of its dialect's row; `missing` says what it lacks here, "" for
    nothing."""

    name: str
    missing: Callable[[], str]
    running: Callable[[Path], contextlib.AbstractContextManager[RealServer]]


def missing_llama() -> str:
    if not SERVER.exists():
        return "no llama-server here: `make setup-llama-server` builds it into .venv-llama"
    return "" if gguf.path().is_file() else f"no {gguf.path().name} here: `python -m deploy.gemma.gguf` fetches it"


def missing_vllm() -> str:
    if not engine.COMMAND.exists():
        return "no vLLM here: `make setup-vllm` installs one into .venv-vllm, and transformers' server with it"
    return "" if (BASE / "config.json").is_file() else "no Gemma here: `make base-gemma` fetches and converts it"


@contextlib.contextmanager
def running_llama(folder: Path, *flags: str) -> Iterator[RealServer]:
    own = ["-c", str(CONTEXT * SLOTS), "-np", str(SLOTS), "--jinja"]
    own += ["--chat-template-file", str(HERE / "chat_template.jinja")]
    with llama_server(gguf.path(), *own, *flags, log=folder / "llama-server.log") as server:
        props = httpx.get(f"{server.url}/props", timeout=30).json()
        yield RealServer(name="llama-server", origin=server.url, model=NAME, version=str(props["build_info"]))


@contextlib.contextmanager
def running_transformers(folder: Path) -> Iterator[RealServer]:
    (port,) = free_ports(1)
    origin = f"http://127.0.0.1:{port}"
    command = [str(engine.VENV / "bin" / "transformers"), "serve", str(BASE), "--host", "127.0.0.1"]
    command += ["--port", str(port), "--device", "cpu", "--dtype", "float32"]
    lent = folder / "lent"  # it wants accelerate, which .venv-vllm does not have
    lent.mkdir(exist_ok=True)
    spec = importlib.util.find_spec("accelerate")
    if spec is None or spec.origin is None:
        raise AssertionError("accelerate is not installed in .venv")
    for path in Path(spec.origin).parent.parent.glob("accelerate*"):
        (lent / path.name).symlink_to(path)
    with started(command, f"{origin}/health", folder / "transformers.log", {"PYTHONPATH": str(lent)}):
        yield RealServer(name="transformers", origin=origin, model=str(BASE), version=package_version("transformers"))


@contextlib.contextmanager
def running_vllm(folder: Path) -> Iterator[RealServer]:
    (port,) = free_ports(1)
    origin = f"http://127.0.0.1:{port}"
    command = [str(engine.COMMAND), "serve", str(BASE), "--host", "127.0.0.1", "--port", str(port)]
    command += ["--served-model-name", NAME, "--dtype", "float32", "--max-model-len", str(CONTEXT)]
    command += ["--block-size", "32", "--enforce-eager", "--max-num-seqs", "16"]
    environment = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_NO_USAGE_STATS": "1"}
    with started(command, f"{origin}/health", folder / "vllm.log", environment):
        version = httpx.get(f"{origin}/version", timeout=30).json()["version"]
        yield RealServer(name="vllm", origin=origin, model=NAME, version=str(version))


@contextlib.contextmanager
def started(
    command: list[str], health: str, log: Path, environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Ended by its process id with all that it started; AssertionError with the end of its log where it does not come
    up."""
    own = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **environment}
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, env=os.environ | own, cwd=log.parent, stdout=out, stderr=out, start_new_session=True
        )
    try:
        until = time.monotonic() + START_S
        while not _answers(health):
            if process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"{command[0]} did not come up:\n{log.read_text(errors='replace')[-4000:]}")
            time.sleep(0.5)
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


def _answers(health: str) -> bool:
    try:
        return httpx.get(health, timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def package_version(name: str) -> str:
    """The version of a package in .venv-vllm."""
    found = next(engine.VENV.glob(f"lib/python*/site-packages/{name}-*.dist-info"), None)
    return "" if found is None else re.sub(rf"^{name}-|\.dist-info$", "", found.name)


KINDS = (
    Kind(name="llama-server", missing=missing_llama, running=running_llama),
    Kind(name="transformers", missing=missing_vllm, running=running_transformers),
    Kind(name="vllm", missing=missing_vllm, running=running_vllm),
)
BY_NAME = {kind.name: kind for kind in KINDS}
