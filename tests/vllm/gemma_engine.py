"""A vLLM over Gemma 3 270M that takes drafts as proposals, started as docs/drafts.md says. Gemma is no instruct model
and seldom ends an answer, and what is cut is no candidate: so a line's end ends its answers here."""

import contextlib
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from deploy.embedded.ports import free_ports
from tests.vllm import engine
from tests.workers.real_servers.servers import BASE, CONTEXT, NAME, started
from workers.teachers.protocol import TeacherIdentity
from workers.teachers.vllm.teacher import VllmTeacher

THREADS = "2"
GPU_SHARE = "0.3"  # of its memory: two engines and whatever else stands beside them
ENDS = (1, 106)  # Gemma's own: <eos>, <end_of_turn>


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmaEngine:
    origin: str
    process_id: int
    model: str = NAME

    @property
    def base_url(self) -> str:
        return f"{self.origin}/v1"

    def n_written(self) -> int:
        """The tokens of all answers since it began."""
        return engine.total(httpx.get(f"{self.origin}/metrics", timeout=60).text, "vllm:generation_tokens_total")


def _line_ends() -> list[int]:
    """The tokens that are nothing but line ends."""
    vocabulary = json.loads((BASE / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    return sorted(number for token, number in vocabulary.items() if token and not token.strip("\n"))


def gemma_teacher(origin: str) -> VllmTeacher:
    """The production client of such an engine."""
    return VllmTeacher(
        identity=TeacherIdentity(provider="openai_compatible", model=NAME),
        base_url=f"{origin}/v1",
        api_key=None,
        caps=engine.CAPS,
        concurrency=8,
        allowed_origins=frozenset({origin}),
        rng=random.Random(0),
    )


@contextlib.contextmanager
def running_gemma(
    folder: Path, *, device: str = "cpu", proposes: bool = True, most_proposed: int = 8
) -> Iterator[GemmaEngine]:
    """`device` is cpu (float32, eager: nothing to wait for) or cuda (bfloat16, as vLLM starts by itself); one that does
    not propose is a plain engine."""
    (port,) = free_ports(1)
    origin = f"http://127.0.0.1:{port}"
    command = [str(engine.COMMAND), "serve", str(BASE), "--host", "127.0.0.1", "--port", str(port)]
    command += ["--served-model-name", NAME, "--max-model-len", str(CONTEXT), *_of_device(device)]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [*ENDS, *_line_ends()]}))
    command += ["--generation-config", str(folder)]
    if proposes:
        proposals = engine.DRAFTS | {"num_speculative_tokens": most_proposed}
        command += [*engine.AS_TEACHER, "--speculative-config", json.dumps(proposals)]
    environment = {
        "PYTHONPATH": str(engine.proposer_folder()),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        "OMP_NUM_THREADS": THREADS,
    }
    with started(command, f"{origin}/health", folder / f"vllm-{port}.log", environment) as process:
        yield GemmaEngine(origin=origin, process_id=process.pid)


def _of_device(device: str) -> list[str]:
    if device == "cpu":
        return ["--dtype", "float32", "--block-size", "32", "--enforce-eager", "--max-num-seqs", "16"]
    return ["--dtype", "bfloat16", "--gpu-memory-utilization", GPU_SHARE, "--max-num-seqs", "128"]
