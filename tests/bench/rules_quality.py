"""`python -m tests.bench.rules_quality [DATA]`: what induced rules answer on published test sets, and how rightly.

    --precision 0.95   what the list is held to
    --sizes 500,...    also from so many training pairs (drawn with seed 7), as a compile has them

DATA is the folder that has banking77/, clinc150/ and snips/ in it (default $KOLM_DATA, else ../shared/data). Answers of
json tasks count as right when they are exactly the annotation's, every field.
"""

import argparse
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from backend.domain.answers.json_values import is_exact, parse_answer
from backend.domain.rules.certifying import low_ppm
from backend.domain.rules.closure import compile_rules
from backend.domain.rules.induction import Induced, RuleOptions, induce_rules
from tests.bench.banking77_data import data_folder
from tests.bench.rules_data import Pairs, Task, tasks

HEAD = (
    "| task | training pairs | rules | rules.json | own held-out: answered | right | test set | answered | right "
    "| lower bound | CPU s |\n|---|---|---|---|---|---|---|---|---|---|---|"
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.rules_quality", description=__doc__)
    parser.add_argument("data", nargs="?", type=Path, default=data_folder())
    parser.add_argument("--precision", type=float, default=RuleOptions().precision)
    parser.add_argument("--sizes", default="")
    parser.add_argument("--only", default="", help="a part of a task's name")
    chosen = parser.parse_args(arguments)
    try:
        found = tasks(chosen.data, chosen.only)
    except FileNotFoundError as missing:
        print(f"There is no {missing.filename}: give the folder with the data sets, or set KOLM_DATA.")
        return 1
    print(HEAD, flush=True)
    sizes = [int(size) for size in chosen.sizes.split(",") if size]
    for task in found:
        for size in (*sizes, len(task.train)):
            pairs = tuple(random.Random(7).sample(task.train, min(size, len(task.train))))
            print(_rows(task, pairs, RuleOptions(precision=chosen.precision)), flush=True)
    return 0


def _rows(task: Task, pairs: Pairs, options: RuleOptions) -> str:
    started = time.process_time()
    made = induce_rules(pairs, task.answer, options)
    cpu_s = time.process_time() - started
    return "\n".join(_row(task, name, test, len(pairs), made, cpu_s) for name, test in task.tests.items())


def _row(task: Task, name: str, test: Pairs, n_train: int, made: Induced, cpu_s: float) -> str:
    answer = compile_rules(made.rules)
    is_right = _exactly if task.answer["type"] == "json" else str.__eq__
    answered = [is_right(said, gold) for text, gold in test if (said := answer(text)) is not None]
    right, n = sum(answered), len(answered)
    own = made.facts
    cells = [
        task.name,
        f"{n_train:,}",
        str(made.rules.n),
        f"{len(made.rules.to_bytes()) / 1024:.1f} KiB",
        f"{_percent(own.get('coverage_ppm', 0))} of {own.get('heldout', 0):,}",
        _percent(own.get("precision_ppm", 0)),
        f"{name} ({len(test):,})",
        f"{100 * n / len(test):.1f} %",
        f"{100 * right / n:.1f} %" if n else "-",
        _percent(low_ppm(right, n, 0.05)) if n else "-",
        f"{cpu_s:.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def _percent(ppm: int) -> str:
    return f"{ppm / 10_000:.1f} %"


def _exactly(said: str, gold: str) -> bool:
    return is_exact(parse_answer(said), parse_answer(gold))


if __name__ == "__main__":
    sys.exit(main())
