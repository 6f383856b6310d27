"""What to do with labelled pairs that are off the declared shares: train on them as they are, weigh them, or drop some?

    python -m tests.bench.label_shares [DATA] [--seeds N] [--c C] [--rows FILE ...]

Frozen MiniLM and a logistic regression (C = 10; a large C fits every pair, as an adapter does) on n pairs of BANKING77
(20 intents), CLINC150 (30) and SNIPS (7). Shares are equal, or Zipf's with the labels in an order of each seed. Printed
is the accuracy on the published test texts, each label weighted by its share of the traffic, and the two other ways'
mean difference to leaving the pairs as they are, with standard errors over seeds. DATA (default $KOLM_DATA, else
../shared/data) has the three sets; FILE is another one instead, JSON lines {"text", "label", "split": train | test}.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from backend.domain.answers.labels import LabeledPair, balance, share_weights
from tests.bench.banking77_data import data_folder, read_banking77
from tests.bench.selection_quality_texts import TextRows
from tests.bench.snips_data import read_snips

Texts = Mapping[str, Sequence[str]]  # by label
SIZES = (100, 334)
N_OF_A_LABEL = 160  # texts of a label that are embedded


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The order of Zipf's shares of each side, None where they are equal: 1 is the seed's order, -1 its reverse."""

    name: str
    pairs: int | None
    declared: int | None
    traffic: int | None


CASES = (
    Case(name="pairs as traffic, equal shares declared", pairs=1, declared=None, traffic=1),
    Case(name="pairs as traffic, reverse shares declared", pairs=1, declared=-1, traffic=1),
    Case(name="pairs equal, declared as traffic", pairs=None, declared=1, traffic=1),
    Case(name="pairs reversed, declared as traffic", pairs=-1, declared=1, traffic=1),
    Case(name="pairs skewed, traffic equal as declared", pairs=1, declared=None, traffic=None),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Set:
    """Both sides of a data set; rows by label, `(n, 384)` float32 unit rows."""

    name: str
    train: Mapping[str, NDArray[np.float32]]
    test: Mapping[str, NDArray[np.float32]]


def sets(folder: Path) -> Iterator[Set]:
    banking = read_banking77(folder)
    sides = [[(q.text.strip(), q.intent) for q in side] for side in (banking.train, banking.test)]
    yield _set("banking77", *map(_by_label, sides), n_labels=20)
    full = json.loads((folder / "clinc150" / "data_full.json").read_text(encoding="utf-8"))
    yield _set(
        "clinc150", *(_by_label([tuple(pair) for pair in full[side]]) for side in ("train", "test")), n_labels=30
    )
    snips = read_snips(folder)
    sides = [[(u.text, str(u.answer["intent"])) for u in side] for side in (snips.train, snips.validate)]
    yield _set("snips", *map(_by_label, sides), n_labels=7)


def read_set(path: Path) -> Set:
    """A set of JSON lines. Raises FileNotFoundError."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    sides = [
        _by_label([(r["text"], str(r["label"])) for r in rows if r["split"] == side]) for side in ("train", "test")
    ]
    return _set(path.stem, sides[0], sides[1], n_labels=len(sides[0]))


def _by_label(pairs: Sequence[tuple[str, ...]]) -> Texts:
    of: dict[str, list[str]] = {}
    for text, label in pairs:
        of.setdefault(label, []).append(text)
    return of


def _set(name: str, train: Texts, test: Texts, *, n_labels: int) -> Set:
    chosen = sorted(np.random.default_rng(1).permutation(sorted(train))[:n_labels].tolist())
    kept = [{label: side[label][:N_OF_A_LABEL] for label in chosen} for side in (train, test)]
    rows = TextRows(f"shares-{name}")
    rows.embed([text for side in kept for texts in side.values() for text in texts])
    rows.save()
    both = ({label: rows.of(texts) for label, texts in side.items()} for side in kept)
    return Set(name=name, train=next(both), test=next(both))


def shares(labels: Sequence[str], order: int | None, seed: int) -> dict[str, float]:
    if order is None:
        return dict.fromkeys(labels, 1 / len(labels))
    ranks = np.arange(1, len(labels) + 1, dtype=np.float64)[::order]
    drawn = np.random.default_rng([seed, 1]).permutation(np.array(labels)).tolist()
    return dict(zip(drawn, (1 / ranks / (1 / ranks).sum()).tolist(), strict=True))


def accuracies(data: Set, case: Case, n: int, seed: int, c: float) -> dict[str, float]:
    """Of the three ways, with the pairs of one seed."""
    labels, rng = sorted(data.train), np.random.default_rng([seed, n])
    of = shares(labels, case.pairs, seed)
    counts = rng.multinomial(n, [of[label] for label in labels])
    counts = np.clip(counts, 1, [len(data.train[label]) for label in labels])  # no label is left out
    drawn = [
        data.train[label][rng.permutation(len(data.train[label]))[:m]]
        for label, m in zip(labels, counts.tolist(), strict=True)
    ]
    rows, answers = np.concatenate(drawn), np.repeat(labels, counts)
    pairs = [LabeledPair(key=str(i), label=label) for i, label in enumerate(answers.tolist())]
    declared, traffic = (shares(labels, order, seed) for order in (case.declared, case.traffic))
    weights, kept = share_weights(pairs, declared), list(balance(pairs, declared).kept)
    weighed = [weights[label] for label in answers.tolist()]
    return {
        "report": _accuracy(data, traffic, rows, answers, None, c),
        "weight": _accuracy(data, traffic, rows, answers, weighed, c),
        "drop": _accuracy(data, traffic, rows[kept], answers[kept], None, c),
    }


def _accuracy(
    data: Set,
    traffic: Mapping[str, float],
    rows: NDArray[np.float32],
    labels: NDArray[np.str_],
    weights: object,
    c: float,
) -> float:
    head = LogisticRegression(C=c, max_iter=1000).fit(rows, labels, sample_weight=weights)
    return sum(share * float((head.predict(data.test[label]) == label).mean()) for label, share in traffic.items())


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.label_shares", description=__doc__)
    parser.add_argument("data", nargs="?", type=Path, default=data_folder())
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--c", type=float, default=10.0)
    parser.add_argument("--rows", type=Path, nargs="+", default=())
    chosen = parser.parse_args(arguments)
    try:
        every = [read_set(path) for path in chosen.rows] or list(sets(chosen.data))
    except FileNotFoundError as missing:
        print(f"There is no {missing.filename}: give the folder of the data sets, or set KOLM_DATA.")
        return 1
    print("| case | set | n | report | weight | drop |\n|---|---|---|---|---|---|")
    for case in CASES:
        for data in every:
            for n in SIZES:
                runs = [accuracies(data, case, n, seed, chosen.c) for seed in range(chosen.seeds)]
                print(f"| {case.name} | {data.name} | {n} | {_row(runs)} |", flush=True)
    return 0


def _row(runs: Sequence[Mapping[str, float]]) -> str:
    base = 100 * np.array([run["report"] for run in runs])
    others = [100 * np.array([run[name] for run in runs]) - base for name in ("weight", "drop")]
    parts = [f"{delta.mean():+.1f}±{delta.std(ddof=1) / len(runs) ** 0.5:.1f}" for delta in others]
    return " | ".join([f"{base.mean():.1f}", *parts])


if __name__ == "__main__":
    sys.exit(main())
