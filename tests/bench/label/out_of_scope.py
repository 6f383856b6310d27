"""How often is a model unsure of what none of its labels fits? CLINC150's out-of-scope questions, of which it saw none.

    python -m tests.bench.label.out_of_scope [--seeds N] [--k K ...]

The adapter of 30 of the intents, trained on K random rows with right labels, and the threshold that `output.abstain`
chooses on training pairs that the calibration's fits had not seen. Printed for each accuracy that is asked for: the
share of in-scope answers that are sure and the accuracy among them, and the share of out-of-scope questions that are
unsure; beside it the area under the curve of confidence as a detector, and that of cosine to the nearest training row.
"""

import argparse
import json
import sys
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from backend.domain.evaluation.abstaining import choose_threshold
from backend.domain.jobs.runner_jobs import TrainOptions
from tests.bench.banking77_data import data_folder
from tests.bench.label.choosing import Pool
from tests.bench.label.sets import read_sets
from tests.bench.label.students import Test, picks_of, trained_and_asked
from tests.bench.minilm import minilm

Floats = NDArray[np.float64]
ACCURACIES = (0.9, 0.95, 0.98)


def out_of_scope() -> list[str]:
    """The published test questions that belong to none of the 150 intents. Raises FileNotFoundError."""
    data = json.loads((data_folder() / "clinc150" / "data_full.json").read_text("utf-8"))
    return [text for text, _ in data["oos_test"]]


def rows_of(pool: Pool, k: int, outside: list[str]) -> Iterator[str]:
    """A table's rows for one adapter."""
    test, picks = Test(pool), picks_of(pool, "random", k)
    train = TrainOptions(seed=pool.seed)
    result, answered, _ = trained_and_asked(pool, picks, test.names, [*test.texts, *outside], train=train)
    n = len(test.texts)
    right = np.array([a == test.names[b] for a, b in zip(answered.predictions[:n], test.labels, strict=True)])
    sure = answered.confidences
    embedded = np.stack(list(minilm().embed([*test.texts, *outside]))) @ pool.rows[picks].T
    by_confidence, by_distance = _auc(sure, n), _auc(embedded.max(axis=1), n)
    for accuracy in ACCURACIES:
        bound = choose_threshold(result.held_confidences_ppm, result.held_right, accuracy=accuracy).ppm / 1_000_000
        inside, kept = sure[:n] >= bound, sure[:n][right] >= bound
        among = kept.sum() / max(1, inside.sum())
        yield (
            f"| {k} | {pool.seed} | {accuracy:.0%} | {bound:.3f} | {inside.mean():.1%} | {among:.1%} "
            f"| {(sure[n:] < bound).mean():.1%} | {by_confidence:.3f} | {by_distance:.3f} |"
        )


def _auc(scores: Floats, n: int) -> float:
    """Of telling the first n apart from the rest by a higher score."""
    return float(roc_auc_score(np.arange(len(scores)) < n, scores))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--k", type=int, nargs="+", default=[150, 334])
    args = parser.parse_args()
    try:
        outside = out_of_scope()
    except FileNotFoundError as missing:
        sys.exit(f"{missing.filename} is not there: point KOLM_DATA at the data.")
    columns = "K", "seed", "asked for", "threshold", "sure, in scope", "right of those", "unsure, out of scope", "AUC"
    print("| " + " | ".join([*columns, "AUC, cosine"]) + " |\n" + "|---" * 9 + "|")
    for seed in range(1, args.seeds + 1):
        for data in read_sets(["clinc30"]):
            for k in args.k:
                for row in rows_of(Pool(data, seed), k, outside):
                    print(row, flush=True)


if __name__ == "__main__":
    main()
