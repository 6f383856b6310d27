"""How long selection takes, and in how much memory, beside its peers: `python -m tests.bench.selection_speed`.

    --n 12,240,...     sizes (default 12,240,1000,5000,20000)
    --with-100k        also n = 100,000
    --tables clusters  or methods: one half of the cases
    --repeats 3        runs of each case, in turn; no more once a case has had a minute
    --out FILE         the tables as Markdown, too

Every run is a process of its own with one BLAS thread. Seconds are CPU seconds of the call alone (process_time; the
machine may be busy with other things), the median of the repeats. Short calls are made over and over for half a second,
after one that warms up. `x Gram` is the multiple of the float32 product of the rows with themselves, measured in the
same run. MB is what the call's peak adds to what the process held before it, the input included there.

The peers come from tests/bench/peers.txt, into .bench-peers/ (git-ignored). One that cannot be installed is left out by
name. `selection_speed_pool` says what the rows are.
"""

import argparse
import gc
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from deploy.embedded.home import ROOT
from tests.bench import selection_speed_clusters, selection_speed_methods
from tests.bench.selection_speed_cases import Case, Pool, Run

PEERS = ROOT / ".bench-peers"
SIZES = (12, 240, 1_000, 5_000, 20_000)
ENOUGH_S = 60.0  # no further repeat of a case that has had this much
LONGEST_S = 1_800.0  # of wall time; then a case is stopped and the table says so
GRAM = "float32 Gram matrix"
_THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


