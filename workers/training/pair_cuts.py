"""All pairs of a label task, or a part of them that a student learns more from: cross-validated on the pairs
themselves, by heads on their embeddings (`backend.domain.labeling.cuts`), and each figure a fact of the receipt."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.compiles.models import Candidate
from backend.domain.labeling.cuts import Cut, CutResult, Pairs, compare_cuts, cut_weights
from backend.domain.labeling.folds import fold_of
from backend.domain.labeling.linear_head import Floats
from backend.domain.labeling.rounds import RoundPool
from backend.domain.number_words import percent
from backend.domain.spec.parsing import LabelOutput, Spec, label_names
from workers.candidates.ranking import stack
from workers.training.training_set import TrainingSet

PPM = 1_000_000
Embed = Callable[[list[str]], NDArray[np.float32]]  # texts to unit rows
LEAST_COMPARED = 200  # pairs; the rule was measured on about 300, and a standard error grows as they get fewer
MOST_COMPARED = 2_000  # pairs; a comparison is some 50 fits, and a half's linkage grows with their square
_WORDS = {
    Cut.CLASS_WEIGHTS: "pairs of rare labels weigh more",
    Cut.HALF: "half of the pairs train",
}


def cut_pairs(spec: Spec, labeled: Sequence[Candidate], made: TrainingSet, embed: Embed) -> TrainingSet:
    """Compare the cuts, and keep of the pairs what the chosen one keeps; all where the spec names how many train, where
    there are too few pairs or too many, or for another kind of output. `embed` is the embedder of the candidates."""
    n, is_all = len(made.rows), spec.sampling.k_distill is None
    if not is_all or not isinstance(spec.output, LabelOutput) or not LEAST_COMPARED <= n <= MOST_COMPARED:
        return made
    pairs = _pairs(label_names(spec), labeled, made.rows, embed)
    results = compare_cuts(pairs)
    chosen = next(result.cut for result in results if result.is_chosen)
    kept = made.rows if chosen is Cut.ALL else _weigh(made.rows, cut_weights(pairs)[chosen])
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
    shown = [percent(one["accuracy_ppm"]) for one in (after, before)]
    return f"{what}; cross-validated {shown[0]} instead of {shown[1]}"


def _pairs(names: list[str], labeled: Sequence[Candidate], rows: Sequence[dict[str, Any]], embed: Embed) -> Pairs:
    """The pairs in the embedder's space; what no candidate is, is gold."""
    vectors = {row.text: row.embedding for row in labeled}
    texts = [row["input"] for row in rows]
    is_gold = np.array([text not in vectors for text in texts])
    gold = iter(embed([text for text in texts if text not in vectors]) if is_gold.any() else ())
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


def _weigh(rows: Sequence[dict[str, Any]], weights: Floats) -> list[dict[str, Any]]:
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
