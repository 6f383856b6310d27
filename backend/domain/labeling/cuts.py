"""The parts of its pairs that a compile may learn more from than from all, by cross-validation on the pairs themselves.

The pairs whose label the other pairs contradict most are left out (confident learning: Northcutt, Jiang, Chuang 2021),
labels are weighed, or half of the pairs is chosen for spread. What a cut leaves out of a training side is decided on
that side alone: a fold that the cut is measured on says nothing about it.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from backend.domain.labeling.folds import cross_predict
from backend.domain.labeling.linear_head import Flags, Floats, Ints, fit_linear_head
from backend.domain.selection.linkage import clustering

STUDENT_C = 10.0  # of the heads that are compared: that of the student
JUDGE_C = 1.0  # of the heads that contradict
LEAST_GAIN = 1.0  # standard errors by which a cut must be better than all pairs (Breiman et al. 1984)
MOST_OF_A_LABEL = 0.5  # of a label's pairs that a cut may leave out
GREATEST_WEIGHT = 4.0  # of a pair of a rare label


class Cut(StrEnum):
    ALL = "all"
    WITHOUT_5 = "without_5"  # per cent, those contradicted most
    WITHOUT_10 = "without_10"
    WITHOUT_20 = "without_20"
    CLASS_WEIGHTS = "class_weights"
    HALF = "half"


WITHOUT = {Cut.WITHOUT_5: 0.05, Cut.WITHOUT_10: 0.1, Cut.WITHOUT_20: 0.2}


@dataclass(frozen=True, slots=True, kw_only=True)
class CutResult:
    """`accuracy` out of fold, in [0, 1], by the pairs' own targets; `gain` over all pairs with its standard error;
    `n_kept` how many of all pairs the cut keeps. One of them is chosen."""

    cut: Cut
    accuracy: float
    gain: float
    standard_error: float
    n_kept: int
    is_chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """`rows` (n, d) unit rows, `targets` (n, L) and `folds` (n,) as of `cross_predict`; `weights` (n,), at least 0;
    `is_gold` (n,) pairs that no cut leaves out; `shares` (L,) of the labels in the traffic, equal where None."""

    rows: Floats
    targets: Floats
    folds: Ints
    weights: Floats
    is_gold: Flags
    shares: Floats | None = None

    def part(self, at: Flags | Ints) -> "Pairs":
        return Pairs(
            rows=self.rows[at],
            targets=self.targets[at],
            folds=self.folds[at],
            weights=self.weights[at],
            is_gold=self.is_gold[at],
            shares=self.shares,
        )


def compare_cuts(pairs: Pairs) -> tuple[CutResult, ...]:
    """Return how each cut does out of fold, all pairs first. The best is chosen if it gains more than LEAST_GAIN
    standard errors, else all pairs. About 50 fits for five folds."""
    right = {cut: np.zeros(len(pairs.rows)) for cut in Cut}
    for fold in np.unique(pairs.folds):
        is_out = pairs.folds == fold
        side = pairs.part(~is_out)
        if side.weights.sum() > 0:
            for cut, weights in cut_weights(side).items():
                head = fit_linear_head(side.rows, side.targets, weights=weights, c=STUDENT_C)
                answers = head.logits(pairs.rows[is_out]).argmax(axis=1)
                right[cut][is_out] = pairs.targets[is_out, answers]
    measured = [_mean(right[cut] - right[Cut.ALL], pairs.weights) for cut in Cut]
    gains = [gain if gain > LEAST_GAIN * error else -1.0 for gain, error in measured]
    chosen = int(np.argmax(gains)) if max(gains, default=-1.0) > 0 else 0
    kept = cut_weights(pairs)
    return tuple(
        CutResult(
            cut=cut,
            accuracy=_mean(right[cut], pairs.weights)[0],
            gain=gain,
            standard_error=error,
            n_kept=int((kept[cut] > 0).sum()),
            is_chosen=i == chosen,
        )
        for i, (cut, (gain, error)) in enumerate(zip(Cut, measured, strict=True))
    )


def cut_weights(pairs: Pairs) -> dict[Cut, Floats]:
    """`(n,)` the weights of the pairs under each cut, 0 for those that it leaves out."""
    support = _support(pairs)
    weights = {Cut.ALL: pairs.weights}
    for cut, share in WITHOUT.items():
        weights[cut] = np.where(_is_least(pairs, support, share), 0.0, pairs.weights)
    weights[Cut.CLASS_WEIGHTS] = pairs.weights * _class_weights(pairs)
    weights[Cut.HALF] = np.where(_is_in_half(pairs, support), pairs.weights, 0.0)
    return weights


def _mean(values: Floats, weights: Floats) -> tuple[float, float]:
    """The weighted mean and its standard error."""
    total = float(weights.sum())
    if total <= 0:
        return 0.0, 0.0
    mean = float(weights @ values) / total
    return mean, float(np.sqrt(weights**2 @ (values - mean) ** 2)) / total


def _support(pairs: Pairs) -> Floats:
    """The out-of-fold probability of each pair's own label, as a multiple of the mean of that label's pairs: rare
    labels are predicted weakly, and all their pairs would look wrong."""
    predicted = cross_predict(pairs.rows, pairs.targets, pairs.folds, weights=pairs.weights, c=JUDGE_C)
    own = (pairs.targets * predicted).sum(axis=1)
    labels = pairs.targets.argmax(axis=1)
    n_rows = np.bincount(labels, minlength=pairs.targets.shape[1])
    means = np.bincount(labels, own, minlength=len(n_rows)) / np.maximum(n_rows, 1)
    return np.asarray(np.round(own / np.maximum(means[labels], 1e-9), 6))


def _is_least(pairs: Pairs, support: Floats, share: float) -> Flags:
    """`(n,)` the share of pairs with the least support, gold apart, and at most MOST_OF_A_LABEL of each label's."""
    labels = pairs.targets.argmax(axis=1)
    left = (MOST_OF_A_LABEL * np.bincount(labels, minlength=pairs.targets.shape[1])).astype(np.int64)
    is_least = np.zeros(len(support), dtype=np.bool_)
    n_left = int(share * len(support))
    for i in np.lexsort((pairs.is_gold, support)).tolist():
        if n_left > 0 and not pairs.is_gold[i] and left[labels[i]] > 0:
            is_least[i] = True
            left[labels[i]] -= 1
            n_left -= 1
    return is_least


def _class_weights(pairs: Pairs) -> Floats:
    """`(n,)` the share that each pair's label should have over the one it has, between 1 / GREATEST_WEIGHT and it."""
    mass = pairs.weights @ pairs.targets
    n_labels = len(mass)
    wanted = np.full(n_labels, 1 / max(1, n_labels)) if pairs.shares is None else pairs.shares
    ratios = wanted * mass.sum() / np.maximum(mass, 1e-9)
    clipped = np.clip(ratios, 1 / GREATEST_WEIGHT, GREATEST_WEIGHT)
    return np.asarray(clipped[pairs.targets.argmax(axis=1)])


def _is_in_half(pairs: Pairs, support: Floats) -> Flags:
    """`(n,)` half of the pairs, rounded up: the best supported of each of as many clusters, and gold."""
    n = len(support)
    clusters = clustering.cut(clustering.average_linkage(pairs.rows), -(-n // 2))
    order = np.lexsort((-support, ~pairs.is_gold))
    is_in = pairs.is_gold.copy()
    is_in[order[np.unique(clusters[order], return_index=True)[1]]] = True
    return is_in
