"""How much may a student of few rows say about the labels that it learns from?

    python -m tests.bench.label.student_doubt [--sets NAME ...] [--seeds N] [--budgets USD ...] [--rows N ...]
                                              [--out FILE]
    python -m tests.bench.label.student_doubt --table FILE ...

`plan: auto` on the pools, teachers and prices of `plans`, with each number of `posteriors.UNKNOWN_ROWS`: 0 lets the
student doubt as little as fits the votes best, 15 is what a compile has. `votes` trains on every row of the first of
them by its votes alone. Shown are points over the first number, means over seeds.
"""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from backend.domain.labeling import posteriors
from tests.bench.label.plans import Auto, Case
from tests.bench.label.run_lines import read_runs, run_cases
from tests.bench.label.same_accuracy import TEACHERS
from tests.bench.label.sets import DEVELOPMENT, HELD_BACK, UNTOUCHED

BUDGETS = (0.0024, 0.006, 0.01, 0.02, 0.04)  # USD: 40 to about 650 rows
ROWS = (0.0, 15.0)
VOTES = "votes"
Run = Mapping[str, Any]


def runs_of(case: Case, budgets: Sequence[float], rows: Sequence[float]) -> Iterable[dict[str, Any]]:
    about = {"set": case.pool.data.name, "seed": case.seed, "teacher": case.teacher}
    for budget in budgets:
        for n in rows:
            posteriors.UNKNOWN_ROWS = n
            plan = Auto(case, budget, point_usd=1.0)
            yield about | {"budget": budget, "rule": f"{n:g}"} | plan.run()
            if n == rows[0]:
                votes = plan.votes[plan.rows]
                accuracy = case.student(plan.rows, votes / votes.sum(axis=1, keepdims=True))
                yield about | {"budget": budget, "rule": VOTES, "accuracy": accuracy}


def table(runs: Iterable[Run]) -> str:
    runs = list(runs)
    rules = list(dict.fromkeys(run["rule"] for run in runs))
    sets, teachers = (list(dict.fromkeys(run[what] for run in runs)) for what in ("set", "teacher"))
    at = {(run["set"], run["teacher"], run["budget"], run["seed"], run["rule"]): run for run in runs}

    def cell(names: Sequence[str], teacher: str, budget: float, rule: str) -> str:
        points = [
            100 * (run["accuracy"] - at[*key[:4], rules[0]]["accuracy"])
            for key, run in at.items()
            if key[0] in names and key[1:3] == (teacher, budget) and key[4] == rule
        ]
        return f"{np.mean(points):+.1f}" if points else "-"

    lines = ["| budget, teacher (rows) | rule | " + " | ".join(sets) + " | mean |", "|---" * (len(sets) + 3) + "|"]
    for budget in sorted({run["budget"] for run in runs}):
        for teacher in teachers:
            mine = [run for run in runs if (run["budget"], run["teacher"]) == (budget, teacher) and "n_rows" in run]
            n = np.mean([run["n_rows"] for run in mine])
            for rule in rules[1:]:
                cells = [cell([name], teacher, budget, rule) for name in sets]
                cells.append(f"**{cell(sets, teacher, budget, rule)}**")
                lines.append(f"| ${budget:g}, {teacher} ({n:.0f}) | {rule} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=[*DEVELOPMENT, *UNTOUCHED, *HELD_BACK])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--budgets", type=float, nargs="+", default=list(BUDGETS))
    parser.add_argument("--rows", type=float, nargs="+", default=list(ROWS))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path, nargs="+")
    args = parser.parse_args()
    if args.table:
        print(table(read_runs(args.table)))
        return
    print(
        table(
            run_cases(
                partial(runs_of, budgets=args.budgets, rows=args.rows),
                sets=args.sets,
                seeds=args.seeds,
                teachers=TEACHERS,
                out=args.out,
            )
        )
    )


if __name__ == "__main__":
    main()
