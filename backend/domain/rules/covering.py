"""A decision list by sequential covering: the proposal that is surest of its answer becomes a rule, the texts that it
answers leave, and what is left is asked again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Z = 1.645  # of the Wilson bound by which proposals are compared


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """`rows`: the texts that a rule would answer, ascending; `rights`: on which of them it would be right."""

    rows: Ints
    rights: Bools


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A proposal (its index) that became a rule: how many of the texts left it covered, and rightly; `bound_ppm` of
    that precision."""

    at: int
    covered: int
    right: int
    bound_ppm: int


def lower_bounds(right: Ints, covered: Ints) -> Floats:
    """Wilson's lower bound; 0 where nothing is covered."""
    n = np.maximum(covered, 1).astype(np.float64)
    p = right / n
    bound = (p + Z * Z / (2 * n) - Z * np.sqrt(p * (1 - p) / n + Z * Z / (4 * n * n))) / (1 + Z * Z / n)
    return np.where(covered > 0, bound, 0.0)


def cover(proposals: Sequence[Proposal], n_texts: int, *, max_rules: int, min_right: int, floor: float) -> list[Taken]:
    """Cover until no proposal that is right on `min_right` of the texts left has a bound of `floor`. Equal bounds go to
    the earlier proposal. O(all rows) and one pass over the proposals a rule."""
    if not proposals:
        return []
    covered = np.array([len(p.rows) for p in proposals], dtype=np.int64)
    right = np.array([int(p.rights.sum()) for p in proposals], dtype=np.int64)
    met = _ByText(proposals, n_texts)
    is_left = np.ones(n_texts, dtype=bool)
    taken: list[Taken] = []
    while len(taken) < max_rules:
        bounds = np.round(np.where(right >= min_right, lower_bounds(right, covered), 0.0), 6)
        at = int(np.argmax(bounds))
        if bounds[at] < floor or right[at] < min_right:
            break
        bound_ppm = round(float(bounds[at]) * 1_000_000)
        taken.append(Taken(at=at, covered=int(covered[at]), right=int(right[at]), bound_ppm=bound_ppm))
        rows = proposals[at].rows
        gone = rows[is_left[rows]]
        is_left[gone] = False
        which, rights = met.of(gone)
        covered -= np.bincount(which, minlength=len(covered))
        right -= np.bincount(which[rights], minlength=len(right))
    return taken


def without(proposals: Sequence[Proposal], gone: Ints) -> list[Proposal]:
    """The proposals where these texts are answered already."""
    kept = [np.isin(p.rows, gone, assume_unique=True, invert=True) for p in proposals]
    return [Proposal(rows=p.rows[k], rights=p.rights[k]) for p, k in zip(proposals, kept, strict=True)]


class _ByText:
    """The proposals that would answer each text, and whether rightly."""

    def __init__(self, proposals: Sequence[Proposal], n_texts: int) -> None:
        texts = np.concatenate([p.rows for p in proposals])
        which = np.repeat(np.arange(len(proposals)), [len(p.rows) for p in proposals])
        order = np.argsort(texts, kind="stable")
        self._which = which[order]
        self._rights = np.concatenate([p.rights for p in proposals])[order]
        self._starts = np.searchsorted(texts[order], np.arange(n_texts + 1))

    def of(self, texts: Ints) -> tuple[Ints, Bools]:
        spans = [slice(self._starts[at], self._starts[at + 1]) for at in texts.tolist()]
        which = np.concatenate([np.empty(0, np.int64), *(self._which[span] for span in spans)])
        rights = np.concatenate([np.empty(0, np.bool_), *(self._rights[span] for span in spans)])
        return which, rights
