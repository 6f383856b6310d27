"""All pairs of a label task, or a part of them that a student learns more from: cross-validated on the pairs
themselves, by heads on their embeddings (`backend.domain.labeling.cuts`), and each figure a fact of the receipt."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from backend.compiles.models import Candidate
from backend.domain.labeling.cuts import Cut, CutResult, Pairs, compare_cuts, cut_weights
from backend.domain.labeling.folds import fold_of
from backend.domain.labeling.linear_head import Floats
from backend.domain.labeling.rounds import RoundPool
from backend.domain.spec.parsing import LabelOutput, label_names
from workers.candidates.ranking import stack
from workers.step.durable import CompileRun
from workers.step.embedders import embedder_of
from workers.training.training_set import TrainingSet

PPM = 1_000_000
LEAST_COMPARED = 40  # pairs, below which a standard error is several points: not measured
MOST_COMPARED = 2_000  # pairs; a comparison is some 50 fits, and a half's linkage grows with their square
_WORDS = {
    Cut.CLASS_WEIGHTS: "pairs of rare labels weigh more",
    Cut.HALF: "half of the pairs train",
}


def cut_pairs(run: CompileRun, labeled: Sequence[Candidate], made: TrainingSet) -> TrainingSet:
    """Compare the cuts, and keep of the pairs what the chosen one keeps; all where the spec names how many train, where
    there are too few pairs or too many, or for another kind of output."""
    n, is_all = len(made.rows), run.spec.sampling.k_distill is None
    if not is_all or not isinstance(run.spec.output, LabelOutput) or not LEAST_COMPARED <= n <= MOST_COMPARED:
        return made
    pairs = _pairs(run, labeled, made.rows)
    results = compare_cuts(pairs)
    chosen = next(result.cut for result in results if result.is_chosen)
    kept = made.rows if chosen is Cut.ALL else _kept(made.rows, cut_weights(pairs)[chosen])
    is_declared = made.balanced is not None  # the spec says what labels weigh
    if {row["label"] for row in kept} != {row["label"] for row in made.rows} or (
        chosen is Cut.CLASS_WEIGHTS and is_declared
    ):
        chosen, kept = Cut.ALL, made.rows
    return replace(made, rows=kept, cuts=[_facts(result, chosen) for result in results])


def cut_message(cuts: Sequence[dict[str, Any]]) -> str:
    """Say what was made of the pairs, "" where all train as they are.

    >>> figures = {"gain_ppm": 0, "se_ppm": 0}
    >>> cut_message([
    ...     {"name": "all", "n": 200, "accuracy_ppm": 790_000, "chosen": False, **figures},
    ...     {"name": "without_10", "n": 180, "accuracy_ppm": 815_000, "chosen": True, **figures},
    ... ])
    '20 pairs that the others contradict most are left out; cross-validated 81.5 % instead of 79.0 %'
    """
    before, after = cuts[0], next(one for one in cuts if one["chosen"])
    if after["name"] == Cut.ALL:
        return ""
    default = f"{before['n'] - after['n']} pairs that the others contradict most are left out"
    what = _WORDS.get(Cut(after["name"]), default)
    shown = [f"{one['accuracy_ppm'] / 10_000:.1f} %" for one in (after, before)]
    return f"{what}; cross-validated {shown[0]} instead of {shown[1]}"


def _pairs(run: CompileRun, labeled: Sequence[Candidate], rows: Sequence[dict[str, Any]]) -> Pairs:
    """The pairs in the embedder's space; what no candidate is, is gold."""
    vectors = {row.text: row.embedding for row in labeled}
    texts, names = [row["input"] for row in rows], label_names(run.spec)
    is_gold = np.array([text not in vectors for text in texts])
    gold = iter(embedder_of(run).embed([text for text in texts if text not in vectors]) if is_gold.any() else ())
    known = iter(stack([vectors[text] for text in texts if text in vectors]))
    points = np.array([next(gold if is_one else known) for is_one in is_gold.tolist()], dtype=np.float64)
    pool = RoundPool.of(points, texts)
    targets = np.zeros((len(rows), len(names)))
    for i, row in enumerate(rows):
        for label, ppm in row.get("targets", {row["label"]: PPM}).items():
            targets[i, names.index(label)] = ppm / PPM
    return Pairs(
        rows=points,
        targets=targets,
        folds=fold_of(texts, pool.groups),
        weights=np.array([float(row["weight"]) for row in rows]),
        is_gold=is_gold,
    )


def _kept(rows: Sequence[dict[str, Any]], weights: Floats) -> list[dict[str, Any]]:
    return [row | {"weight": round(weight, 6)} for row, weight in zip(rows, weights.tolist(), strict=True) if weight]


def _facts(result: CutResult, chosen: Cut) -> dict[str, Any]:
    return {
        "name": result.cut.value,
        "n": result.n_kept,
        "accuracy_ppm": round(result.accuracy * PPM),
        "gain_ppm": round(result.gain * PPM),
        "se_ppm": round(result.standard_error * PPM),
        "chosen": result.cut is chosen,
    }
