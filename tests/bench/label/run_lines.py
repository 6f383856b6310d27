"""The runs of a label bench as JSON lines in a file, so that a bench that was stopped goes on where it was."""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.bench.label.choosing import Pool
from tests.bench.label.plans import Case
from tests.bench.label.sets import read_sets
from tests.bench.label.simulated_teachers import difficulty

Runs = list[dict[str, Any]]


def read_runs(files: Iterable[Path]) -> Runs:
    return [json.loads(line) for file in files if file.exists() for line in file.read_text().splitlines()]


def run_cases(
    runs_of: Callable[[Case], Iterable[dict[str, Any]]],
    *,
    sets: Sequence[str],
    seeds: int,
    teachers: Sequence[str],
    out: Path | None,
) -> Runs:
    """Return the runs of every set, seed and teacher; those that `out` has are not made again."""
    runs = read_runs([out] if out else [])
    done = {(run["set"], run["seed"], run["teacher"]) for run in runs}
    for data in read_sets(sets):
        known = difficulty(data)
        for seed, teacher in ((seed, teacher) for seed in range(1, seeds + 1) for teacher in teachers):
            if (data.name, seed, teacher) in done:
                continue
            new = list(runs_of(Case(pool=Pool(data, seed), known=known, teacher=teacher, seed=seed)))
            runs += new
            if out:
                with out.open("a") as file:
                    file.writelines(json.dumps(run) + "\n" for run in new)
        print(f"{data.name} is done", file=sys.stderr)
    return runs
