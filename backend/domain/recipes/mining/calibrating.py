"""The support that a place needs before its run is to be believed: measured on answers set aside.

Of many runs that agreed three times out of three, some did so by chance, and how many depends on the task: few where
JSON is filled in, many in prose. So runs are made from two thirds of the answers and tried on the rest.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from backend.domain.recipes.mining.corpus import PPM, Corpus, Ints
from backend.domain.recipes.mining.runs import Groups
from backend.domain.recipes.pack import BEGIN

SUPPORTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
LEAST_TOKENS = 100  # drafted on the answers set aside; fewer say nothing


def is_set_aside(corpus: Corpus) -> NDArray[np.bool_]:
    """Every third answer's places."""
    aside: NDArray[np.bool_] = np.cumsum(corpus.tokens == BEGIN) % 3 == 0
    return aside


def least_support(
    corpus: Corpus, levels: Sequence[tuple[Groups, Ints]], *, min_support: int, min_agreement_ppm: int
) -> int:
    """The smallest support, from `min_support` on, at which `min_agreement_ppm` of the tokens that runs draft are
    right on answers set aside. `levels`: groups made without these, and the group of each place of theirs."""
    drafted, accepted = np.zeros(len(SUPPORTS), dtype=np.int64), np.zeros(len(SUPPORTS), dtype=np.int64)
    for groups, of_place in levels:
        places = np.flatnonzero((of_place >= 0) & (of_place < len(groups.lengths)))
        places = places[groups.lengths[of_place[places]] > 0]
        of_run = of_place[places]
        bucket = np.searchsorted(SUPPORTS, groups.support[of_run], side="right") - 1
        np.add.at(drafted, bucket, groups.lengths[of_run])
        np.add.at(accepted, bucket, _following(corpus, places, groups.runs[of_run]))
    for support, tried, right in zip(SUPPORTS, drafted.tolist(), accepted.tolist(), strict=True):
        if support >= min_support and (tried < LEAST_TOKENS or right * PPM >= tried * min_agreement_ppm):
            return support
    return max(min_support, SUPPORTS[-1])


def _following(corpus: Corpus, places: Ints, runs: Ints) -> Ints:
    """Return how many of each place's run come there."""
    follows = np.ones(len(places), dtype=np.bool_)
    n = np.zeros(len(places), dtype=np.int64)
    for depth in range(runs.shape[1]):
        at = np.minimum(places + depth, len(corpus.tokens) - 1)
        follows &= (runs[:, depth] >= 0) & (corpus.tokens[at] == runs[:, depth])
        n += follows
    return n
