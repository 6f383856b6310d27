"""Are a teacher's log-probs worth weighing? `plan: auto` with and without them, at the same money.

    python -m tests.bench.label.log_probs [--sets NAME ...] [--seeds N] [--budgets USD ...] [--teachers NAME ...]
                                          [--out FILE]
    python -m tests.bench.label.log_probs --table FILE ...

Pools, student, prices and plan are those of `plans`; the teachers are those of `simulated_teachers` that tell log-probs
beside their answers, with their rate of errors. Both arms ask the same teacher, whose n-th answer about a row is the
same. Runs that FILE has are not made again.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.label.choosing import Pool
from tests.bench.label.plans import Auto, Case
from tests.bench.label.sets import read_sets
from tests.bench.label.simulated_teachers import difficulty

SETS = ("emotion", "banking20")
TEACHERS = ("sure 0.02", "sure 0.1", "sure 0.2", "drawn 0.2", "blind 0.1", "blind 0.2")
ARMS = {"votes alone": False, "log-probs": True}
POINT_USD = 1.0
HEADER = (
    "| set, budget, teacher | accuracy, votes alone | log-probs: points more | trusted labels right, votes alone |"
    " log-probs | temperature |"
)


def runs_of(case: Case, budget: float) -> list[dict[str, Any]]:
    about = {"set": case.pool.data.name, "seed": case.seed, "teacher": case.teacher, "budget": budget}
    return [
        about | {"arm": arm} | Auto(case, budget, POINT_USD, has_scores=has_scores).run()
        for arm, has_scores in ARMS.items()
    ]


def table(runs: Sequence[Mapping[str, Any]]) -> str:
    """Means over seeds in percent; of the difference also its standard error over seeds, which are paired."""
    lines = [HEADER, "|---" * 6 + "|"]
    cells = dict.fromkeys((run["set"], run["budget"], run["teacher"]) for run in runs)
    gains = []
    for name, budget, teacher in sorted(cells, key=lambda cell: (cell[0], cell[1])):
        mine = [run for run in runs if (run["set"], run["budget"], run["teacher"]) == (name, budget, teacher)]
        plain, soft = (sorted((run for run in mine if run["arm"] == arm), key=lambda run: run["seed"]) for arm in ARMS)
        gain = 100 * (_column(soft, "accuracy") - _column(plain, "accuracy"))
        gains.append(gain.mean())
        temperature = np.exp(np.log(_column(soft, "temperature")).mean())
        lines.append(
            f"| {name}, ${budget:g}, {teacher} | {100 * _column(plain, 'accuracy').mean():.1f} | {_with_error(gain)} | "
            f"{100 * _column(plain, 'labels_right').mean():.1f} | {100 * _column(soft, 'labels_right').mean():.1f} | "
            f"{temperature:.1f} |"
        )
    return "\n".join([*lines, f"| **mean of {len(gains)}** | | **{np.mean(gains):+.2f}** | | | |"])


def _column(runs: Sequence[Mapping[str, Any]], name: str) -> np.ndarray:
    return np.array([run[name] for run in runs], dtype=np.float64)


def _with_error(gain: np.ndarray) -> str:
    error = f" ± {gain.std(ddof=1) / len(gain) ** 0.5:.1f}" if len(gain) > 1 else ""
    return f"{gain.mean():+.1f}{error}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--budgets", type=float, nargs="+", default=[0.02, 0.06])
    parser.add_argument("--teachers", nargs="+", default=list(TEACHERS))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path, nargs="+")
    args = parser.parse_args()
    if args.table:
        print(table([json.loads(line) for file in args.table for line in file.read_text().splitlines()]))
        return
    runs = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out and args.out.exists() else []
    done = {(run["set"], run["seed"], run["teacher"], run["budget"]) for run in runs}
    for data in read_sets(args.sets):
        known = difficulty(data)
        cells = [(s, t, b) for b in args.budgets for s in range(1, args.seeds + 1) for t in args.teachers]
        for seed, teacher, budget in cells:
            if (data.name, seed, teacher, budget) not in done:
                case = Case(pool=Pool(data, seed), known=known, teacher=teacher, seed=seed)
                runs += _keep(runs_of(case, budget), args.out)
        print(f"{data.name} is done", file=sys.stderr)
    print(table(runs))


def _keep(runs: list[dict[str, Any]], out: Path | None) -> list[dict[str, Any]]:
    if out:
        with out.open("a") as file:
            file.writelines(json.dumps(run) + "\n" for run in runs)
    return runs


if __name__ == "__main__":
    main()
