"""What adapters and checkpoints weigh at Qwen2.5-7B's widths, and what handing over 300 MB and 1.3 GB costs the two
sides: `python -m tests.bench.sizes --out docs/benchmarks/sizes.md`.

Training: a random base with the true widths and few layers, its sizes beside what `adapter_sizes` foretells, and a run
that goes on from a checkpoint in its middle. Transfers: a runner's client against a real web process with its Postgres;
memory is looked at ten times a second, heartbeats go on beside.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from backend.domain.jobs.runner_jobs import Progress
from backend.domain.planning.adapter_sizes import adapter_bytes, checkpoint_bytes
from gpu_runners.agent.lease_client import JobClient, RunnerClient
from gpu_runners.http import Unreachable
from tests.bench.sizes_world import QWEN_7B
from tests.web_stack import WebStack, machine, running_web

WORLD = "tests.bench.sizes_world"
SIZES = (300_000_000, 1_300_000_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--steps", type=int, default=4, help="optimiser steps of an epoch, about")
    parser.add_argument("--only", choices=("training", "transfers"))
    options = parser.parse_args()
    lines = [f"Load {os.getloadavg()[0]:.1f} before."]
    if options.only != "transfers":
        lines += training(options.layers, options.rank, options.steps)
    if options.only != "training":
        lines += transfers()
    where = f"{machine()}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC. {lines[0]} Load {os.getloadavg()[0]:.1f} after."
    page = "\n".join(["# Sizes", "", "    make bench-sizes", "", where, "", *lines[1:]]) + "\n"
    print(page)
    if options.out:
        options.out.write_text(page)


def training(n_layers: int, rank: int, n_steps: int) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="kolm-sizes-") as folder:
        base, out = Path(folder) / "wide", Path(folder) / "out"
        out.mkdir()
        _python("base", base, n_layers)
        found = json.loads(_python("train", base, rank, n_steps, out).splitlines()[-1])
    config = QWEN_7B | {"num_hidden_layers": n_layers}
    last, before_best = found["checkpoints"][-1], found["checkpoints"][0]
    rows = [
        ("adapter", found["adapter_bytes"], adapter_bytes(config, rank=rank), adapter_bytes(QWEN_7B, rank=rank)),
        (
            "checkpoint before the first epoch's end",
            before_best[0],
            checkpoint_bytes(config, rank=rank, has_best=False),
            checkpoint_bytes(QWEN_7B, rank=rank, has_best=False),
        ),
        ("checkpoint", last[0], checkpoint_bytes(config, rank=rank), checkpoint_bytes(QWEN_7B, rank=rank)),
    ]
    table = [
        f"| {name} | {written:,} | {told:,} ({told / written - 1:+.2%}) | {whole / 1e6:,.0f} MB |"
        for name, written, told, whole in rows
    ]
    same = "the same bytes" if found["is_same"] else "**other bytes**"
    return [
        "## Training at Qwen2.5-7B's widths",
        "",
        f"A random base: hidden 3584, intermediate 18944, 28 heads, 4 key-value heads, {n_layers} of 28 layers, a",
        f"vocabulary of some hundreds ({found['base_mb']:,.0f} MB in bfloat16, float32 in memory). Rank {rank},",
        f"{found['n_parameters']:,} weights; one thread.",
        "",
        "| | written, bytes | foretold | foretold for 28 layers |",
        "|---|---|---|---|",
        *table,
        "",
        f"{found['n_steps']} steps of {found['step_s']:.1f} s; loss of the two epochs {found['losses'][0]:.3f} and",
        f"{found['losses'][-1]:.3f}. A checkpoint was written in {last[1]:.2f} s. A second run from the one at step",
        f"{found['resumed_from']} ended with {same}. Largest resident memory {found['peak_mb']:,.0f} MB.",
        "",
    ]


def _python(*arguments: object) -> str:
    words = [str(argument) for argument in arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-m", WORLD, *words], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


@dataclass
class Watch:
    """The memory of web and of this process, and heartbeats, while something goes on."""

    stack: WebStack
    job: JobClient
    web_mb: list[float] = field(default_factory=list)
    own_mb: list[float] = field(default_factory=list)
    beats_s: list[float] = field(default_factory=list)

    def __enter__(self) -> "Watch":
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._look), threading.Thread(target=self._beat)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _look(self) -> None:
        while not self._stop.wait(0.1):
            self.web_mb.append(self.stack.rss_mb())
            self.own_mb.append(psutil.Process().memory_info().rss / 1e6)

    def _beat(self) -> None:
        none = Progress(step=1, n_steps=9, loss=None, eta_s=None, checkpoint_sha256=None, note="bench")
        while not self._stop.wait(1.0):
            began = time.monotonic()
            self.job.heartbeat(none, timeout_s=30)
            self.beats_s.append(time.monotonic() - began)


def transfers() -> list[str]:
    rows = []
    with running_web(KOLM_RUNNER_LEASE_S="600") as stack, tempfile.TemporaryDirectory(prefix="kolm-sizes-") as folder:
        world = stack.deployment.python("-m", WORLD, "jobs", str(len(SIZES)), stdout=subprocess.PIPE)
        tenant = json.loads(world.communicate()[0])["tenant"]
        plan = stack.services.stack.plan
        with RunnerClient(api_url=stack.deployment.url, token=plan.credentials.runner_token, name="bench") as client:
            for n_bytes in SIZES:
                claim = client.claim(["distill_causal"], wait_s=5)
                assert claim is not None
                rows.append(
                    _transfer(stack, client.job(claim), Path(folder) / "file", n_bytes, plan.home.blobs / tenant)
                )
    return [
        "## Handing over",
        "",
        "A runner's client sends a file of random bytes to a web process (granian, one worker) over loopback, in",
        "parts of 8 MiB; half-way the transfer is broken off and begun again. Memory beyond what was held before, at",
        "most: of web as PSS, of the client as RSS.",
        "",
        "| bytes | s | MB/s | web, MB more | client, MB more | heartbeats beside it | slowest | parts sent again |",
        "|---|---|---|---|---|---|---|---|",
        *rows,
        "",
    ]


def _transfer(stack: WebStack, job: JobClient, path: Path, n_bytes: int, store: Path) -> str:
    with path.open("wb") as file:
        for at in range(0, n_bytes, 1 << 22):
            file.write(os.urandom(min(1 << 22, n_bytes - at)))
    before: tuple[Any, float] = stack.rss_mb(), psutil.Process().memory_info().rss / 1e6
    began = time.monotonic()
    with Watch(stack, job) as watch:
        n_wanted = iter(range(n_bytes // (1 << 23) // 2))
        try:
            job.put_file(path, is_wanted=lambda: next(n_wanted, None) is not None)
        except Unreachable:
            (left,) = store.glob("unfinished-*")
            kept = left.stat().st_size
        sha256 = job.put_file(path)
    took_s = time.monotonic() - began
    stored = store / sha256[:2] / sha256
    assert stored.stat().st_size == n_bytes
    assert not list(store.glob("unfinished-*"))
    stored.unlink()
    more_web, more_own = max(watch.web_mb) - before[0], max(watch.own_mb) - before[1]
    return (
        f"| {n_bytes:,} | {took_s:.1f} | {n_bytes / took_s / 1e6:.0f} | {more_web:.0f} | {more_own:.0f} | "
        f"{len(watch.beats_s)} | {max(watch.beats_s):.2f} s | none of {kept:,} bytes |"
    )


if __name__ == "__main__":
    main()
