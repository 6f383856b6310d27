"""A real `python -m gpu_runners.serving` on loopback, asked as the gateway asks it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from backend.domain.serving.wire import Grant
from deploy.embedded.ports import free_ports
from tests.gpu_runners.serving.small_adapters import pinned_keyring, signed
from tests.gpu_runners.serving.small_backend import TOKEN

ROOT = Path(__file__).resolve().parents[3]
ENDLESS = {"type": "array", "items": {"type": "boolean"}, "minItems": 300, "maxItems": 400}  # hundreds of tokens


@dataclass(frozen=True, kw_only=True)
class RunningServer:
    process: subprocess.Popen[bytes]
    url: str
    log: Path

    def ask(self, grant: Grant, text: str = "The lamp is broken.", **more: Any) -> httpx.Response:
        return httpx.post(
            f"{self.url}/v1/chat/completions", json=body(text, **more), headers=bearer(grant), timeout=110
        )

    def text(self, grant: Grant, text: str = "The lamp is broken.", **more: Any) -> str:
        response = self.ask(grant, text, **more)
        assert response.status_code == 200, response.text
        return str(response.json()["choices"][0]["message"]["content"])

    @contextlib.contextmanager
    def stream(self, grant: Grant, **more: Any) -> Iterator[Iterator[dict[str, Any]]]:
        """Chunks as they come; whoever leaves hangs up."""
        asked = body("The lamp is broken.", stream=True, logprobs=True, **more)
        with (
            httpx.Client(timeout=110) as client,
            client.stream("POST", f"{self.url}/v1/chat/completions", json=asked, headers=bearer(grant)) as response,
        ):
            if response.status_code != 200:
                raise AssertionError(response.read())
            yield chunks(response)

    def metrics(self) -> dict[str, float]:
        text = httpx.get(f"{self.url}/metrics", timeout=30).text
        rows = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, value in rows}

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)


def body(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "support-replies", "messages": [{"role": "user", "content": text}], "max_tokens": 24} | more


def endless(**more: Any) -> dict[str, Any]:
    """What makes an answer of some hundred tokens."""
    schema = {"name": "endless", "schema": ENDLESS, "strict": True}
    return {"max_tokens": 400, "response_format": {"type": "json_schema", "json_schema": schema}} | more


def bearer(grant: Grant) -> dict[str, str]:
    return {"Authorization": f"Bearer {signed(grant)}"}


def chunks(response: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in response.iter_lines():
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))


def n_tokens(chunk: Mapping[str, Any]) -> int:
    """Of the answer, in one chunk of a stream with log-probs."""
    found = [choice.get("logprobs") for choice in chunk.get("choices", [])]
    return sum(len(one["content"]) for one in found if one)


@contextlib.contextmanager
def running_server(
    folder: Path,
    backend_url: str,
    base_dir: Path,
    *,
    python: str = sys.executable,
    within_s: float = 30.0,
    **settings: str,
) -> Iterator[RunningServer]:
    """`folder` holds its state, which the next one there finds."""
    port, log = free_ports(1)[0], folder / "server.log"
    env = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH") if name in os.environ}
    env |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    env |= settings_in(folder, backend_url, base_dir) | {"KOLM_SERVER_PORT": str(port)} | settings
    with log.open("ab") as out:
        process = subprocess.Popen(
            [python, "-m", "gpu_runners.serving"], env=env, cwd=folder, stdout=out, stderr=out, start_new_session=True
        )
    server = RunningServer(process=process, url=f"http://127.0.0.1:{port}", log=log)
    try:
        _wait(server, within_s)
        yield server
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


def settings_in(folder: Path, backend_url: str, base_dir: Path) -> dict[str, str]:
    """A server's environment, with its state in `folder`."""
    return {
        "KOLM_API_URL": backend_url,
        "KOLM_RUNNER_TOKEN": TOKEN,
        "KOLM_KEYRING": str(pinned_keyring(folder)),
        "KOLM_BASE_DIR": str(base_dir),
        "KOLM_SERVER_DIR": str(folder / "state"),
        "KOLM_SERVER_RAM_DIR": str(folder / "unpacked"),
    }


def _wait(server: RunningServer, within_s: float) -> None:
    until = time.monotonic() + within_s
    while time.monotonic() < until and server.process.poll() is None:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{server.url}/healthz", timeout=5).status_code == 200:
                return
        time.sleep(0.05)
    raise AssertionError(f"the server did not come up:\n{server.log.read_text()[-3000:]}")
