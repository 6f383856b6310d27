"""T20: a thousand event streams on two cores, cut at random, and a restart of the web process in the middle.

`python -m tests.bench.event_streams [--streams 1000] [--seconds 60] [--out docs/benchmarks/event-streams.md]`

The bar: no reader misses an event or gets one twice; p99 of delivery at most 2 s while nothing restarts; every reader
caught up within 15 s of a restart; at most 200 MB in the web process.
"""

import argparse
import asyncio
import json
import os
import random
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.event_streams_reader import Reader
from tests.bench.event_streams_report import report
from tests.web_stack import WebStack, machine, running_web

WORLD = "tests.bench.event_streams_world"
CUT_EVERY_S = 60.0  # on average, each reader; a thousand of them come back 17 times a second
RAMP_S = 10.0


@dataclass(slots=True, kw_only=True)
class Found:
    """What was measured; times are of this process' clock."""

    n_streams: int
    n_compiles: int
    per_s: float
    seconds: float
    cut_every_s: float = CUT_EVERY_S
    readers: list[Reader] = field(default_factory=list)
    expected: dict[str, int] = field(default_factory=dict)
    began_at: float = 0.0
    restarted_at: float = 0.0
    back_at: float = 0.0
    memory_idle_mb: float = 0.0
    memory_mb: list[tuple[float, float]] = field(default_factory=list)
    web_cpu_s: float = 0.0
    load: str = ""
    machine: str = ""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--compiles", type=int, default=250)
    parser.add_argument("--per-s", type=float, default=50.0, help="events written a second, over all compiles")
    parser.add_argument("--seconds", type=float, default=60.0, help="before the restart, and again after it")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    with running_web(KOLM_DEFAULT_PLAN="enterprise") as stack:
        rows = _world(stack, options.compiles)
        found = Found(
            n_streams=options.streams, n_compiles=options.compiles, per_s=options.per_s, seconds=options.seconds
        )
        found.machine, found.memory_idle_mb = machine(), stack.rss_mb()
        asyncio.run(_measure(stack, rows, found, seed=options.seed))
        found.expected = _expected(stack)
    found.load = f"{load:.1f} before, {os.getloadavg()[0]:.1f} after"
    text = report(found)
    print(text)
    if options.out:
        options.out.write_text(text, encoding="utf-8")


def _world(stack: WebStack, n: int) -> list[dict[str, str]]:
    process = stack.deployment.python("-m", WORLD, "make", str(n), "1", stdout=subprocess.PIPE)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    rows: list[dict[str, str]] = json.loads(out.splitlines()[-1])
    return rows


async def _measure(stack: WebStack, rows: list[dict[str, str]], found: Found, *, seed: int) -> None:
    rng = random.Random(seed)
    found.readers = [_reader(stack.port, rows[i % len(rows)], rng) for i in range(found.n_streams)]
    tasks = [asyncio.create_task(each.run(rng.uniform(0, RAMP_S))) for each in found.readers]
    await asyncio.sleep(RAMP_S + 2)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(rows, file)
        file.flush()
        seconds = 2 * found.seconds
        writer = stack.deployment.python("-m", WORLD, "write", file.name, str(seconds), str(found.per_s))
        cpu_s, found.began_at = stack.cpu_s(), time.time()
        try:
            await _watch(stack, found, until=found.began_at + found.seconds)
            found.web_cpu_s = stack.cpu_s() - cpu_s
            found.restarted_at = time.time()
            await asyncio.to_thread(stack.restart_web)
            found.back_at = time.time()
            await _watch(stack, found, until=found.back_at + found.seconds)
            assert await asyncio.to_thread(writer.wait, seconds + 60) == 0
        finally:
            writer.kill()
            writer.wait()
    _, unfinished = await asyncio.wait(tasks, timeout=60)
    for task in unfinished:  # they lack events, and are counted as such
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _reader(port: int, row: dict[str, str], rng: random.Random) -> Reader:
    path = f"/v1/compiles/{row['id']}/events"
    return Reader(port=port, path=path, key=row["key"], rng=random.Random(rng.random()), cut_every_s=CUT_EVERY_S)


async def _watch(stack: WebStack, found: Found, *, until: float) -> None:
    """Memory once a second."""
    while time.time() < until:
        found.memory_mb.append((time.time(), await asyncio.to_thread(stack.rss_mb)))
        await asyncio.sleep(1.0)


def _expected(stack: WebStack) -> dict[str, int]:
    """The last number of each compile, as the database has it."""
    from uuid import UUID

    from backend.domain.ids import Prefix, encode_id

    rows = stack.deployment.rows("SELECT id, event_seq FROM compiles_compile")
    return {encode_id(Prefix.COMPILE, UUID(str(row["id"]))): row["event_seq"] for row in rows}


if __name__ == "__main__":
    main()
