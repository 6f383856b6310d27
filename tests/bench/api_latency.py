"""p50 and p99 of list, get and create under 64 clients, beside a bare Django view that answers the same bytes.

`python -m tests.bench.api_latency [--rounds 3] [--seconds 5] [--out docs/benchmarks/api.md]`

Ours and the bare view run under the same server (granian, one worker) and take turns within each round, so that a ratio
compares what ran seconds apart. Clients wait for an answer before they ask again.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import httpx

from deploy.embedded.home import ROOT
from deploy.embedded.liveness import answers
from deploy.embedded.ports import HOST, free_ports
from tests.acceptance.deployment import eventually
from tests.bench.api_clients import SPEC
from tests.bench.event_streams_world import __name__ as WORLD
from tests.web_stack import WebStack, machine, running_web

OPERATIONS = ("list", "get", "create")
N_CLIENTS, N_TENANTS, N_COMPILES = 64, 16, 20
KIND_NAMES = {"ours": "kolm", "bare": "bare Django"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    round: int
    kind: str
    operation: str
    n_clients: int
    p50_ms: float
    p99_ms: float
    per_s: float
    n: int
    statuses: dict[str, int]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    with running_web(KOLM_DEFAULT_PLAN="enterprise") as stack, tempfile.TemporaryDirectory() as folder:
        rows = _world(stack, Path(folder))
        bodies = _bodies(stack, rows[0], Path(folder))
        with bare_django(Path(folder)) as port:
            runs = list(_measure({"ours": stack.port, "bare": port}, Path(folder), options.rounds, options.seconds))
        memory_mb = stack.rss_mb()
    text = report(runs, bodies, load=f"{load:.1f} before, {os.getloadavg()[0]:.1f} after", memory_mb=memory_mb)
    print(text)
    if options.out:
        options.out.write_text(text, encoding="utf-8")


def _world(stack: WebStack, folder: Path) -> list[dict[str, str]]:
    process = stack.deployment.python("-m", WORLD, "make", str(N_TENANTS), str(N_COMPILES), stdout=subprocess.PIPE)
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    (folder / "rows.json").write_bytes(out.splitlines()[-1])
    found: list[dict[str, str]] = json.loads(out.splitlines()[-1])
    return found


def _bodies(stack: WebStack, row: dict[str, str], folder: Path) -> dict[str, int]:
    """What ours answers, kept for the bare view; the size of each."""
    with httpx.Client(base_url=stack.deployment.url, headers={"Authorization": f"Bearer {row['key']}"}) as api:
        given = {
            "list": api.get("/v1/compiles?limit=20"),
            "get": api.get(f"/v1/compiles/{row['id']}"),
            "create": api.post("/v1/compiles", json=SPEC),
        }
    for name, answer in given.items():
        assert answer.is_success, answer.text
        (folder / name).write_bytes(answer.content)
    return {name: len(answer.content) for name, answer in given.items()}


@contextmanager
def bare_django(folder: Path) -> Iterator[int]:
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "granian", "--interface", "asginl", "--workers", "1", "--no-ws"]
    where = ["--host", HOST, "--port", str(port), "tests.bench.bare_django:application"]
    variables = {"PATH": os.environ["PATH"], "BARE_BODIES": str(folder), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen([*command, *where], cwd=ROOT, env=variables, stdout=subprocess.DEVNULL)
    try:
        eventually(lambda: answers(f"http://{HOST}:{port}/v1/compiles"), within_s=20)
        yield port
    finally:
        process.terminate()
        process.wait(timeout=20)


def _measure(ports: dict[str, int], folder: Path, rounds: int, seconds: float) -> Iterator[Run]:
    for kind, port in ports.items():  # neither pays for first imports and connections in its first round
        for operation in OPERATIONS:
            _ask(port, folder, kind, operation, n_clients=8, seconds=0.5, round=0)
    for round in range(1, rounds + 1):
        for operation in OPERATIONS:
            for n_clients in (1, N_CLIENTS):
                for kind, port in ports.items():
                    length = seconds if n_clients > 1 else seconds / 2
                    yield _ask(port, folder, kind, operation, n_clients=n_clients, seconds=length, round=round)


def _ask(port: int, folder: Path, kind: str, operation: str, *, n_clients: int, seconds: float, round: int) -> Run:
    arguments = [str(port), str(n_clients), str(seconds), operation, str(folder / "rows.json")]
    command = [sys.executable, "-m", "tests.bench.api_clients", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    latencies = found["latencies"]
    return Run(
        round=round,
        kind=kind,
        operation=operation,
        n_clients=n_clients,
        p50_ms=1e3 * latencies[len(latencies) // 2],
        p99_ms=1e3 * latencies[int(0.99 * len(latencies))],
        per_s=len(latencies) / found["seconds"],
        n=len(latencies),
        statuses=found["statuses"],
    )


def report(runs: list[Run], bodies: dict[str, int], *, load: str, memory_mb: float) -> str:
    lines = [_line(runs, operation, n) for operation in OPERATIONS for n in (1, N_CLIENTS)]
    table = "\n".join(line for pair in lines for line in pair)
    refused = _refused(runs)
    sizes = ", ".join(f"{name} {size:,}" for name, size in bodies.items())
    n_rounds = max(run.round for run in runs)
    return f"""# The API under 64 clients

    make bench-api

