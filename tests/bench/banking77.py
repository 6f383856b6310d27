"""`python -m tests.bench.banking77 [DATA]`: BANKING77 compiled through the public API of a stack of its own, beside
simpler models trained on the same pairs and tested on the same held-out questions. Prints the tables of
docs/benchmarks/banking77.md.

DATA is the folder that has `banking77/` in it (default $KOLM_DATA, else ../shared/data). Three tasks: the 8 intents of
`banking77_data.REF8`; the same, trained on every labelled input instead of half of them; all 77 intents. Each is
compiled once per seed: the seed is that of training, and of the sample of captures where there are more than
`max_captures`.
"""

import argparse
import datetime
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np

from backend.domain.evaluation.classification import wilson_interval
from deploy.embedded.home import ROOT
from deploy.embedded.layout import EVERYTHING
from deploy.embedded.ports import free_ports
from deploy.embedded.stack import EmbeddedServices
from tests.acceptance.deployment import Customer, Deployment
from tests.bench.banking77_compile import (
    ADAPTER,
    BASELINES,
    Measured,
    compile_and_measure,
    rights,
    spec_of,
    upload,
)
from tests.bench.banking77_data import REF8, Banking77, data_folder, read_banking77
from tests.bench.label_baselines import Embeddings, frozen_answers
from tests.bench.paired import Comparison, compare

WITHIN_S = 3600
Cells = Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """`max_captures` below the number there are makes each seed compile a sample of its own. The page was measured
    with half of what was labelled."""

    name: str
    intents: tuple[str, ...] | None
    max_captures: int
    n_random: int  # random selections to compare the picks with
    k_distill: int | str = "half"
    train: Mapping[str, Any] = field(default_factory=dict)


