"""llama-server on loopback, one answer at a time, for tests and benches; `make setup-llama-server` builds it."""

import contextlib
import json
import os
import re
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.embedded.home import ROOT
from deploy.embedded.ports import free_ports

SERVER = ROOT / ".venv-llama" / "bin" / "llama-server"
CONTEXT = 1024
_READY_S = 60.0


class DidNotStart(Exception):
    """With what it said last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    tokens: tuple[int, ...]
    drafted: int
    accepted: int
    n_predicted: int
    generating_ms: float

    @property
    def n_steps(self) -> int:
        """Forward passes that gave tokens: each gives one that was not drafted."""
        return self.n_predicted - self.accepted


class LlamaServer:
    def __init__(self, url: str, pid: int) -> None:
        self.url, self._pid = url, pid

    def answer(self, prompt: Sequence[int], *, most: int, **more: Any) -> Said:
        """Greedy, and by itself: nothing of an earlier prompt's cache. Raises urllib.error.HTTPError."""
        wanted = {"temperature": 0, "return_tokens": True, "cache_prompt": False, "n_predict": most}
        told = self._post("/completion", {"prompt": list(prompt), **wanted, **more})
        timings = told["timings"]
        return Said(
            tokens=tuple(told["tokens"]),
            drafted=timings.get("draft_n", 0),
            accepted=timings.get("draft_n_accepted", 0),
            n_predicted=timings["predicted_n"],
            generating_ms=timings["predicted_ms"],
        )

    def cpu_s(self) -> float:
        """What its process has used; to the clock's tick, and on Linux alone."""
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def is_up(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5) as reply:
                return bool(reply.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _post(self, path: str, value: Mapping[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(
            self.url + path, json.dumps(value).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=100) as reply:
            told: dict[str, Any] = json.load(reply)
        return told


@contextlib.contextmanager
def llama_server(model: Path, *flags: str, log: Path) -> Iterator[LlamaServer]:
    """Raises DidNotStart."""
    (port,) = free_ports(1)
    command = [str(SERVER), "-m", str(model), "--host", "127.0.0.1", "--port", str(port), "--offline"]
    command += ["-c", str(CONTEXT), "-np", "1", "-t", "1", "-tb", "1", "--no-warmup", "-ngl", "0", *flags]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LLAMA_")}
    environment |= {"OMP_NUM_THREADS": "1", "GGML_NO_BACKTRACE": "1"}  # it would call a debugger where it aborts
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out, env=environment) as process:
        server = LlamaServer(f"http://127.0.0.1:{port}", process.pid)
        try:
            _wait(server, process, log)
            yield server
        finally:
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()


def with_file(path: Path) -> tuple[str, ...]:
    return "--spec-type", "ngram-cache", "--lookup-cache-static", str(path)


def _wait(server: LlamaServer, process: "subprocess.Popen[bytes]", log: Path) -> None:
    until = time.monotonic() + _READY_S
    while not server.is_up():
        if process.poll() is not None or time.monotonic() > until:
            said = re.sub(r"\x1b\[[0-9;]*m", "", log.read_text("utf-8", "replace"))
            raise DidNotStart(f"exit {process.poll()}: {said[-2000:]}")
        time.sleep(0.05)