(`python -m tests.bench.api_latency`.) {machine()}, {time.strftime("%Y-%m-%d %H:%M")}, load {load}; clients, web
process, Postgres and Valkey share the cores. One web process of the embedded stack with production's settings (fsync
on), no worker. {N_TENANTS} tenants with {N_COMPILES} compiles each to begin with; {N_CLIENTS} connections that stay
open, and on each the next request as soon as the answer is there: what a client waits grows with the number of
clients, and what the machine can do is the rate. `bare Django` is an async view that answers the same bytes under the
same server, without key, rate limit, tenant, database or idempotency: what the framework and the machine cost. Both
take turns within each of {n_rounds} rounds; the middle round is shown, with the spread over rounds in brackets.

| | clients | p50 ms | p99 ms | a second | p50 times bare | p99 times bare |
|---|---|---|---|---|---|---|
{table}

`list` answers 20 compiles, `get` one with its spec, `create` validates a spec with 24 examples, estimates it, holds its
budget, writes it with its first event, its webhook event and its idempotency key in one transaction, and tells the
queue. Bytes answered: {sizes}. {sum(run.n for run in runs):,} requests in all; refused: {refused}.
The web process held
{memory_mb:.0f} MB at the end.
"""


def _refused(runs: list[Run]) -> str:
    counts: dict[str, int] = {}
    for run in runs:
        for status, count in run.statuses.items():
            if not status.startswith("2"):
                name = f"{status} of {run.operation} with {run.n_clients} clients"
                counts[name] = counts.get(name, 0) + count
    return ", ".join(f"{count:,} x {name}" for name, count in counts.items()) or "none"


def _line(runs: list[Run], operation: str, n_clients: int) -> list[str]:
    of = {
        kind: [run for run in runs if (run.kind, run.operation, run.n_clients) == (kind, operation, n_clients)]
        for kind in KIND_NAMES
    }
    lines = []
    for kind, name in KIND_NAMES.items():
        rows = of[kind]
        cells = [_spread([run.p50_ms for run in rows]), _spread([run.p99_ms for run in rows])]
        cells.append(_spread([run.per_s for run in rows]))
        if kind == "ours":
            pairs = list(zip(rows, of["bare"], strict=True))
            cells.append(_spread([ours.p50_ms / bare.p50_ms for ours, bare in pairs]))
            cells.append(_spread([ours.p99_ms / bare.p99_ms for ours, bare in pairs]))
        else:
            cells += ["1", "1"]
        bold = "**" if kind == "ours" else ""
        lines.append(f"| {bold}{operation}: {name}{bold} | {n_clients} | " + " | ".join(cells) + " |")
    return lines


def _spread(values: list[float]) -> str:
    return f"{median(values):.3g} ({min(values):.3g} to {max(values):.3g})"


if __name__ == "__main__":
    main()
