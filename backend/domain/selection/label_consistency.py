"""The agreement of each candidate's label with what unrelated candidates of the pool say, and what that tells of labels
and scores. Only the pool's own embeddings, labels and scores are used.

A ridge regression of the labels on the embeddings predicts every candidate from all others but its near-duplicates:
variants of one sentence carry the same mistake and would vouch for each other. On simulated pools of real intents with
17 to 38 % wrong labels this margin told right labels from wrong ones with an AUC of 0.80 to 0.95, the simulated
verifier with 0.76 to 0.86, and both together with 0.85 to 0.95 (docs/decisions/0009).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backend.domain.selection.linkage import clustering
from backend.domain.selection.linkage.clustering import QUANTUM, Floats, Ints, Rows

RIDGE = 1.0  # on unit rows; 0.3 to 3 were within .03 of AUC of each other
TWIN_WEIGHT = 0.5  # of the margin in which twins have their say: it sees single mistakes among variants
CONTRADICTED = -0.2  # margins below it are counted; 1 to 4 % of correct labels, half to nine tenths of the wrong ones
CLEAN_SHARE = 0.03  # of margins below CONTRADICTED in pools without a wrong label
NOISE_PER_CONTRADICTION = 1.5  # so that their count matches the noise of the pools measured
MAX_NOISE = 0.5
MARGIN_CORRELATION = 0.6  # of the margin with being right, measured 0.44 to 0.77


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelEvidence:
    """`doubt` (n,) float64, higher is more likely wrong: margin and score weighed by what each knows, the margin within
    its label, quantised to 1e-6. `noise` is the estimated share of wrong labels, in [0, 0.5]. `agreement` is the
    correlation of score and margin: near 0 where the score knows nothing of the labels."""

    doubt: Floats
    noise: float
    agreement: float
    n_groups: int


def label_evidence(rows: Rows, scores: Floats, labels: Sequence[str]) -> LabelEvidence:
    """`rows` (n, d) unit or zero rows, n >= 2, of at least two different labels. O(n d^2) and one average linkage."""
    targets, which = _one_hot(labels)
    dendrogram = clustering.average_linkage(rows)
    groups = clustering.cut(dendrogram, dendrogram.n_groups())
    apart = _margins(_left_out(rows, targets, groups), which)
    alone = _margins(_left_out(rows, targets, np.arange(len(rows))), which)
    margin = apart + TWIN_WEIGHT * alone
    agreement = correlation(scores, margin)
    contradicted = float(np.mean(np.round(apart, 6) < CONTRADICTED))
    noise = min(MAX_NOISE, max(0.0, NOISE_PER_CONTRADICTION * (contradicted - CLEAN_SHARE)))
    # one cause, being right, behind both: each weighs r / (1 - r^2), and the score's r follows from what they share
    score_knows = min(0.9, max(0.0, agreement / MARGIN_CORRELATION))
    sure = _weight(score_knows) * z_scores(scores) + _weight(MARGIN_CORRELATION) * z_scores(_within(margin, which))
    return LabelEvidence(
        doubt=-np.round(sure / QUANTUM) * QUANTUM, noise=noise, agreement=agreement, n_groups=dendrogram.n_groups()
    )


def z_scores(values: Floats) -> Floats:
    """Mean 0 and standard deviation 1; zeros where all are equal."""
    spread = float(values.std()) if len(values) else 0.0
    return (values - values.mean()) / spread if spread > 0 and np.isfinite(spread) else np.zeros_like(values)


def correlation(first: Floats, second: Floats) -> float:
    """Pearson's; 0 where one of them is constant."""
    return float((z_scores(first) * z_scores(second)).mean()) if len(first) else 0.0


def _weight(r: float) -> float:
    return r / (1 - r * r)


def _one_hot(labels: Sequence[str]) -> tuple[Floats, Ints]:
    """(n, classes) centred, and each row's class."""
    _, which = np.unique(np.asarray(labels), return_inverse=True)
    targets = np.zeros((len(which), int(which.max()) + 1))
    targets[np.arange(len(which)), which] = 1.0
    return targets - targets.mean(axis=0), which.astype(np.int64)


def _left_out(rows: Rows, targets: Floats, groups: Ints) -> Floats:
    """(n, classes): each row's prediction by the ridge regression fitted without its group, by the block form of the
    leave-one-out formula: y - (I - H_gg)^-1 (y - Hy)."""
    centred = rows - rows.mean(axis=0)
    gram = np.asarray(centred.T @ centred, dtype=np.float64) + RIDGE * np.eye(rows.shape[1])
    spread = np.asarray(np.linalg.solve(gram, centred.T.astype(np.float64)).T)  # H = centred @ spread.T
    error = targets - centred @ (spread.T @ targets)
    out = np.empty_like(targets)
    order = np.argsort(groups, kind="stable")
    sizes = np.bincount(groups)
    for members in np.split(order, np.cumsum(sizes)[:-1]):
        if len(members) == 1:
            at = members[0]
            out[at] = targets[at] - error[at] / (1 - centred[at] @ spread[at])
        elif len(members) <= rows.shape[1]:
            block = np.eye(len(members)) - centred[members] @ spread[members].T
            out[members] = targets[members] - np.linalg.solve(block, error[members])
        else:  # a group of more rows than columns: cheaper to fit again without it
            mine = centred[members].astype(np.float64)
            rest = centred.T @ targets - mine.T @ targets[members]
            out[members] = mine @ np.linalg.solve(gram - mine.T @ mine, rest)
    return out


def _margins(predicted: Floats, which: Ints) -> Floats:
    """Return what the given label is predicted with, less the best other label."""
    at = np.arange(len(which))
    own = predicted[at, which]
    others = predicted.copy()
    others[at, which] = -np.inf
    return np.asarray(own - others.max(axis=1))


def _within(margin: Floats, which: Ints) -> Floats:
    """Subtract the median of the label: a rare one is predicted weakly, and all its candidates would look wrong."""
    medians: NDArray[np.float64] = np.array(
        [np.median(margin[which == label]) for label in range(int(which.max()) + 1)]
    )
    return np.asarray(margin - medians[which])