def _gram(pool: Pool) -> Run:
    """The whole matrix to 20,000 rows; above, block after block, which are not kept."""
    if pool.n <= 20_000:
        return lambda: pool.rows @ pool.rows.T
    block = np.empty((1_024, pool.n), np.float32)
    return lambda: [
        np.matmul(part, pool.rows.T, out=block[: len(part)]) for part in np.array_split(pool.rows, -(-pool.n // 1_024))
    ]


FLOOR = Case(table="", name=GRAM, prepare=_gram)
HALVES = {"clusters": selection_speed_clusters.CASES, "methods": selection_speed_methods.CASES}
CASES = {case.name: case for case in (FLOOR, *HALVES["clusters"], *HALVES["methods"])}


@dataclass(slots=True, kw_only=True)
class Measured:
    seconds: list[float] = field(default_factory=list)
    mb: float = 0.0
    note: str = ""


def install_peers() -> None:
    """Each line of peers.txt that is not there yet, without dependencies: .venv has numpy, scipy and scikit-learn."""
    kept = PEERS / "installed.txt"
    there = set(kept.read_text().splitlines()) if kept.exists() else set()
    PEERS.mkdir(exist_ok=True)
    for line in (Path(__file__).parent / "peers.txt").read_text().splitlines():
        requirement = line.partition("#")[0].strip()
        if requirement and requirement not in there:
            command = [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-deps",
                "--target",
                str(PEERS),
                requirement,
            ]
            if subprocess.run(command, check=False).returncode == 0:
                there.add(requirement)
            else:
                print(f"{requirement} cannot be installed here", file=sys.stderr)
    kept.write_text("\n".join(sorted(there)))


def child(name: str, pool_file: str) -> None:
    """Runs one case and prints its seconds and megabytes as JSON."""
    with np.load(pool_file) as kept:
        pool = Pool(rows=kept["rows"], scores=kept["scores"], k=int(kept["k"]))
    case = CASES[name]
    run = case.prepare(pool)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    before = _memory_mb("VmRSS")
    seconds = [_seconds_of(run)]
    mb = _memory_mb("VmHWM") - before
    while len(seconds) < 1_000 and sum(seconds) < 0.5:
        seconds.append(_seconds_of(run))
    timed = statistics.median(seconds[1:] or seconds)
    print(json.dumps({"seconds": timed * case.factor(pool), "mb": mb}))


def _seconds_of(run: Run) -> float:
    start = time.process_time()
    result = run()
    spent = time.process_time() - start
    del result
    return spent


def _memory_mb(key: str) -> float:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(key))
    return int(line.split()[1]) / 1_024


def measure(cases: Iterable[Case], n: int, repeats: int) -> dict[str, Measured]:
    """The cases in turn, `repeats` times over, so that what disturbs the machine disturbs them alike."""
    from tests.bench.selection_speed_pool import make_pool  # it embeds; the children are not to load a model library

    out = {case.name: Measured() for case in cases}
    with tempfile.TemporaryDirectory() as folder:
        pool_file = Path(folder) / "pool.npz"
        pool = make_pool(n)
        np.savez(pool_file, rows=pool.rows, scores=pool.scores, k=pool.k)
        for _ in range(repeats):
            for name, measured in out.items():
                _measure_once(CASES[name], n, str(pool_file), measured)
    return out


def _measure_once(case: Case, n: int, pool_file: str, measured: Measured) -> None:
    if n > case.max_n:
        measured.note = case.beyond
    elif case.needs and not _is_there(case.needs):
        measured.note = f"no {case.needs} here"
    if measured.note or n < case.min_n or sum(measured.seconds) >= ENOUGH_S:
        return
    command = [sys.executable, "-m", "tests.bench.selection_speed", "--child", case.name, pool_file]
    try:
        done = subprocess.run(
            command, env=_environment(), cwd=ROOT, capture_output=True, text=True, timeout=LONGEST_S, check=False
        )
    except subprocess.TimeoutExpired:
        measured.note = f"stopped after {LONGEST_S / 60:.0f} minutes"
        return
    if done.returncode:
        measured.note = "failed: " + (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
        return
    result = json.loads(done.stdout.splitlines()[-1])
    measured.seconds.append(result["seconds"])
    measured.mb = max(measured.mb, result["mb"])
    print(f"n={n:,} {case.name}: {result['seconds']:.4g} s, {result['mb']:.0f} MB", file=sys.stderr, flush=True)


def _is_there(module: str) -> bool:
    return (
        importlib.util.find_spec(module) is not None or (PEERS / module).exists() or (PEERS / f"{module}.py").exists()
    )


def _environment() -> dict[str, str]:
    # behind the rest of the path, so that no peer's numpy hides ours
    path = os.pathsep.join(part for part in (os.environ.get("PYTHONPATH", ""), str(PEERS)) if part)
    return os.environ | _THREADS | {"PYTHONPATH": path}


def table_of(name: str, cases: Iterable[Case], by_n: dict[int, dict[str, Measured]]) -> str:
    """One table in Markdown: a row a case, a column a size."""
    lines = [f"### {name}", "", "| | " + " | ".join(f"n = {n:,}" for n in by_n) + " |", "|---|" + "---|" * len(by_n)]
    for case in cases:
        cells = [_cell(case, measured) for measured in by_n.values()]
        lines.append(f"| {'**' + case.name + '**' if not case.peer_of else case.name} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def _cell(case: Case, measured: dict[str, Measured]) -> str:
    own = measured[case.name]
    if not own.seconds:
        return own.note or "-"
    seconds = statistics.median(own.seconds)
    parts = [_duration(seconds), f"{own.mb:.0f} MB" if own.mb >= 1 else "< 1 MB"]
    if case.name != GRAM:
        parts.insert(1, f"{seconds / statistics.median(measured[GRAM].seconds):.2g} x Gram")
    ours = measured[case.peer_of].seconds if case.peer_of else []
    if ours:
        ratios = [theirs / mine for theirs, mine in zip(own.seconds, ours, strict=False)]
        spread = f" ({min(ratios):.3g} to {max(ratios):.3g})" if len(ratios) > 1 else ""
        parts.append(f"**{statistics.median(ratios):.3g} x ours**{spread}")
    return "<br>".join(parts)


def _duration(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 600 else f"{seconds / 3600:.2g} h"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", default=",".join(map(str, SIZES)))
    parser.add_argument("--with-100k", action="store_true")
    parser.add_argument("--tables", choices=tuple(HALVES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        return child(*options.child)
    install_peers()
    sizes = [int(n) for n in options.n.split(",")] + [100_000] * options.with_100k
    cases = [case for half, some in HALVES.items() if options.tables in (None, half) for case in some]
    by_n = {n: measure([FLOOR, *cases], n, options.repeats) for n in sizes}
    tables = [table_of("The floor", [FLOOR], by_n)]
    for name in dict.fromkeys(case.table for case in cases):
        tables.append(table_of(name, [case for case in cases if case.table == name], by_n))
    text = "\n".join(tables)
    print(text)
    if options.out:
        options.out.write_text(text)
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
