"""The folds of a calibration: which pairs a fit does not see, so that it can be asked about them."""

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpu_runners.distill.label.dataset import Pair

Ints = NDArray[np.int64]

MOST_FOLDS = 3
ENOUGH_HELD = 150  # pairs that were asked about, after which no further fold is fitted
FEWEST_TEXTS = 2  # of a label, of which one may be held


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """Numbers of the pairs that train and of those that are held, both ascending."""

    trained: Ints
    held: Ints


def folds(pairs: Sequence[Pair], *, share: float, seed: int) -> list[Fold]:
    """Return up to three folds that hold `share` of each label's pairs, every pair at most once, until 150 are held in
    all; none where the share is 0 or no label has two texts.

    Which fold holds a pair is decided by a hash of its text among those of its label: equal texts fall on one side, and
    the order of the pairs does not matter. Every label keeps a pair in every fold's training."""
    if not share:
        return []
    fold_of = _fold_of(pairs, n=max(2, round(1 / share)), seed=seed)
    out: list[Fold] = []
    for fold in range(min(MOST_FOLDS, max(fold_of, default=-1) + 1)):
        held = np.array([i for i, of in enumerate(fold_of) if of == fold], dtype=np.int64)
        out.append(Fold(trained=np.setdiff1d(np.arange(len(pairs)), held), held=held))
        if sum(len(one.held) for one in out) >= ENOUGH_HELD:
            break
    return out


def _fold_of(pairs: Sequence[Pair], *, n: int, seed: int) -> list[int]:
    """The fold that holds each pair, -1 where none does."""
    texts: dict[int, set[str]] = defaultdict(set)
    for pair in pairs:
        texts[pair.label].add(pair.text)
    fold_of: dict[tuple[int, str], int] = {}
    for label, members in texts.items():
        if len(members) >= FEWEST_TEXTS:
            ranked = sorted(members, key=lambda text: (_rank(text, seed), text))
            fold_of |= {(label, text): at % n for at, text in enumerate(ranked)}
    return [fold_of.get((pair.label, pair.text), -1) for pair in pairs]


def _rank(text: str, seed: int) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), key=seed.to_bytes(8, "big", signed=True)).digest()
