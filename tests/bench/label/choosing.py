"""Which rows should be labelled? Every rule's picks of the same pools, one right label a row, beside random rows.

    python -m tests.bench.label.choosing [--sets NAME ...] [--seeds N] [--k K ...] [--zipf] [--out FILE]
    python -m tests.bench.label.choosing --table FILE ...

The student is the logistic regression (C = 10) on the frozen embeddings. Runs are appended to FILE as JSON lines, and
what stands there is not run again. Printed: the mean difference to random rows in points, its 95 % interval over seeds
(each seed is another pool and another draw), by set, and the mean over sets.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from backend.domain.labeling.linear_head import fit_linear_head
from backend.domain.labeling.rounds import RoundPool, next_rows, start_rows
from backend.domain.selection.select import select
from tests.bench.label.sets import DEVELOPMENT, LabelSet, draw_pool, read_sets

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
START, ROUNDS = 0.3, 4  # of `rounds`: the share of K that the start has, and what follows


class Pool:
    """The rows that were captured, with what rules may know of them."""

    def __init__(self, data: LabelSet, seed: int, *, zipf: bool = False) -> None:
        self.data, self.seed = data, seed
        self.at = draw_pool(data, seed, zipf=zipf)
        self.rows, self.labels = data.rows[self.at], data.labels[self.at]
        self.keys = [data.texts[i] for i in self.at]
        self.n_labels = len(data.names)

    @cache  # noqa: B019 (a pool lives for one task)
    def for_rounds(self) -> RoundPool:
        return RoundPool.of(self.rows, self.keys)

    def one_hot(self, picks: Ints) -> Floats:
        return np.eye(self.n_labels)[self.labels[picks]]

    def accuracy(self, picks: Ints, *, zipf: bool = False) -> float:
        """Of a head on the picks' right labels; with `zipf`, every class counts as often as the pool has it."""
        head = fit_linear_head(self.rows[picks], self.one_hot(picks))
        truth = self.data.labels[self.data.test]
        right = head.logits(self.data.rows[self.data.test]).argmax(axis=1) == truth
        if not zipf:
            return float(right.mean())
        shares = np.bincount(self.labels, minlength=self.n_labels) / len(self.labels)
        weights = shares[truth] / np.maximum(1, np.bincount(truth, minlength=self.n_labels))[truth]
        return float((right * weights).sum() / weights.sum())


Rule = Callable[[Pool, int], Ints]


def at_random(pool: Pool, k: int) -> Ints:
    return np.sort(np.random.default_rng([pool.seed, 3]).permutation(len(pool.rows))[:k])


def by_method(pool: Pool, k: int, *, method: str) -> Ints:
    scores = [1.0] * len(pool.rows)
    return np.array(select(pool.rows, scores, pool.keys, k=k, method=method, seed=pool.seed).picks, dtype=np.int64)


def start_alone(pool: Pool, k: int) -> Ints:
    return start_rows(pool.for_rounds(), k, seed=pool.seed).rows


def in_rounds(pool: Pool, k: int, *, start: Rule = start_alone) -> Ints:
    taken = start(pool, max(2 * pool.n_labels, round(START * k)))
    for n in np.diff(np.linspace(len(taken), k, ROUNDS + 1).round().astype(int)):
        head = fit_linear_head(pool.rows[taken], pool.one_hot(taken))
        is_open = np.ones(len(pool.rows), dtype=bool)
        is_open[taken] = False
        counts = np.bincount(pool.labels[taken], minlength=pool.n_labels)
        chosen = next_rows(
            pool.for_rounds(), head.probabilities(pool.rows), is_open, int(n), n_by_label=counts, seed=pool.seed
        )
        taken = np.concatenate([taken, chosen.rows])
    return taken


RULES: Mapping[str, Rule] = {
    "random": at_random,
    "k_center": partial(by_method, method="k_center"),
    "two_step": partial(by_method, method="two_step"),
    "dpp": partial(by_method, method="dpp"),
    "facility_location": partial(by_method, method="facility_location"),
    "representative": partial(by_method, method="representative"),
    "representative + rounds": partial(in_rounds, start=partial(by_method, method="representative")),
    "start": start_alone,
    "random + rounds": partial(in_rounds, start=at_random),
    "rounds": in_rounds,
}


def runs_of(data: LabelSet, seed: int, ks: Sequence[int], rules: Sequence[str], *, zipf: bool) -> list[dict[str, Any]]:
    pool = Pool(data, seed, zipf=zipf)
    return [
        {
            "set": data.name,
            "seed": seed,
            "k": k,
            "zipf": zipf,
            "rule": rule,
            "accuracy": pool.accuracy(picks, zipf=zipf),
        }
        for k in ks
        for rule in rules
        if len(picks := RULES[rule](pool, k)) == k
    ]


def table(runs: Iterable[Mapping[str, Any]]) -> str:
    runs = list(runs)
    lines = []
    for k, zipf in sorted({(run["k"], run["zipf"]) for run in runs}):
        mine = [run for run in runs if (run["k"], run["zipf"]) == (k, zipf)]
        rules = [r for r in dict.fromkeys(run["rule"] for run in mine) if r != "random"]
        lines += ["", f"K = {k}{', Zipf' if zipf else ''}: points against random rows", ""]
        lines += ["| set (random) | " + " | ".join(rules) + " |", "|---" * (len(rules) + 1) + "|"]
        cells: dict[str, list[Floats]] = {rule: [] for rule in rules}
        for name in dict.fromkeys(run["set"] for run in mine):
            by = {(run["rule"], run["seed"]): 100 * run["accuracy"] for run in mine if run["set"] == name}
            seeds = sorted({seed for _, seed in by})
            for rule in rules:
                cells[rule].append(np.array([by[rule, s] - by["random", s] for s in seeds if (rule, s) in by]))
            base = np.mean([by["random", s] for s in seeds])
            lines.append(
                f"| {name} ({base:.1f}, {len(seeds)} seeds) | " + " | ".join(_cell(cells[r][-1]) for r in rules) + " |"
            )
        means = [f"{np.mean([c.mean() for c in cells[r]]):+.2f}" for r in rules]
        lines.append("| **mean** | " + " | ".join(f"**{mean}**" for mean in means) + " |")
    return "\n".join(lines)


def _cell(points: Floats) -> str:
    half = (
        stats.t.ppf(0.975, len(points) - 1) * points.std(ddof=1) / np.sqrt(len(points)) if len(points) > 1 else np.nan
    )
    return f"{points.mean():+.1f} ± {half:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=list(DEVELOPMENT))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--k", type=int, nargs="+", default=[150, 334])
    parser.add_argument("--rules", nargs="+", default=list(RULES), choices=list(RULES))
    parser.add_argument("--zipf", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path, nargs="+")
    args = parser.parse_args()
    if args.table:
        print(table(json.loads(line) for file in args.table for line in file.read_text().splitlines()))
        return
    runs = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out and args.out.exists() else []
    done = {(run["set"], run["seed"], run["k"], run["zipf"], run["rule"]) for run in runs}
    for data in read_sets(args.sets):
        for seed in range(1, args.seeds + 1):
            missing = [r for r in args.rules if any((data.name, seed, k, args.zipf, r) not in done for k in args.k)]
            new = runs_of(data, seed, args.k, missing, zipf=args.zipf)
            runs += new
            if args.out:
                with args.out.open("a") as file:
                    file.writelines(json.dumps(run) + "\n" for run in new)
        print(f"{data.name} is done", file=sys.stderr)
    print(table(runs))


if __name__ == "__main__":
    main()
