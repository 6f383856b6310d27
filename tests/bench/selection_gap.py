"""Does kolm see how many clusters a pool has, and does it warn when more are forced?

    python -m tests.bench.selection_gap [DATA] [--draws N] [--fit] [--kept FILE]

Pools whose number of clusters is known (`selection_gap_pools`), half of each data set's intents; the thresholds were
fitted on the other half (`--fit` shows the sweeps). Prints the tables of docs/benchmarks/selection-gap.md.
"""

import argparse
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from backend.domain.evaluation.classification import wilson_interval
from backend.domain.selection.cluster_gap import Severity
from deploy.embedded.home import ROOT
from tests.bench.selection_gap_counts import (
    RULES,
    SIGNS,
    Trees,
    first_rule_warns,
    grow,
    is_cut_of_ward,
    severity_at,
)
from tests.bench.selection_gap_fit import print_sweeps
from tests.bench.selection_gap_pools import CASES, DATA_SETS, Case, Corpus, EmbeddedTexts, draw_pool, read_corpus

COLUMNS = tuple(dict.fromkeys(case.name for case in CASES))
SPLITS = ("K = N/3", "K = twice the truth", "K = the truth")
FEW = 6  # draws of the cases that have no counts and sizes to vary, for each draw of the others


@dataclass(slots=True)
class Tally:
    right: int = 0
    n: int = 0

    def add(self, is_right: bool) -> None:
        self.right += is_right
        self.n += 1

    def __str__(self) -> str:
        if not self.n:
            return ""
        low, high = wilson_interval(self.right, self.n)
        return f"{_short(self.right / self.n)} ({_short(low)}-{_short(high)})"