REF8_TASK = Task(name="ref8", intents=REF8, max_captures=1200, n_random=20)
ALL77_TASK = Task(name="all77", intents=None, max_captures=20_000, n_random=3, train={"epochs": 5, "batch_size": 32})
# this teacher never contradicts itself: nothing is gained by leaving half of its labels out
REF8_ALL_PAIRS_TASK = replace(REF8_TASK, name="ref8-all-pairs", k_distill=400)
TASKS = {task.name: task for task in (REF8_TASK, REF8_ALL_PAIRS_TASK, ALL77_TASK)}


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = _parser().parse_args(arguments)
    try:
        everything = read_banking77(chosen.data)
    except FileNotFoundError as missing:
        print(f"There is no {missing.filename}: give the folder that has banking77/ in it, or set KOLM_DATA.")
        return 1
    print(_machine())
    embeddings = Embeddings()
    with stack() as deployment, deployment.customer("bench") as customer:
        for name in chosen.task:
            task = TASKS[name]
            part = everything if task.intents is None else everything.only(task.intents)
            print(_report(task, part, _runs(customer, task, part, chosen.seeds, embeddings), embeddings), flush=True)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.banking77", description=__doc__)
    parser.add_argument("data", nargs="?", type=Path, default=data_folder())
    parser.add_argument("--task", nargs="+", choices=sorted(TASKS), default=list(TASKS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    return parser


@contextmanager
def stack() -> Iterator[Deployment]:
    """Every part as a process of its own, on free ports, with data that is gone afterwards; leases as in production."""
    ours = ("DATABASE_", "REDIS_", "KOLM_", "DJANGO_")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    rates = {"KOLM_RATE_PER_KEY": "100000", "KOLM_RATE_PER_TENANT": "100000"}
    variables = inherited | rates | {"KOLM_PORT": str(free_ports(1)[0])}
    with EmbeddedServices(services=tuple(EVERYTHING), variables=variables) as services:
        yield Deployment(services.stack.plan)


def _runs(
    customer: Customer, task: Task, part: Banking77, seeds: Sequence[int], embeddings: Embeddings
) -> list[Measured]:
    uploads = upload(customer, part)
    found = []
    for seed in seeds:
        name = f"banking77-{task.name}"
        spec = spec_of(
            name, part, uploads, seed=seed, max_captures=task.max_captures, k_distill=task.k_distill, **task.train
        )
        found.append(compile_and_measure(customer, part, spec, embeddings=embeddings, within_s=WITHIN_S))
        print(f"{task.name}, seed {seed}: {found[-1].wall_s:.0f} s", file=sys.stderr, flush=True)
    return found


def _report(task: Task, part: Banking77, runs: Sequence[Measured], embeddings: Embeddings) -> str:
    rows: list[Cells] = [
        ("", *(f"run {i}" for i in range(1, len(runs) + 1)), "mean ± sd"),
        ("---",) * (len(runs) + 2),
        *(_accuracy_row(name, runs) for name in (ADAPTER, *BASELINES)),
        _difference_row(runs),
        _count_row("captures", [run.n_captures for run in runs]),
        _count_row("labelled (K)", [len(run.labelled.texts) for run in runs]),
        _count_row("training pairs", [len(run.trained.texts) for run in runs]),
        _count_row("labelled, but too close to held-out", [run.n_leaks_dropped for run in runs]),
        _count_row("compile, s of wall clock", [round(run.wall_s) for run in runs]),
        *_selection_rows(part, runs, embeddings, task.n_random),
    ]
    title = f"\n{task.name}: {len(part.intents)} intents, {len(runs[0].truths)} held-out questions"
    given = {"k_distill": task.k_distill, **task.train}
    settings = ", ".join(f"{name} {value}" for name, value in given.items() if value) or "the spec's defaults"
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    return f"{title}; training: {settings}\n\n{table}"


def _accuracy_row(name: str, runs: Sequence[Measured]) -> Cells:
    cells = []
    for run in runs:
        n = len(run.truths)
        low, high = wilson_interval(run.correct(name), n)
        cells.append(f"{run.correct(name) / n:.1%} ({low:.1%} to {high:.1%})")
    return (name, *cells, _spread([run.correct(name) / len(run.truths) for run in runs]))


def _difference_row(runs: Sequence[Measured]) -> Cells:
    """The adapter beside the baseline that did best on this very held-out set: chosen with hindsight, against us."""
    found: list[Comparison] = [compare(run.rights(ADAPTER), run.rights(run.best_baseline)) for run in runs]
    cells = [
        f"{100 * c.difference:+.1f} ({100 * c.low:+.1f} to {100 * c.high:+.1f}), {c.wins}:{c.losses}, p = {c.p:.2g}"
        for c in found
    ]
    return ("adapter - best of them, points", *cells, _spread([c.difference for c in found], sign="+"))


def _selection_rows(part: Banking77, runs: Sequence[Measured], embeddings: Embeddings, n_random: int) -> list[Cells]:
    """What choosing which K inputs to label was worth, by the same simple model: the picks, and as many at random."""
    label_of = {question.text: question.intent for question in part.train}
    pool = sorted(label_of)
    picked: list[float] = []
    random: list[list[float]] = []
    for run in runs:
        k, rng = len(run.labelled.texts), np.random.default_rng(len(picked))
        draws = [[pool[i] for i in rng.choice(len(pool), size=k, replace=False)] for _ in range(n_random)]
        scores = []
        for texts in (list(run.labelled.texts), *draws):
            labels = [label_of[text] for text in texts]
            answers = frozen_answers(embeddings, texts, labels, run.questions, cs=(10.0,))
            scores.append(sum(rights(answers, run.truths)) / len(run.truths))
        picked.append(scores[0])
        random.append(scores[1:])
    return [
        ("frozen, C = 10, on all K picks of two_step", *(f"{p:.1%}" for p in picked), _spread(picked)),
        (
            f"the same on K questions at random, {n_random} draws",
            *(f"{mean(draws):.1%} ± {100 * stdev(draws):.1f}" for draws in random),
            _spread([mean(draws) for draws in random]),
        ),
    ]


def _count_row(name: str, counts: Sequence[int]) -> Cells:
    return (name, *map(str, counts), f"{mean(counts):.0f}")


def _spread(values: Sequence[float], *, sign: str = "") -> str:
    spread = f" ± {100 * stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * mean(values):{sign}.1f}{spread}"


def _machine() -> str:
    names = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "peft", "scikit-learn"))
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    return (
        f"{today}, commit {commit.stdout.strip() or 'unknown'}, {os.cpu_count()} x {names[0] if names else 'CPU'}, "
        f"{platform.system()}, Python {platform.python_version()}, {versions}"
    )


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


if __name__ == "__main__":
    sys.exit(main())
