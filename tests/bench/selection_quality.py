"""How good is a student taught on what each selection method keeps, over 22 pools of real intents?

    python -m tests.bench.selection_quality [DATA] [--seeds N] [--first-seed N] [--scenarios NAME ...]
                                            [--methods NAME ...] [--student lr|lora] [--jobs N] [--out FILE]
    python -m tests.bench.selection_quality --table FILE ...

The student is a logistic regression on MiniLM (C = 10) or LoRA; the test is the published test split of the pool's
intents. Printed is the accuracy of training on the whole pool, and every method's mean difference to it with its
standard error, paired by seed. DATA (default $KOLM_DATA, else ../shared/data) has BANKING77 and CLINC150.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression

from tests.bench.banking77_data import data_folder
from tests.bench.selection_quality_methods import ALL, METHODS
from tests.bench.selection_quality_pools import COMPILES, SCENARIOS, Corpus, Pool, Scenario, draw_pool, read_corpus

C = 10.0
LORA_METHODS = (
    ALL, "random", "top_k", "filter 2/3", "two_step, no floor", "two_step", "diverse 1, no floor", "dpp, no floor",
    "auto",
)  # fmt: skip
LORA_SCENARIOS = ("main", "main, CLINC150", "no label noise", "slices, off-spec", "35 % noise")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One student: what it was taught on, and how many of the test questions it answered rightly. `n_wrong`: picks
    whose label is not the truth; `n_modes`: different sentences among them."""

    scenario: str
    seed: int
    method: str
    student: str
    n_picks: int
    n_wrong: int
    n_modes: int
    n_right: int
    n_test: int

    @property
    def accuracy(self) -> float:
        return self.n_right / self.n_test


@cache
def _corpus(folder: Path, name: str) -> Corpus:
    return read_corpus(folder, name)


def runs_of(folder: Path, methods: Sequence[str], student: str, task: tuple[Scenario, int]) -> list[Run]:
    """All methods on one pool."""
    scenario, seed = task
    corpus = _corpus(folder, scenario.data)
    pool = draw_pool(corpus, scenario, seed)
    corpus.rows.save()
    kept = [np.sort(np.asarray(METHODS[name](pool, scenario, seed), dtype=np.int64)) for name in methods]
    rights = lora_rights(pool, kept, scenario.k, seed) if student == "lora" else [lr_right(pool, rows) for rows in kept]
    return [
        Run(
            scenario=scenario.name,
            seed=seed,
            method=name,
            student=student,
            n_picks=len(rows),
            n_wrong=int((pool.labels != pool.truth)[rows].sum()),
            n_modes=len(np.unique(pool.modes[rows])),
            n_right=right,
            n_test=len(pool.test_truth),
        )
        for name, rows, right in zip(methods, kept, rights, strict=True)
    ]


def lr_right(pool: Pool, rows: np.ndarray) -> int:
    labels = pool.labels[rows]
    if len(np.unique(labels)) == 1:
        return int((pool.test_truth == labels[0]).sum())
    model = LogisticRegression(C=C, max_iter=1000).fit(pool.rows[rows], labels)
    return int((model.predict(pool.test_rows) == pool.test_truth).sum())


def lora_rights(pool: Pool, kept: Sequence[np.ndarray], k: int, seed: int) -> list[int]:
    from tests.bench.selection_quality_lora import train_and_test  # torch

    return train_and_test(pool, kept, n_per_epoch=k, seed=seed)


def differences(runs: Iterable[Run]) -> Mapping[tuple[str, str], np.ndarray]:
    """Points to training on everything, by scenario and method, one a seed."""
    runs = list(runs)
    base = {(run.scenario, run.seed): run.accuracy for run in runs if run.method == ALL}
    found: dict[tuple[str, str], list[float]] = {}
    for run in runs:
        found.setdefault((run.scenario, run.method), []).append(100 * (run.accuracy - base[run.scenario, run.seed]))
    return {key: np.array(values) for key, values in found.items()}


def table(runs: Sequence[Run]) -> str:
    """Scenarios down, methods across: mean points to ALL and their standard error over seeds."""
    points = differences(runs)
    methods = [m for m in dict.fromkeys(run.method for run in runs) if m != ALL]
    names = list(dict.fromkeys(run.scenario for run in runs))
    lines = ["| scenario (accuracy of ALL) | " + " | ".join(methods) + " |", "|---" * (len(methods) + 1) + "|"]
    for name in names:
        all_of = 100 * np.mean([run.accuracy for run in runs if run.scenario == name and run.method == ALL])
        cells = [_cell(points[name, method]) for method in methods]
        lines.append(f"| {name} ({all_of:.1f}) | " + " | ".join(cells) + " |")
    means = [np.mean([points[name, method].mean() for name in names]) for method in methods]
    return "\n".join([*lines, "| **mean** | " + " | ".join(f"{mean:+.2f}" for mean in means) + " |"])


def _cell(values: np.ndarray) -> str:
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
    return f"{values.mean():+.1f}±{error:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("data", nargs="?", type=Path, default=None)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--scenarios", nargs="+", default=None, choices=[s.name for s in (*SCENARIOS, *COMPILES)])
    parser.add_argument("--methods", nargs="+", default=None, choices=list(METHODS))
    parser.add_argument("--student", choices=("lr", "lora"), default="lr")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=None, help="append every run to this file, one JSON object a line")
    parser.add_argument(
        "--table", type=Path, nargs="+", default=None, help="print the table of such files, run nothing"
    )
    options = parser.parse_args()
    if options.table:
        wanted = {ALL, *(options.methods or METHODS)}
        print(table([run for run in read_runs(options.table) if run.method in wanted]))
        return
    folder = options.data or data_folder()
    if not (folder / "banking77").exists() or not (folder / "clinc150").exists():
        sys.exit(f"{folder} lacks banking77 or clinc150: name the data folder, or set KOLM_DATA")
    lora = options.student == "lora"
    names = options.scenarios or (LORA_SCENARIOS if lora else [s.name for s in SCENARIOS])
    methods = list(dict.fromkeys([ALL, *(options.methods or (LORA_METHODS if lora else METHODS))]))
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    tasks = [(s, seed) for seed in seeds for s in (*SCENARIOS, *COMPILES) if s.name in names]
    runs = []
    for found in _carried_out(partial(runs_of, folder, methods, options.student), tasks, options.jobs):
        runs += found
        if options.out:
            with options.out.open("a") as file:
                file.writelines(json.dumps({**_fields(run)}) + "\n" for run in found)
        print(f"{len(runs) // len(methods)} of {len(tasks)}: {found[0].scenario}, {found[0].seed}", file=sys.stderr)
    print(table(runs))


def read_runs(paths: Sequence[Path]) -> list[Run]:
    """The last run of each student, in the order of scenarios and methods; half-finished files do."""
    last: dict[tuple[str, int, str], Run] = {}
    for path in paths:
        for line in path.read_text().splitlines():
            run = Run(**json.loads(line))
            last[run.scenario, run.seed, run.method] = run
    names, methods = [s.name for s in (*SCENARIOS, *COMPILES)], list(METHODS)
    return sorted(last.values(), key=lambda r: (names.index(r.scenario), r.seed, methods.index(r.method)))


def _fields(run: Run) -> Mapping[str, object]:
    return {name: getattr(run, name) for name in Run.__slots__}


def _carried_out(work: partial[list[Run]], tasks: Sequence[tuple[Scenario, int]], jobs: int) -> Iterable[list[Run]]:
    if jobs == 1:
        yield from map(work, tasks)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(work, tasks)


if __name__ == "__main__":
    main()
