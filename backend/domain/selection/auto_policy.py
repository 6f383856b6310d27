"""The method that `auto` takes, from what the pool itself shows.

    all candidates fit into K    top_k: the order is all that is left to choose.
    rows that people sent        representative: they look like what the student will get. A score sets aside what the
                                 floor says, and ranks nothing.
    labels given that are        diverse, by scores that the labels' consistency corrects: the candidates whose label
    classes, to 20,000 rows      the rest of the pool contradicts go below all others, 1.2 times the estimated number of
                                 wrong labels, and a floor drops them; milder doubts lower a score. Not so where the
                                 score already says what the labels' consistency says, or where so few different
                                 candidates are behind it that one mistaken doubt costs a large part of the pool.
    else, scores that differ     dpp; diverse where scores have few values (of 100 programs with a pass or fail it kept
                                 as many different right ones as dpp and up to 13 points more of right ones), and above
                                 5,000 rows, where dpp takes longer than anything else.
    else                         representative: nothing but the rows is known. k_center, which stood here until
                                 November 2026, picks outliers.

The rules and their figures: docs/decisions/0009-selection-defaults.md, of traffic 0036-traffic-and-pairs.md. Nothing
here is random, and rows are in canonical order, so the choice does not depend on the order in which candidates came.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from backend.domain.number_words import percent
from backend.domain.selection.label_consistency import LabelEvidence, label_evidence, z_scores
from backend.domain.selection.linkage.clustering import Floats, Rows
from backend.domain.selection.options import Method, Options

MAX_ROWS_OF_EVIDENCE = 20_000  # it costs one linkage more; 0.9 s of CPU at 5,000 rows
MIN_ROWS_OF_EVIDENCE = 20
MIN_ROWS_PER_LABEL = 3.0  # on average; with fewer, labels are texts rather than classes
SET_ASIDE_PER_WRONG_LABEL = 1.2
DOUBT_WEIGHT = 0.7  # of mild doubts against the score, both in standard deviations, in a noisy pool
NOISY = 0.15  # share of wrong labels from which doubts have that weight; in proportion below
SCORE_SUFFICES = 0.45  # correlation of score and consistency from which the consistency only took coverage away
SCORE_HELPS = 0.15  # ... below which it is better than the score even in a collapsed pool
COLLAPSED = 0.3  # groups of near-duplicates for each candidate
MAX_ROWS_OF_DPP = 5_000
FEW_VALUES = 0.1  # different scores for each candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoChoice:
    """The scores and the method to select with. `scores` (n,) float64, in the order of the rows; `reason` is one
    sentence for the receipt. `is_by_labels`: the labels' consistency was used."""

    method: Method
    score_floor: float
    diversity_lambda: float
    scores: Floats
    reason: str
    is_by_labels: bool = False


def choose(rows: Rows, scores: Floats, k: int, *, labels: Sequence[str] | None, options: Options) -> AutoChoice:
    """The method, floor, lambda and scores for `(n, d)` unit or zero rows in canonical order, n, k >= 0. Lambda stays
    as asked for: it means the same in every method here."""

    def choice(method: Method, reason: str, ranks: Floats = scores, floor: float = 0.0) -> AutoChoice:
        weight = options.diversity_lambda
        return AutoChoice(method=method, score_floor=floor, diversity_lambda=weight, scores=ranks, reason=reason)

    n = len(rows)
    if k == 0 or k >= n:
        return choice(Method.TOP_K, f"K is {k} of {n} candidates: there was nothing to choose between.")
    if options.is_traffic:
        return choice(Method.REPRESENTATIVE, "The rows are traffic: those that stand for most of it were kept.")
    why_score = "no labels tell more"
    if labels is not None and _are_classes(labels):
        evidence = label_evidence(rows, scores, labels)
        why_score = _why_score_alone(evidence, n)
        if not why_score:
            n_aside = min(int(SET_ASIDE_PER_WRONG_LABEL * evidence.noise * n), n - k)
            reason = _reason(evidence, n_aside)
            by_scores = choice(Method.DIVERSE, reason, _correct(scores, evidence, n_aside), n_aside / n)
            return replace(by_scores, is_by_labels=True)
    if scores.min() == scores.max():
        reason = "All scores are equal and no labels tell more: the rows that stand for most others were kept."
        return choice(Method.REPRESENTATIVE, reason)
    is_fine = len(np.unique(scores)) >= FEW_VALUES * n
    method = Method.DPP if is_fine and n <= MAX_ROWS_OF_DPP else Method.DIVERSE
    return choice(method, f"Scores differ and {why_score}: score and spread counted.")


def _are_classes(labels: Sequence[str]) -> bool:
    n, n_labels = len(labels), len(set(labels))
    return MIN_ROWS_OF_EVIDENCE <= n <= MAX_ROWS_OF_EVIDENCE and 2 <= n_labels <= n / MIN_ROWS_PER_LABEL


def _why_score_alone(evidence: LabelEvidence, n: int) -> str:
    """Return why the labels' consistency is not used; empty where it is."""
    if evidence.agreement >= SCORE_SUFFICES:
        return "agree with how well the pool bears the labels out"
    if evidence.agreement >= SCORE_HELPS and evidence.n_groups < COLLAPSED * n:
        return f"only {evidence.n_groups} groups of candidates could bear the labels out"
    return ""


def _reason(evidence: LabelEvidence, n_aside: int) -> str:
    if n_aside == 0:
        return "The rest of the pool bears the labels out: candidates were kept by score and spread."
    noise = percent(round(evidence.noise * 1_000_000))
    return (
        f"About {noise} of the labels are contradicted by the rest of the pool: the {n_aside} most "
        "doubtful candidates were set aside, and the others kept by score, doubt and spread."
    )


def _correct(scores: Floats, evidence: LabelEvidence, n_aside: int) -> Floats:
    """Scores in standard deviations, less mild doubts, and the most doubtful below all others. Doubts below the median
    count alike: ranking by certainty would keep what is typical and drop what is rare (it cost up to 20 points on clean
    pools)."""
    doubts = z_scores(np.maximum(evidence.doubt, np.median(evidence.doubt)))
    ranks = z_scores(scores) - DOUBT_WEIGHT * min(1.0, evidence.noise / NOISY) * doubts
    aside = np.argsort(-evidence.doubt, kind="stable")[:n_aside]
    ranks[aside] = ranks.min() - 1.0 - np.arange(n_aside, 0, -1) / len(scores)
    return np.asarray(ranks)
