"""How should a budget for labels be spent? `plan: auto` beside every fixed number of rows and votes, at equal dollars.

    python -m tests.bench.label.plans [--sets NAME ...] [--seeds N] [--budgets USD ...] [--teachers NAME ...]
                                      [--shapes NAME ...] [--out FILE]
    python -m tests.bench.label.plans --table FILE ...

The pool is 1,000 captures, the student a logistic regression (C = 10) on the frozen embeddings. A vote costs CALL_USD
where it is a call of its own; `shape` says what five votes in one call cost beside one (n honoured and nothing cached;
n honoured and nine tenths of the prompt cached; one answer a call). A row costs PAIR_USD of training besides, whatever
plan bought it. Fixed plans label rows at random and train on what the votes agree on (at least 60 %). Teachers:
`simulated_teachers`, with their rate of errors.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.domain.labeling.beliefs import Beliefs, weigh_votes
from backend.domain.labeling.call_sizes import CallPrice, size_again, size_at_first
from backend.domain.labeling.folds import fold_of
from backend.domain.labeling.learning_curves import curve_points, fit_curve
from backend.domain.labeling.linear_head import fit_linear_head
from backend.domain.labeling.purchases import (
    PlanState,
    Purchase,
    PurchaseKind,
    next_purchase,
    round_size,
)
from backend.domain.labeling.rounds import next_rows, start_rows
from backend.domain.labeling.votes_again import (
    PILOT_ROWS,
    PILOT_VOTES,
    answers_change,
    changed_votes,
    unsure_rows,
)
from tests.bench.label.choosing import Pool
from tests.bench.label.sets import DEVELOPMENT, LabelSet, read_sets
from tests.bench.label.simulated_teachers import SCORED_KINDS, Difficulty, ScoringTeacher, SimulatedTeacher, difficulty

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
CALL_USD, PAIR_USD = 50e-6, 10e-6
FIVE_VOTES = {"n honoured": 1.3, "n honoured, cached": 2.2, "one a call": 5.0}  # dollars, of one vote's
THREE_VOTES = {"n honoured": 1.15, "n honoured, cached": 1.6, "one a call": 3.0}
MOST_VOTES, MIN_AGREEMENT = 5, 0.6
FIXED = [(k, votes) for k in (100, 200, 334, 500, 1000) for votes in (1, 3, 5)]
DEFAULT = (334, 5)  # K = N/3 of 1,000 captures by five votes: what a compile did before
HEADER = (
    "| budget, teacher | auto | best fixed in hindsight, set by set | best one fixed plan | 334 x 5 | "
    "worst set, auto less its best fixed | auto's label cost |"
)
TEACHERS = ("clean 0", "hard 0.1", "iid 0.2", "repeating 0.1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    pool: Pool
    known: Difficulty
    teacher: str
    seed: int

    def ask(self) -> SimulatedTeacher:
        kind, rate = self.teacher.split()
        truth, known = self.pool.labels, self.known
        mine = Difficulty(doubt=known.doubt[self.pool.at], confused=known.confused[self.pool.at])
        if kind in SCORED_KINDS:
            return ScoringTeacher(truth, mine, kind, float(rate), n_labels=self.pool.n_labels, seed=self.seed)
        return SimulatedTeacher(truth, mine, kind, float(rate), seed=self.seed)

    def student(self, rows: Ints, targets: Floats) -> float:
        head = fit_linear_head(self.pool.rows[rows], targets)
        data = self.pool.data
        return float((head.logits(data.rows[data.test]).argmax(axis=1) == data.labels[data.test]).mean())


def fixed(case: Case, k: int, votes: int, *, rows: Ints | None = None) -> dict[str, Any]:
    """Votes on these rows, or on `k` at random; what they agree on trains."""
    teacher = case.ask()
    if rows is None:
        rows = np.sort(np.random.default_rng([case.seed, 3]).permutation(len(case.pool.rows))[:k])
    counts = np.zeros((k, case.pool.n_labels))
    for _ in range(votes):
        np.add.at(counts, (np.arange(k), teacher.ask(rows)), 1)
    is_agreed = counts.max(axis=1) >= MIN_AGREEMENT * votes
    targets = np.eye(case.pool.n_labels)[counts.argmax(axis=1)]
    return {"accuracy": case.student(rows[is_agreed], targets[is_agreed]), "n_rows": k, "n_votes": k * votes}


class Auto:
    """`plan: auto`, as a compile carries it out: the votes on the pool, and what they amount to; `has_scores`: the log-
    probs of a teacher that tells them are weighed."""

    def __init__(
        self,
        case: Case,
        budget_usd: float,
        point_usd: float,
        *,
        shape: str = "one a call",
        has_scores: bool = False,
    ) -> None:
        self.case, self.pool, self.teacher = case, case.pool.for_rounds(), case.ask()
        self.votes = np.zeros((len(case.pool.rows), case.pool.n_labels))
        self.scores = self.teacher.scores if has_scores and isinstance(self.teacher, ScoringTeacher) else None
        self.folds = fold_of(self.pool.keys, self.pool.groups)
        self.budget, self.point = Decimal(repr(budget_usd)), Decimal(repr(point_usd))
        call = Decimal(repr(CALL_USD))
        self.price = CallPrice(first_usd=call, further_usd=call * Decimal(repr(FIVE_VOTES[shape] - 1)) / 4)
        self.most = 1 if shape == "one a call" else MOST_VOTES  # answers a call
        self.pair = Decimal(repr(PAIR_USD))
        self.spent = Decimal(0)
        self.n_calls = self.n_calls_again = 0
        self.n_rounds = self.n_vote_rounds = 0
        self.stopped_for = ""

    @property
    def rows(self) -> Ints:
        return np.flatnonzero(self.votes.sum(axis=1) > 0)

    @property
    def n_further(self) -> int:
        return int(np.maximum(self.votes.sum(axis=1) - 1, 0).sum())

    def run(self) -> dict[str, Any]:
        size = round_size(n_labels=self.votes.shape[1], n_open=len(self.votes), n_labelled=0)
        size = min(size, int(self.budget / (self.price.of(1) + self.pair)))
        start = start_rows(self.pool, size, seed=self.case.seed).rows
        order = np.random.default_rng([self.case.seed, 7]).permutation(len(start))
        self._ask(start[order[:PILOT_ROWS]], min(PILOT_VOTES, self.most))
        self._ask(start[order[PILOT_ROWS:]], 1)
        self.n_rounds = 1
        while True:
            beliefs = self._weigh()
            unsure = self.rows[unsure_rows(self.votes[self.rows], beliefs.believed, beliefs.predicted, most=MOST_VOTES)]
            first, again = self._sizes(beliefs)
            decided = next_purchase(self._state(beliefs, unsure, first, again))
            if not isinstance(decided, Purchase):
                self.stopped_for = decided.value
                return self._result(beliefs)
            if decided.kind is PurchaseKind.VOTES:
                self._ask_again(unsure[: decided.n], again)
            else:
                self._buy_rows(beliefs, decided.n, first)

    def _sizes(self, beliefs: Beliefs) -> tuple[int, int]:
        """Votes by a call about a new row, and by one that asks again."""
        noise = beliefs.noise
        error = float(beliefs.believed.mean(axis=0) @ noise.error)
        n_labels = self.votes.shape[1]
        n_changed = changed_votes(self.votes)
        is_changing = self.n_further >= PILOT_ROWS and answers_change(self.n_further, n_changed, noise.repeat)
        most = self.most if is_changing else 1
        first = size_at_first(self.price, self.pair, error=error, repeat=noise.repeat, n_labels=n_labels, most=most)
        return first, size_again(self.price, repeat=noise.repeat, most=min(self.most, MOST_VOTES - 1))

    def _buy_rows(self, beliefs: Beliefs, n: int, n_votes: int) -> None:
        head = fit_linear_head(self.pool.rows[self.rows], beliefs.believed)
        counts = np.bincount(beliefs.believed.argmax(axis=1), minlength=self.votes.shape[1])
        is_open = self.votes.sum(axis=1) == 0
        picks = next_rows(
            self.pool, head.probabilities(self.pool.rows), is_open, n, n_by_label=counts, seed=self.case.seed
        )
        self._ask(picks.rows, n_votes)
        self.n_rounds += 1

    def _ask(self, rows: Ints, n: int) -> None:
        """One call about each row, for `n` votes or as many as it may still have."""
        left = np.minimum(n, MOST_VOTES - self.votes[rows].sum(axis=1))
        for nth in range(n):
            asked = rows[left > nth]
            np.add.at(self.votes, (asked, self.teacher.ask(asked)), 1)
            self.spent += len(asked) * (self.price.first_usd if nth == 0 else self.price.further_usd)
        self.n_calls += len(rows)

    def _ask_again(self, rows: Ints, n: int) -> None:
        self._ask(rows, n)
        self.n_calls_again += len(rows)
        self.n_vote_rounds += 1

    def _weigh(self) -> Beliefs:
        rows = self.rows
        is_gold = np.zeros(len(rows), dtype=np.bool_)
        scores = None if self.scores is None else self.scores[rows]
        return weigh_votes(self.pool.rows[rows], self.votes[rows], self.folds[rows], is_gold=is_gold, scores=scores)

    def _state(self, beliefs: Beliefs, unsure: Ints, first: int, again: int) -> PlanState:
        rows = self.rows
        of_unsure = beliefs.believed[np.isin(rows, unsure)]
        curve = None
        if self.n_rounds >= 2:
            curve = fit_curve(curve_points(self.pool.rows[rows], beliefs.believed, self.folds[rows]))
        return PlanState(
            n_labels=self.votes.shape[1],
            n_open=len(self.votes) - len(rows),
            n_labelled=len(rows),
            n_rounds=self.n_rounds,
            n_vote_rounds=self.n_vote_rounds,
            n_calls=self.n_calls,
            n_calls_again=self.n_calls_again,
            n_further=self.n_further,
            n_unsure=len(unsure),
            doubt=float((1 - of_unsure.max(axis=1, initial=0.0)).sum()),
            n_changed=changed_votes(self.votes),
            repeat=beliefs.noise.repeat,
            money_usd=self.budget - self.spent - len(rows) * self.pair,
            call_usd=self.price.of(first),
            worst_usd=self.price.of(first),
            again_usd=self.price.of(again),
            worst_again_usd=self.price.of(again),
            pair_usd=self.pair,
            curve=curve,
            point_usd=self.point,
        )

    def _result(self, beliefs: Beliefs) -> dict[str, Any]:
        is_trusted = beliefs.believed.max(axis=1) >= MIN_AGREEMENT
        rows, believed = self.rows[is_trusted], beliefs.believed[is_trusted]
        soft = np.where(believed >= 0.02, believed, 0.0)
        hard = np.eye(believed.shape[1])[believed.argmax(axis=1)]
        return {
            "accuracy": self.case.student(rows, soft / soft.sum(axis=1, keepdims=True)),
            "hard": self.case.student(rows, hard),
            "n_rows": len(self.rows),
            "n_votes": int(self.votes.sum()),
            "label_usd": float(self.spent),
            "stopped_for": self.stopped_for,
            "rounds": self.n_rounds,
            "n_again": self.n_calls_again,
            "n_changed": changed_votes(self.votes),
            "error": float(beliefs.noise.error.mean()),
            "temperature": beliefs.temperature,
            "raw_right": float((self.votes[rows].argmax(axis=1) == self.case.pool.labels[rows]).mean()),
            "labels_right": float((believed.argmax(axis=1) == self.case.pool.labels[rows]).mean()),
        }


def cost_of(k: int, votes: int, shape: str) -> float:
    times = {1: 1.0, 3: THREE_VOTES[shape], 5: FIVE_VOTES[shape]}[votes]
    return k * (CALL_USD * times + PAIR_USD)


def runs_of(case: Case, budgets: Sequence[float], point: float) -> Iterable[dict[str, Any]]:
    about = {"set": case.pool.data.name, "seed": case.seed, "teacher": case.teacher}
    for k, votes in FIXED:
        yield about | {"plan": f"{k} x {votes}"} | fixed(case, k, votes)
    for budget in budgets:
        for shape in FIVE_VOTES:
            yield about | {"plan": f"auto {budget:g}", "shape": shape} | Auto(case, budget, point, shape=shape).run()


def table(runs: Iterable[Mapping[str, Any]]) -> str:
    """For each budget, teacher and price shape: auto, the old default, the best fixed plan of each set in hindsight,
    the best fixed plan of all sets; accuracy in percent, means over sets and seeds."""
    runs = list(runs)
    lines = []
    budgets = sorted({float(run["plan"].split()[1]) for run in runs if run["plan"].startswith("auto")})
    sets = list(dict.fromkeys(run["set"] for run in runs))
    for shape in FIVE_VOTES:
        lines += ["", f"Price shape: {shape}", "", HEADER, "|---" * 7 + "|"]
        for budget in budgets:
            for teacher in dict.fromkeys(run["teacher"] for run in runs):
                mine = [run for run in runs if run["teacher"] == teacher and run.get("shape", shape) == shape]
                lines.append(_line(mine, sets, budget, teacher, shape))
    return "\n".join(lines)


def _line(runs: Sequence[Mapping[str, Any]], sets: Sequence[str], budget: float, teacher: str, shape: str) -> str:
    def mean(plan: str, name: str, what: str = "accuracy") -> float:
        values = [run[what] for run in runs if run["plan"] == plan and run["set"] == name]
        return float(np.mean(values)) if values else float("nan")

    auto = {name: 100 * mean(f"auto {budget:g}", name) for name in sets}
    plans = [f"{k} x {v}" for k, v in FIXED if cost_of(k, v, shape) <= budget + 1e-12]
    best = {name: max((100 * mean(plan, name) for plan in plans), default=float("nan")) for name in sets}
    one = max(plans, key=lambda plan: np.mean([mean(plan, name) for name in sets]), default="none")
    of_one = 100 * np.mean([mean(one, name) for name in sets]) if plans else float("nan")
    default = f"{DEFAULT[0]} x {DEFAULT[1]}"
    is_affordable = cost_of(*DEFAULT, shape) <= budget
    of_default = f"{100 * np.mean([mean(default, name) for name in sets]):.1f}" if is_affordable else "-"
    worst = min(sets, key=lambda name: auto[name] - best[name])
    spent = np.mean([mean(f"auto {budget:g}", name, "label_usd") for name in sets])
    return (
        f"| ${budget:g}, {teacher} | {np.mean(list(auto.values())):.1f} | {np.mean(list(best.values())):.1f} | "
        f"{of_one:.1f} ({one}) | {of_default} | {auto[worst] - best[worst]:+.1f} ({worst}) | ${spent:.4f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=list(DEVELOPMENT))
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--budgets", type=float, nargs="+", default=[0.006, 0.02, 0.06, 0.2])
    parser.add_argument("--teachers", nargs="+", default=list(TEACHERS))
    parser.add_argument("--point", type=float, default=1.0, help="what a point of accuracy is worth, in dollars")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path, nargs="+")
    args = parser.parse_args()
    if args.table:
        print(table(json.loads(line) for file in args.table for line in file.read_text().splitlines()))
        return
    runs = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out and args.out.exists() else []
    done = {(run["set"], run["seed"], run["teacher"]) for run in runs}
    for data in read_sets(args.sets):
        known = difficulty(data)
        for seed in range(1, args.seeds + 1):
            runs += _of_seed(data, known, seed, args, done)
        print(f"{data.name} is done", file=sys.stderr)
    print(table(runs))


def _of_seed(
    data: LabelSet, known: Difficulty, seed: int, args: argparse.Namespace, done: set[tuple[str, int, str]]
) -> list[dict[str, Any]]:
    pool, new = Pool(data, seed), []
    for teacher in args.teachers:
        if (data.name, seed, teacher) in done:
            continue
        mine = list(runs_of(Case(pool=pool, known=known, teacher=teacher, seed=seed), args.budgets, args.point))
        new += mine
        if args.out:
            with args.out.open("a") as file:
                file.writelines(json.dumps(run) + "\n" for run in mine)
    return new


if __name__ == "__main__":
    main()
