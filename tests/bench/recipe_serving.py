"""`python -m tests.bench.recipe_serving [DATA] [--out FILE]`: one artifact served by `kolm serve` with its recipe pack
and without, over HTTP on loopback: completion tokens a second, the median latency of a request, and whether the bytes
of every answer are the same. The two servers run one after the other, in turn, `--rounds` times.
"""

import argparse
import asyncio
import contextlib
import datetime
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx

from backend.domain.artifact.building import build_kolm
from backend.domain.canonical import canonical_json
from backend.domain.recipes.pack import RecipePack
from deploy.embedded.home import ROOT
from tests.backend.domain.artifact.tiny_kolm import KEY, fields, members
from tests.bench.banking77_data import data_folder
from tests.bench.recipe_engines import pack_of
from tests.bench.recipe_world import TASKS, World, smaller, world

START_S = 120.0
SOURCES = ("pack", "schema", "prompt")


@dataclass(slots=True, kw_only=True)
class Served:
    """`latencies_ms` and `walls` by how many asked at a time."""

    answers: list[str] = field(default_factory=list)
    tokens: int = 0
    walls: dict[int, list[float]] = field(default_factory=dict)
    latencies_ms: dict[int, list[float]] = field(default_factory=dict)


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = _parser().parse_args(arguments)
    task = smaller(world(chosen.task, chosen.data), chosen.held)
    with tempfile.TemporaryDirectory(prefix="kolm-bench-") as name:
        files = {way: Path(name) / f"{way}.kolm" for way in ("without", "with")}
        pack = replace(pack_of(task), sources=SOURCES)
        files["with"].write_bytes(kolm_of(task, pack))
        files["without"].write_bytes(kolm_of(task, None))
        found = {way: Served() for way in files}
        for number in range(chosen.rounds):
            ways = list(files)
            random.Random(number).shuffle(ways)
            for way in ways:
                with serving(files[way]) as url:
                    asyncio.run(_ask(url, task, found[way], chosen.at_once))
                print(f"round {number + 1}, {way} pack", file=sys.stderr, flush=True)
    load = "/".join(f"{value:.1f}" for value in os.getloadavg())
    lines = [
        f"{datetime.date.today()}, load {load}, {chosen.task}, {len(task.held)} prompts, {chosen.rounds} rounds",
        "",
    ]
    lines += _table(found, chosen.at_once)
    text = "\n".join(lines)
    print(text)
    if chosen.out:
        chosen.out.write_text(text + "\n", "utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.recipe_serving", description=__doc__)
    parser.add_argument("data", nargs="?", type=Path, default=data_folder())
    parser.add_argument("--task", choices=TASKS, default="snips")
    parser.add_argument("--held", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--out", type=Path)
    return parser


def kolm_of(task: World, pack: RecipePack | None) -> bytes:
    prompt = {"system": task.system, "answer": task.answer, "max_new_tokens": task.max_new_tokens}
    content = members() | {
        "adapter.safetensors": task.adapter,
        "adapter_config.json": canonical_json(task.config.to_json()),
        "prompt.json": canonical_json(prompt),
    }
    content.pop("labels.json")
    if pack is not None:
        content["recipes.json"] = pack.to_bytes()
    base = {"id": task.base.name, "sha256": task.base.sha256}
    return build_kolm(
        content, manifest_fields=fields(base=base, task_type=task.answer["type"], name=task.name), key=KEY
    )


@contextlib.contextmanager
def serving(file: Path) -> Iterator[str]:
    """`kolm serve` as a user starts it; its address. Ended by its id."""
    command = [sys.executable, "-m", "gpu_runners.cli", "serve", str(file), "--allow-untrusted", "--port", "0"]
    environment = os.environ | {"KOLM_BASE_DIR": str(ROOT / "build" / "bases"), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://[\d.:]+", line)
        if found is None:
            raise RuntimeError(f"kolm serve did not start: {line!r}")
        yield found.group()
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def _ask(url: str, task: World, into: Served, at_once: Sequence[int]) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=120) as client:
        await _ready(client)
        for text in task.held[:4]:
            await _one(client, task.name, text)
        for n in at_once:
            places = asyncio.Semaphore(n)

            async def timed(text: str, places: asyncio.Semaphore = places) -> tuple[dict[str, Any], float]:
                async with places:
                    began = time.perf_counter()
                    value = await _one(client, task.name, text)
                    return value, (time.perf_counter() - began) * 1000

            began = time.perf_counter()
            told = await asyncio.gather(*[timed(text) for text in task.held])
            into.walls.setdefault(n, []).append(time.perf_counter() - began)
            into.latencies_ms.setdefault(n, []).append(statistics.median(ms for _, ms in told))
            into.tokens = sum(value["usage"]["completion_tokens"] for value, _ in told)
            into.answers += [value["choices"][0]["message"]["content"] for value, _ in told]


async def _ready(client: httpx.AsyncClient) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        with contextlib.suppress(httpx.HTTPError):
            if (await client.get("/healthz")).status_code == 200:
                return
        await asyncio.sleep(0.2)
    raise RuntimeError("kolm serve is not ready")


async def _one(client: httpx.AsyncClient, model: str, text: str) -> dict[str, Any]:
    body = {"model": model, "messages": [{"role": "user", "content": text}], "temperature": 0}
    answer = await client.post("/v1/chat/completions", json=body)
    answer.raise_for_status()
    value: dict[str, Any] = answer.json()
    return value


def _table(found: dict[str, Served], at_once: Sequence[int]) -> Iterator[str]:
    yield "| at once | tok/s without | tok/s with | median ms without | with | speed-up (range) |"
    yield "|---|---|---|---|---|---|"
    cold, own = found["without"], found["with"]
    for n in at_once:
        ratios = sorted(a / b for a, b in zip(cold.walls[n], own.walls[n], strict=True))
        speeds = [statistics.median(one.tokens / wall for wall in one.walls[n]) for one in (cold, own)]
        waits = [statistics.median(one.latencies_ms[n]) for one in (cold, own)]
        yield (
            f"| {n} | {speeds[0]:.0f} | {speeds[1]:.0f} | {waits[0]:.0f} | {waits[1]:.0f} "
            f"| {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) |"
        )
    same = sum(a == b for a, b in zip(cold.answers, own.answers, strict=True))
    yield ""
    yield f"{same} of {len(own.answers)} answers are the same bytes."


if __name__ == "__main__":
    sys.exit(main())
