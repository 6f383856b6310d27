"""A real vLLM on loopback for tests and benchmarks: OpenAI's API server in .venv-vllm, on the CPU, with the tiny model.

Ended by its process id, with everything it started: it is the leader of a session of its own.
"""

import contextlib
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from deploy.embedded.ports import free_ports
from tests.vllm import tiny_model
from workers.teachers.protocol import TeacherCaps, TeacherIdentity

ROOT = Path(__file__).resolve().parent.parent.parent
VENV = ROOT / ".venv-vllm"
COMMAND = VENV / "bin" / "vllm"
PROPOSER = ROOT / "workers" / "teachers" / "vllm" / "proposer.py"
MODEL = "tiny-support"
START_S = 400.0
CAPS = TeacherCaps(logprobs=True, prompt_logprobs=True, prefix=True, engine_drafts=True, max_top_logprobs=20)
DRAFTS = {
    "method": "custom_class",
    "model": "kolm_vllm_proposer.DraftProposer",
    "num_speculative_tokens": 8,
}
# what a teacher of drafts is started with: log-probs of what is sampled, and what each request's drafts brought
AS_TEACHER = ("--logprobs-mode", "processed_logprobs", "--per-request-spec-decode-metrics", "summary")
PROMPT_NGRAM = {"method": "ngram", "num_speculative_tokens": 8, "prompt_lookup_min": 2, "prompt_lookup_max": 5}


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What the engine says of itself at /metrics, since it began."""

    n_drafted: int
    n_accepted: int
    n_generated: int

    def __sub__(self, earlier: "Counters") -> "Counters":
        return Counters(
            n_drafted=self.n_drafted - earlier.n_drafted,
            n_accepted=self.n_accepted - earlier.n_accepted,
            n_generated=self.n_generated - earlier.n_generated,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    origin: str
    process_id: int

    @property
    def base_url(self) -> str:
        return f"{self.origin}/v1"

    def counters(self) -> Counters:
        text = httpx.get(f"{self.origin}/metrics", timeout=30).text
        return Counters(
            n_drafted=total(text, "vllm:spec_decode_num_draft_tokens_total"),
            n_accepted=total(text, "vllm:spec_decode_num_accepted_tokens_total"),
            n_generated=total(text, "vllm:generation_tokens_total"),
        )


def total(metrics: str, name: str) -> int:
    """0 where the engine does not count it."""
    rows = re.findall(rf"^{re.escape(name)}(?:\{{[^}}]*\}})? (\S+)$", metrics, re.MULTILINE)
    return round(sum(float(value) for value in rows))


@contextlib.contextmanager
def running(
    tiny_model: Path, *, speculative: Mapping[str, Any] | None = None, arguments: tuple[str, ...] = ()
) -> Iterator[Engine]:
    """An engine that answers. AssertionError with the end of its log where it does not come up."""
    (port,) = free_ports(1)
    log = VENV / f"engine-{port}.log"
    command = [str(COMMAND), "serve", str(tiny_model / "model"), "--host", "127.0.0.1", "--port", str(port)]
    command += ["--tokenizer", str(tiny_model / "tokenizer")]
    command += ["--served-model-name", MODEL, "--dtype", "float32", "--max-model-len", "512", "--block-size", "32"]
    command += ["--enforce-eager", "--max-num-seqs", "64", *arguments]
    if speculative is not None:
        command += ["--speculative-config", json.dumps(speculative)]
    with log.open("wb") as written:
        process = subprocess.Popen(
            command, env=_environment(), cwd=log.parent, stdout=written, stderr=written, start_new_session=True
        )
    engine = Engine(origin=f"http://127.0.0.1:{port}", process_id=process.pid)
    try:
        _wait(engine, process, log)
        yield engine
    finally:
        _end(process)
    log.unlink()


def made_model() -> Path:
    """The tiny model, made once in .venv-vllm; made again when its recipe changes."""
    recipe = hashlib.sha256(Path(tiny_model.__file__).read_bytes()).hexdigest()[:12]
    folder = VENV / f"tiny-support-{recipe}"
    if not (folder / "model" / "loss.txt").exists():
        shutil.rmtree(folder, ignore_errors=True)
        tiny_model.make(folder)
    return folder


def teacher_fields(engine: Engine) -> dict[str, Any]:
    """What the production client of this engine is made with."""
    return {
        "identity": TeacherIdentity(provider="openai_compatible", model=MODEL),
        "base_url": engine.base_url,
        "api_key": None,
        "caps": CAPS,
        "concurrency": 32,
        "allowed_origins": frozenset({engine.origin}),
        "rng": random.Random(0),
    }


def _environment() -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": str(proposer_folder()),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }


def proposer_folder() -> Path:
    """Holds nothing but the proposer, by another name: what a customer copies."""
    folder = VENV / "proposer"
    folder.mkdir(exist_ok=True)
    shutil.copy(PROPOSER, folder / "kolm_vllm_proposer.py")
    return folder


def _wait(engine: Engine, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{engine.origin}/health", timeout=5).status_code == 200:
                return
        time.sleep(0.5)
    raise AssertionError(f"vLLM did not come up:\n{log.read_text(errors='replace')[-4000:]}")


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # whatever of its session is left
    process.wait(10)
