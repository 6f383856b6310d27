"""What do labels cost that give the accuracy of 334 rows with five votes each?

    python -m tests.bench.label.same_accuracy [--sets NAME ...] [--seeds N] [--teachers NAME ...] [--out FILE]
    python -m tests.bench.label.same_accuracy --table FILE ...

Pools, students, teachers and prices of `plans`. The plans to be reached are 334 of 1,000 captures with five votes each:
chosen by k_center, which a compile did before it had a plan, and at random. `plan: auto` gets one budget of a ladder
after another; its cost is that of the first budget at which its accuracy, on the mean of a set's seeds, is theirs.
Training is no part of a label's cost. Where the last budget does not reach a plan, it counts at its own cost, in
brackets.
"""

import argparse
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.label.choosing import RULES, Pool
from tests.bench.label.plans import CALL_USD, DEFAULT, FIVE_VOTES, Auto, Case, Ints, fixed
from tests.bench.label.run_lines import read_runs, run_cases
from tests.bench.label.sets import DEVELOPMENT, UNTOUCHED

LADDER = (0.004, 0.005, 0.006, 0.008, 0.010, 0.0125, 0.016, 0.02, 0.025, 0.035, 0.05)  # USD, training included
TEACHERS = ("clean 0", "hard 0.1", "iid 0.2")
REACHED: Mapping[str, Callable[[Pool, int], Ints]] = {name: RULES[name] for name in ("k_center", "random")}
Run = Mapping[str, Any]


def runs_of(case: Case) -> Iterable[dict[str, Any]]:
    about = {"set": case.pool.data.name, "seed": case.seed, "teacher": case.teacher}
    k, votes = DEFAULT
    for name, rule in REACHED.items():
        yield about | {"plan": name} | fixed(case, k, votes, rows=np.sort(rule(case.pool, k)))
    for shape, budget in itertools.product(FIVE_VOTES, LADDER):
        plan = Auto(case, budget, point_usd=1.0, shape=shape)
        yield about | {"plan": f"auto {budget:g}", "shape": shape} | plan.run()


def reached_by(runs: Sequence[Run], plan: str) -> tuple[Run, float, bool]:
    """Return auto's means at the first budget that is as accurate as the plan, how much more accurate it is, in points,
    and whether it is; of one set, teacher and price shape."""

    def mean(name: str, what: str) -> float:
        return float(np.mean([run[what] for run in runs if run["plan"] == name]))

    wanted = mean(plan, "accuracy")
    for budget in LADDER:
        ahead = 100 * (mean(f"auto {budget:g}", "accuracy") - wanted)
        if ahead >= 0:
            break
    return {what: mean(f"auto {budget:g}", what) for what in ("n_votes", "label_usd")}, ahead, ahead >= 0


def table(runs: Iterable[Run]) -> str:
    """For each price shape, teacher, plan and set: what auto's labels cost, as a share of the plan's."""
    runs = list(runs)
    sets = list(dict.fromkeys(run["set"] for run in runs))
    k, votes = DEFAULT
    lines = ["| teacher, plan | " + " | ".join(sets) + " | saved | votes saved |"]
    header = [lines[0], "|---" * (len(sets) + 3) + "|"]
    lines = []
    for shape, teacher in itertools.product(FIVE_VOTES, dict.fromkeys(run["teacher"] for run in runs)):
        if teacher == runs[0]["teacher"]:
            lines += ["", f"Price shape: {shape}", "", *header]
        of_plan = k * CALL_USD * FIVE_VOTES[shape]
        mine = [run for run in runs if run["teacher"] == teacher and run.get("shape", shape) == shape]
        for plan in REACHED:
            reached = [reached_by([run for run in mine if run["set"] == name], plan) for name in sets]
            shares = [auto["label_usd"] / of_plan for auto, _, _ in reached]
            cells = [
                f"{100 * share:.0f} % ({ahead:+.1f})" if is_there else f"[{100 * share:.0f} % ({ahead:+.1f})]"
                for share, (_, ahead, is_there) in zip(shares, reached, strict=True)
            ]
            n = float(np.mean([auto["n_votes"] for auto, _, _ in reached]))
            saved = [f"{100 * (1 - float(np.mean(shares))):.0f} %", f"{100 * (1 - n / (k * votes)):.0f} %"]
            lines.append(f"| {teacher}, {plan} | " + " | ".join([*cells, *saved]) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=[*DEVELOPMENT, *UNTOUCHED])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--teachers", nargs="+", default=list(TEACHERS))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path, nargs="+")
    args = parser.parse_args()
    if args.table:
        print(table(read_runs(args.table)))
        return
    print(table(run_cases(runs_of, sets=args.sets, seeds=args.seeds, teachers=args.teachers, out=args.out)))


if __name__ == "__main__":
    main()
