"""Would a part of the pairs have trained a better student than all of them, and does cross-validation know it?

    python -m tests.bench.label.cuts [--sets NAME ...] [--seeds N] [--teachers NAME ...] [--k N] [--rounds] [--out FILE]
    python -m tests.bench.label.cuts --table FILE

K captures of a pool of 1,000, drawn at random or (--rounds) chosen in rounds by right labels, are asked about once, and
again where a fixed plan asks again; those whose label is trusted are the pairs. Each cut is compared as a compile
compares it (`compare_cuts`), and is fitted on its pairs: a logistic regression (C = 10) on the frozen embeddings, right
on what share of the published test texts, each label weighing what it has of the pool (the published sides of BANKING77
have other shares). Teachers: `simulated_teachers`, with their rate of errors.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from backend.domain.labeling.beliefs import Beliefs, weigh_votes
from backend.domain.labeling.cuts import Cut, Pairs, compare_cuts, cut_weights
from backend.domain.labeling.folds import fold_of
from backend.domain.labeling.linear_head import Floats, Ints, fit_linear_head
from backend.domain.labeling.votes_again import changed_votes, rows_asked_again, unsure_rows
from tests.bench.label.choosing import Pool, at_random, in_rounds
from tests.bench.label.plans import MIN_AGREEMENT, TEACHERS, Case
from tests.bench.label.sets import DEVELOPMENT, read_sets
from tests.bench.label.simulated_teachers import difficulty

Runs = Sequence[Mapping[str, Any]]
BOUNDS = (0.0, 1.0, 1.645, 2.0, 3.0)  # standard errors that a cut must gain, of the rules that the table compares


def votes_on(case: Case, rows: Ints, folds: Ints) -> tuple[Beliefs, int]:
    """What one answer about each row amounts to, with those that a fixed plan adds; and how many answers there are."""
    teacher, n_rounds, n_again = case.ask(), 0, 0
    votes = np.zeros((len(rows), case.pool.n_labels))
    again = np.arange(len(rows))
    while True:
        np.add.at(votes, (again, teacher.ask(rows[again])), 1)
        beliefs = weigh_votes(case.pool.rows[rows], votes, folds, is_gold=np.zeros(len(rows), dtype=np.bool_))
        unsure = unsure_rows(votes, beliefs.believed, beliefs.predicted, most=5)
        n = rows_asked_again(
            n_unsure=len(unsure),
            n_calls=int(votes.sum()),
            n_calls_again=n_again,
            n_further=n_again,
            n_changed=changed_votes(votes),
            n_vote_rounds=n_rounds,
            repeat=beliefs.noise.repeat,
        )
        if n == 0:
            return beliefs, int(votes.sum())
        again, n_again, n_rounds = unsure[:n], n_again + n, n_rounds + 1


def pairs_of(case: Case, k: int, *, is_in_rounds: bool) -> tuple[Pairs, dict[str, Any]]:
    """The pairs of a compile, and what is known of them."""
    pool = case.pool.for_rounds()
    rows = np.sort(in_rounds(case.pool, k)) if is_in_rounds else at_random(case.pool, k)
    folds = fold_of(pool.keys, pool.groups)[rows]
    beliefs, n_votes = votes_on(case, rows, folds)
    is_trusted = beliefs.believed.max(axis=1) >= MIN_AGREEMENT
    soft = np.where(beliefs.believed >= 0.02, beliefs.believed, 0.0)[is_trusted]
    pairs = Pairs(
        rows=case.pool.rows[rows[is_trusted]],
        targets=soft / soft.sum(axis=1, keepdims=True),
        folds=folds[is_trusted],
        weights=np.ones(len(soft)),
        is_gold=np.zeros(len(soft), dtype=np.bool_),
    )
    right = soft.argmax(axis=1) == case.pool.labels[rows[is_trusted]]
    return pairs, {"n_pairs": len(soft), "n_votes": n_votes, "labels_right": float(right.mean())}


def run_of(case: Case, k: int, *, is_in_rounds: bool) -> dict[str, Any]:
    pairs, about = pairs_of(case, k, is_in_rounds=is_in_rounds)
    results, weights = compare_cuts(pairs), cut_weights(pairs)
    cuts = {
        str(result.cut): {
            "accuracy": result.accuracy,
            "gain": result.gain,
            "se": result.standard_error,
            "is_chosen": result.is_chosen,
            "test": test_accuracy(case, pairs, weights[result.cut]),
        }
        for result in results
    }
    return {"set": case.pool.data.name, "seed": case.seed, "teacher": case.teacher} | about | {"cuts": cuts}


def test_accuracy(case: Case, pairs: Pairs, weights: Floats) -> float:
    head, data = fit_linear_head(pairs.rows, pairs.targets, weights=weights), case.pool.data
    truth = data.labels[data.test]
    right = head.logits(data.rows[data.test]).argmax(axis=1) == truth
    shares = np.bincount(case.pool.labels, minlength=case.pool.n_labels) / len(case.pool.labels)
    of_row = shares[truth] / np.bincount(truth, minlength=case.pool.n_labels)[truth]
    return float(right @ of_row / of_row.sum())


def chosen_with(cuts: Mapping[str, Mapping[str, Any]], bound: float) -> str:
    """The cut that gains most among those above `bound` standard errors, else all pairs."""
    good = [cut for cut, one in cuts.items() if one["gain"] > max(bound * one["se"], 1e-12)]
    return max(good, key=lambda cut: float(cuts[cut]["gain"]), default=str(Cut.ALL))


def table(runs: Runs) -> str:
    """Points of accuracy on the test texts over all pairs: each cut by set and teacher, then each rule over all."""
    cuts = [str(cut) for cut in Cut if cut is not Cut.ALL]
    names = ["chosen", *cuts]
    lines = ["| set, teacher | pairs | right | all | " + " | ".join(names) + " |", "|---" * (4 + len(names)) + "|"]
    for name, teacher in dict.fromkeys((run["set"], run["teacher"]) for run in runs):
        lines.append(_line(name, teacher, [run for run in runs if (run["set"], run["teacher"]) == (name, teacher)]))
    lines.append(_line("mean", "all", runs))
    lines += ["", "| rule: gains over | taken | better | worse | mean | worst run |", "|---" * 6 + "|"]
    for bound in BOUNDS:
        gains = np.array([_gain(run, chosen_with(run["cuts"], bound)) for run in runs])
        n = sum(chosen_with(run["cuts"], bound) != Cut.ALL for run in runs)
        error = gains.std(ddof=1) / np.sqrt(len(gains)) if len(gains) > 1 else float("nan")
        better, worse = int((gains > 0).sum()), int((gains < 0).sum())
        mean = f"{gains.mean():+.2f} ± {error:.2f}"
        lines.append(f"| {bound:g} SE | {n} of {len(runs)} | {better} | {worse} | {mean} | {gains.min():+.1f} |")
    return "\n".join(lines)


def _line(name: str, teacher: str, runs: Runs) -> str:
    cuts = [str(cut) for cut in Cut if cut is not Cut.ALL]
    of_rule = [_gain(run, next(cut for cut, one in run["cuts"].items() if one["is_chosen"])) for run in runs]
    gains = [of_rule, *([_gain(run, cut) for run in runs] for cut in cuts)]
    cells = " | ".join(f"{np.mean(one):+.1f}" for one in gains)
    pairs, right, reached = (
        float(np.mean(values))
        for values in zip(
            *((run["n_pairs"], run["labels_right"], run["cuts"]["all"]["test"]) for run in runs), strict=True
        )
    )
    return f"| {name}, {teacher} | {pairs:.0f} | {100 * right:.1f} | {100 * reached:.1f} | {cells} |"


def _gain(run: Mapping[str, Any], cut: str) -> float:
    return 100 * float(run["cuts"][cut]["test"] - run["cuts"]["all"]["test"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=list(DEVELOPMENT))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--teachers", nargs="+", default=list(TEACHERS))
    parser.add_argument("--k", type=int, default=334)
    parser.add_argument("--rounds", action="store_true", help="the captures are chosen in rounds")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path)
    args = parser.parse_args()
    if args.table:
        print(table([json.loads(line) for line in args.table.read_text().splitlines()]))
        return
    runs = []
    for data in read_sets(args.sets):
        known = difficulty(data)
        for seed in range(1, args.seeds + 1):
            pool = Pool(data, seed)
            for teacher in args.teachers:
                case = Case(pool=pool, known=known, teacher=teacher, seed=seed)
                runs.append(run_of(case, args.k, is_in_rounds=args.rounds))
                if args.out:
                    with args.out.open("a") as file:
                        file.write(json.dumps(runs[-1]) + "\n")
        print(f"{data.name} is done", file=sys.stderr)
    print(table(runs))


if __name__ == "__main__":
    main()
