"""What ranks a candidate where a spec names no verifier: measured on real texts, for docs/rewards.md.

    python -m tests.bench.default_verifier --train banking77/train.csv --test banking77/test.csv

Each intent is a slice with a pool of N texts of its own, or with a share of them from the three nearest intents, as a
teacher writes that misses its slice. `auto` keeps K = N/3 by each score; a logistic regression on the picks and the
gold, with their true labels as a teacher would give them afterwards, is tested on held-out texts. A student learns from
vectors here, not by training an adapter, and no teacher's log-prob is among the scores.
"""

import argparse
import csv
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from backend.domain.selection.select import select
from tests.bench.minilm import minilm

N_INTENTS, N, N_GOLD, N_TEST, DRAWS = 40, 12, 1, 15, 5
SCORES = ("random", "none", "nearness", "margin", "margin_below_0", "margin_to_median")
Texts = dict[str, list[str]]


def main() -> None:
    """Print a line for each score and share of texts from other intents."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--test", type=Path, required=True)
    args = parser.parse_args()
    train, test = read(args.train), read(args.test)
    names = sorted(random.Random(1).sample(sorted(train), N_INTENTS))
    embedder = minilm()
    rng = random.Random(1)
    pools = [embedder.embed(rng.sample(train[name], min(34, len(train[name])))) for name in names]
    asked = [embedder.embed(rng.sample(test[name], N_TEST)) for name in names]
    for missed in (0.0, 0.25):
        figures = [draw(pools, asked, missed, seed) for seed in range(DRAWS)]
        for score in SCORES:
            rows = np.array([one[score] for one in figures])
            error = rows[:, 0].std() / DRAWS**0.5
            print(f"{missed:.2f} {score:17s} accuracy {rows[:, 0].mean():.4f} +- {error:.4f}", end=" ")
            print(f"picks of another intent {rows[:, 1].mean():.3f}", flush=True)


def read(path: Path) -> Texts:
    by_label: Texts = defaultdict(list)
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            by_label[row["category"]].append(row["text"])
    return by_label


def draw(pools: list[Any], asked: list[Any], missed: float, seed: int) -> dict[str, tuple[float, float]]:
    """{score: (accuracy, share of the picks that are of another intent)} of one draw of gold and pools."""
    rng = random.Random(seed)
    rows = [pool[rng.sample(range(len(pool)), len(pool))] for pool in pools]
    gold = [own[:N_GOLD] for own in rows]
    n_missed = round(missed * N)
    centres = np.array([own.mean(axis=0) / np.linalg.norm(own.mean(axis=0)) for own in rows])
    near = np.argsort(-(centres @ centres.T), axis=1)[:, 1:4]
    picked: dict[str, list[tuple[Any, int]]] = {score: [] for score in SCORES}
    n_other = dict.fromkeys(SCORES, 0)
    for intent, own in enumerate(rows):
        others = [int(rng.choice(near[intent].tolist())) for _ in range(n_missed)]
        pool = [(row, intent) for row in own[N_GOLD : N_GOLD + N - n_missed]]
        pool += [(rows[other][-1 - i], other) for i, other in enumerate(others)]
        vectors = np.array([row for row, _ in pool])
        for score, values in scores_of(vectors, gold, intent).items():
            method = "random" if score == "random" else "auto"
            kept = select(vectors, values.tolist(), [str(i) for i in range(N)], k=-(-N // 3), method=method, seed=seed)
            picked[score] += [pool[i] for i in kept.picks]
            n_other[score] += sum(pool[i][1] != intent for i in kept.picks)
    known = [(row, intent) for intent, own in enumerate(gold) for row in own]
    return {score: (accuracy([*picked[score], *known], asked), n_other[score] / len(picked[score])) for score in SCORES}


def scores_of(vectors: Any, gold: list[Any], intent: int) -> dict[str, Any]:
    nearest = np.array([(vectors @ own.T).mean(axis=1) for own in gold])
    margin = nearest[intent] - np.delete(nearest, intent, axis=0).max(axis=0)
    likely = 1 / (1 + np.exp(-margin / 0.1))
    return {
        "random": np.zeros(len(vectors)),
        "none": np.zeros(len(vectors)),
        "nearness": nearest[intent],
        "margin": likely,
        "margin_below_0": np.minimum(1.0, 2 / (1 + np.exp(-margin / 0.05))),
        "margin_to_median": np.minimum(likely, np.median(likely)),
    }


def accuracy(pairs: list[tuple[Any, int]], asked: list[Any]) -> float:
    rows, labels = np.array([row for row, _ in pairs]), [label for _, label in pairs]
    model = LogisticRegression(C=20, max_iter=100).fit(rows, labels)
    wanted = np.repeat(np.arange(len(asked)), [len(own) for own in asked])
    return float(model.score(np.concatenate(asked), wanted))


if __name__ == "__main__":
    main()