@dataclass(slots=True)
class Results:
    """One data set's. `counts` by rule and column; `warnings` by rule, column and split; `signs` by sign, granularity
    and split."""

    counts: dict[tuple[str, str], Tally] = field(default_factory=lambda: defaultdict(Tally))
    warnings: dict[tuple[str, str, str], Tally] = field(default_factory=lambda: defaultdict(Tally))
    signs: dict[tuple[str, str, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    of_seed: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.selection_gap")
    parser.add_argument("data", nargs="?", default=os.environ.get("KOLM_DATA") or "../shared/data")
    parser.add_argument("--draws", type=int, default=20, help="pools of each count, granularity, distance and skew")
    parser.add_argument("--fit", action="store_true", help="sweep the thresholds on the other half instead")
    parser.add_argument("--kept", type=Path, default=Path(tempfile.gettempdir()) / "kolm-gap-embeddings.npz")
    parser.add_argument("--only", default="", help='cases whose name begins so: "seed", "mode far"')
    asked = parser.parse_args(arguments)
    folder = (ROOT / asked.data).resolve()
    if missing := [name for name in DATA_SETS if not (folder / name).is_dir()]:
        sys.exit(f"No {' and no '.join(missing)} below {folder}: name the folder, or set KOLM_DATA.")
    embed = EmbeddedTexts(asked.kept)
    half = 0 if asked.fit else 1
    corpora = {name: read_corpus(folder, name, half, embed) for name in DATA_SETS}
    started = time.monotonic()
    if asked.fit:
        print_sweeps([draw for corpus in corpora.values() for draw in draws_of(corpus, asked.draws, asked.only)])
    else:
        print_tables({name: measure(draws_of(corpus, asked.draws, asked.only)) for name, corpus in corpora.items()})
    embed.keep()
    print(f"\n{time.monotonic() - started:.0f} s without the embedding of texts already kept")


def draws_of(corpus: Corpus, draws: int, only: str) -> Iterator[tuple[Case, tuple[int, ...], Trees]]:
    for case in (case for case in CASES if case.name.startswith(only)):
        for i in range(draws if case.kind in {"mode", "intent"} else FEW * draws):
            pool = draw_pool(corpus, case, i)
            yield case, pool.sizes, grow(pool.rows, pool.k_forced)


def measure(draws: Iterable[tuple[Case, tuple[int, ...], Trees]]) -> Results:
    results = Results()
    for case, sizes, trees in draws:
        truth = len(sizes)
        for name, count in RULES.items():
            results.counts[name, case.name].add(count(trees) == truth)
        results.counts["(the true clusters are a cut of Ward's tree)", case.name].add(is_cut_of_ward(trees, sizes))
        _add_warnings(results, case, truth, trees)
        if case.kind == "seed":
            _add_seed(results, case, trees)
    return results


def _add_warnings(results: Results, case: Case, truth: int, trees: Trees) -> None:
    splits = {SPLITS[0]: trees.k_max}
    if case.kind in {"mode", "intent"}:
        splits |= {SPLITS[1]: min(2 * truth, trees.k_max), SPLITS[2]: truth}
    for split, k in splits.items():
        severity = severity_at(trees, k)
        results.warnings["**kolm**", case.name, split].add(severity is not Severity.NONE)
        results.warnings["of these DEGENERATE", case.name, split].add(severity is Severity.DEGENERATE)
        results.warnings["the first rule", case.name, split].add(first_rule_warns(trees, k))
        for sign, value in SIGNS.items():
            if len(splits) > 1:
                results.signs[sign, case.kind, split].append(value(trees, k))


def _add_seed(results: Results, case: Case, trees: Trees) -> None:
    results.of_seed[f"{case.name}: silhouette of the two natural clusters"].append(float(trees.of_average[0]))
    results.of_seed[f"{case.name}: silhouette of the forced four"].append(float(trees.of_average[2]))
    results.of_seed[f"{case.name}: smallest inter-cluster distance of the forced four"].append(float(trees.joins[2]))


def print_tables(of: dict[str, Results]) -> None:
    for name, results in of.items():
        print(f"\n### Exact counts, {name}\n")
        columns = [c for c in COLUMNS if any(column == c for _, column in results.counts)]
        _print_table("rule", columns, [(r, [results.counts[r, c] for c in columns]) for r in _rules(results)])
    for name, results in of.items():
        print(f"\n### Pools that warn, {name}\n")
        splits = [(c, s) for c in COLUMNS for s in SPLITS if ("**kolm**", c, s) in results.warnings]
        rows = [
            (f"{c}, {s}", [results.warnings[r, c, s] for r in ("**kolm**", "of these DEGENERATE", "the first rule")])
            for c, s in splits
        ]
        _print_table("pools", ("kolm", "of these DEGENERATE", "the first rule"), rows)
    if any(results.signs for results in of.values()):
        _print_signs(of)
    print("\n### The seed's case, K = 4: median and 5 to 95 % of draws\n")
    rows = [(what, [_spread(of[name].of_seed[what]) for name in of]) for what in next(iter(of.values())).of_seed]
    _print_table("", tuple(of), rows)


def _print_signs(of: dict[str, Results]) -> None:
    print("\n### Signs that K is above the truth (N/3 against the truth): AUC, best balanced accuracy at a threshold\n")
    granularities = [(name, kinds) for name in of for kinds in (("mode",), ("intent",), ("mode", "intent"))]
    columns = [f"{name}, {' and '.join(kinds)}" for name, kinds in granularities]
    _print_table("sign", columns, [(s, [_told(of[name], s, k) for name, k in granularities]) for s in SIGNS])


def _rules(results: Results) -> list[str]:
    return list(dict.fromkeys(rule for rule, _ in results.counts))


def _told(results: Results, sign: str, kinds: Sequence[str]) -> str:
    over = np.array([v for kind in kinds for v in results.signs[sign, kind, SPLITS[0]]])
    exact = np.array([v for kind in kinds for v in results.signs[sign, kind, SPLITS[2]]])
    auc = np.mean(over[:, None] > exact[None]) + np.mean(over[:, None] == exact[None]) / 2
    balanced, at = max(((np.mean(over > t) + np.mean(exact <= t)) / 2, t) for t in np.unique(exact))
    return f"{_short(float(auc), 3)}, {_short(float(balanced))} at {abs(float(at)):.2f}"


def _spread(values: Sequence[float]) -> str:
    low, mid, high = np.quantile(values, (0.05, 0.5, 0.95))
    return f"{mid:.2f} ({low:.2f} to {high:.2f})"


def _print_table(title: str, columns: Sequence[str], rows: Iterable[tuple[str, Sequence[object]]]) -> None:
    print(f"| {title} | {' | '.join(columns)} |")
    print("|---" * (len(columns) + 1) + "|")
    for name, cells in rows:
        print(f"| {name} | {' | '.join(str(cell) for cell in cells)} |")


def _short(share: float, digits: int = 2) -> str:
    """.87 rather than 0.87."""
    return f"{share:.{digits}f}".removeprefix("0")


if __name__ == "__main__":
    main(sys.argv[1:])
