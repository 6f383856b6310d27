"""Our engine on vLLM in a process of .venv-vllm, asked over its standard input: a JSON line in, a JSON line out.

    python -m tests.vllm.recipe_engine BASE_DIR FOLDER SPECULATION CONTEXT [PROPOSER]      (in .venv-vllm)

`{"ask": [[request, ...], n]}` answers all requests, n at a time; `{"feedback": null}`, `{"about": null}` and
`{"errors": null}` what they are called. An error ends it.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from gpu_runners.models.protocol import (
    AdapterRef,
    Constraint,
    ConstraintKind,
    Drafting,
    DraftKind,
    GenerationRequest,
    PackRef,
    Rejected,
)
from gpu_runners.speculation.vllm.wire import counts_from_json, counts_to_json

NAME = "kolm-tiny-1"
ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`refused` is the code of a request that the engine did not take. `tops`: the log-probs of the likeliest tokens at
    each place, where they were asked for."""

    tokens: tuple[int, ...] = ()
    text: str = ""
    finish: str = ""
    drafted: int = 0
    accepted: int = 0
    steps: int = 0
    by_source: tuple[Any, ...] = ()
    refused: str = ""
    tops: tuple[Any, ...] = ()


class Asked:
    """The far end of a running process."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._lock = threading.Lock()

    def ask(self, requests: Sequence[GenerationRequest], *, at_once: int = 1 << 20) -> list[Answer]:
        told = self._call({"ask": [[_request_to_json(request) for request in requests], at_once]})
        return [
            Answer(**{**one, "tokens": tuple(one["tokens"]), "by_source": counts_from_json(one["by_source"])})
            for one in told
        ]

    def feedback(self) -> list[Any]:
        return list(self._call({"feedback": None}))

    def about(self) -> dict[str, Any]:
        return dict(self._call({"about": None}))

    def n_errors(self) -> int:
        """Of drafts, in vLLM's process."""
        return int(self._call({"errors": None}))

    def _call(self, message: dict[str, Any]) -> Any:
        with self._lock:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        assert line, "the engine's process has ended"
        return json.loads(line)


@contextlib.contextmanager
def running(
    python: Path, base_dir: Path, folder: Path, *, speculation: str = "recipes", context: int = 512, proposer: str = ""
) -> Iterator[Asked]:
    log = folder / "engine.log"
    command = [str(python), "-m", "tests.vllm.recipe_engine", str(base_dir), str(folder), speculation, str(context)]
    command += [proposer] if proposer else []
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    with log.open("wb") as written:
        process = subprocess.Popen(
            command, env=environment, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=written,
            text=True, start_new_session=True,
        )  # fmt: skip
    asked = Asked(process)
    try:
        try:
            asked.about()
        except AssertionError as error:
            raise AssertionError(f"vLLM did not come up:\n{log.read_text(errors='replace')[-4000:]}") from error
        yield asked
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()


def _request_to_json(request: GenerationRequest) -> dict[str, Any]:
    return json.loads(json.dumps(asdict(request), default=str))  # type: ignore[no-any-return]


def _request_from_json(value: dict[str, Any]) -> GenerationRequest:
    drafting, constraint, adapter = value["drafting"], value["constraint"], value["adapter"]
    if drafting is not None:
        pack = drafting["pack"]
        drafting = Drafting(
            **{
                **drafting,
                "kinds": tuple(DraftKind(kind) for kind in drafting["kinds"]),
                "pack": None if pack is None else PackRef(key=pack["key"], path=Path(pack["path"])),
            }
        )
    if constraint is not None:
        constraint = Constraint(kind=ConstraintKind(constraint["kind"]), value=constraint["value"])
    if adapter is not None:
        adapter = AdapterRef(key=adapter["key"], folder=Path(adapter["folder"]), number=adapter["number"])
    return GenerationRequest(
        **{
            **value,
            "prompt": tuple(value["prompt"]),
            "stop": tuple(value["stop"]),
            "drafting": drafting,
            "constraint": constraint,
            "adapter": adapter,
        }
    )


async def _answers(engine: Any, requests: Sequence[GenerationRequest], *, at_once: int) -> list[dict[str, Any]]:
    places = asyncio.Semaphore(at_once)

    async def one(request: GenerationRequest) -> dict[str, Any]:
        async with places:
            return await _answer(engine, request)

    return list(await asyncio.gather(*map(one, requests)))


async def _answer(engine: Any, request: GenerationRequest) -> dict[str, Any]:
    tokens: list[int] = []
    tops: list[Any] = []
    text = ""
    delta = None
    try:
        async for delta in engine.generate(request):
            tokens += delta.token_ids
            tops += [one.top for one in delta.logprobs]
            text += delta.text
    except Rejected as error:
        return asdict(Answer(refused=error.code))
    assert delta is not None
    counts = delta.counts
    answer = Answer(
        tokens=tuple(tokens),
        text=text,
        finish=str(delta.finish_reason),
        drafted=counts.drafted_tokens,
        accepted=counts.accepted_tokens,
        steps=counts.steps,
        tops=tuple(tops),
    )
    return asdict(answer) | {"by_source": counts_to_json(counts.by_source)}


async def _serve(base_dir: Path, folder: Path, speculation: str, context: int, proposer: str, out: IO[str]) -> None:
    from gpu_runners.engine.planning.base_facts import BaseFacts
    from gpu_runners.engine.planning.devices import Device, DeviceKind
    from gpu_runners.engine.planning.plan import GIB, EnginePlan, Needs, Speculation, plan
    from gpu_runners.engine.vllm_engine import VllmEngine
    from gpu_runners.models.causal_base import open_causal_base

    base = open_causal_base(NAME, base_dir=base_dir)
    device = Device(kind=DeviceKind.CPU, name="cpu", memory_bytes=16 * GIB)  # float32: answers do not hang on rounding
    kind = Speculation(speculation)
    needs = Needs(
        slots=2,
        max_rank=16,
        max_context=context,
        speculation=kind,
        draft_tokens=16,
        greedy_only=kind is Speculation.NGRAM,
    )
    if proposer:
        planned = EnginePlan._speculative
        EnginePlan._speculative = lambda self: planned(self) | {"model": proposer}  # type: ignore[method-assign]
    engine = await VllmEngine.start(base, plan(BaseFacts.of(NAME, base.folder), device, needs), folder=folder)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        ((verb, value),) = json.loads(line).items()
        if verb == "ask":
            said: Any = await _answers(engine, [_request_from_json(one) for one in value[0]], at_once=value[1])
        elif verb == "feedback":
            said = [[tenant, one.to_json()] for tenant, one in engine.pack_feedback()]
        elif verb == "errors":
            said = engine.counters().get("draft_errors", 0)
        else:
            said = dict(engine.about)
        out.write(json.dumps(said) + "\n")
        out.flush()
    await engine.close()


if __name__ == "__main__":
    # vLLM writes to the standard output too: what this process says goes where that was, all else to the log
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    proposer = "".join(sys.argv[5:])
    asyncio.run(_serve(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), proposer, told))
