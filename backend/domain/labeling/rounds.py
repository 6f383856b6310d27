"""The rows that a round of labels asks about: a representative start, then what the student is least sure of.

    start   a random share; then facility location over the groups of near-duplicates, each as heavy as it is large
            (Wei, Iyer, Bilmes 2015): typical rows win while labels are few (Hacohen et al. 2022)
    next    a random share; rows of labels that have few; then those of the least margin (Scheffer et al. 2001) times
            density (Settles & Craven 2008), thinned to different ones by facility location (as Citovsky et al. 2021 do
            by clusters)

The random share comes in one order that the keys and the seed decide: its rows are a sample of the pool whatever the
student thinks, and estimates stand on them.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

import numpy as np

from backend.domain.labeling.linear_head import Flags, Floats, Ints
from backend.domain.labeling.neighbourhoods import densities
from backend.domain.selection.facility_location import facility_location_picks
from backend.domain.selection.linkage import clustering
from backend.domain.selection.linkage.quantised_cosine import STEPS

RANDOM_SHARE = 0.2  # of a round: not measured against other shares
RARE_SHARE = 0.2  # of a round, at most, for labels with few rows
FEW_ROWS = 5  # of a label, below which rows are looked for that may have it
LIKELY = 0.01  # least probability of a label at which a row is worth a look for it
OUTLIER_SHARE = 0.02  # of a pool: the rows of least density come last
SHORT_LIST = 3  # rows on the list of the least sure for each that is kept
MAX_START_GROUPS = 5_000  # that facility location looks at: 100 MB; of more, those of the first rows in random order


class Why(StrEnum):
    START = "start"
    UNCERTAIN = "uncertain"
    RARE = "rare"
    RANDOM = "random"
    LOSING = "losing"  # a candidate that was written later, for a slice that loses
    ASKED_AGAIN = "asked_again"  # another vote on a row that has some


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPool:
    """`rows` (n, d) unit or zero rows; `keys` n different names; `groups` (n,) the near-duplicates' groups, numbered
    from 0; `density` (n,). Nothing depends on the order in which rows came."""

    rows: Floats
    keys: Sequence[str]
    groups: Ints
    density: Floats

    @classmethod
    def of(cls, rows: Floats, keys: Sequence[str]) -> Self:
        """The pool with its groups, by average linkage at the near-duplicate cut, and densities."""
        order = np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.int64)
        groups = np.empty(len(keys), dtype=np.int64)
        dendrogram = clustering.average_linkage(rows[order])
        groups[order] = clustering.cut(dendrogram, dendrogram.n_groups())
        return cls(rows=rows, keys=keys, groups=groups, density=densities(rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class Picks:
    """`rows` (k,) indices into the pool, each once, in order of picking; `why` has one entry for each."""

    rows: Ints
    why: tuple[Why, ...]


def random_order(keys: Sequence[str], seed: int) -> Ints:
    """`(n,)` the rows in an order that only their keys and the seed decide, as good as drawn at random."""
    names = [_rank(key, seed) for key in keys]
    return np.array(sorted(range(len(keys)), key=names.__getitem__), dtype=np.int64)


def _rank(key: str, seed: int) -> tuple[bytes, str]:
    return hashlib.blake2b(f"{seed} {key}".encode("utf-8", "surrogatepass"), digest_size=16).digest(), key


def start_rows(pool: RoundPool, k: int, *, seed: int, near: Ints | None = None) -> Picks:
    """Return the k rows to label first, all of a smaller pool.

    RANDOM_SHARE of them are drawn; `near` (rows near to a label's description) are in, the first k of them; the others
    cover the pool, one row a group while groups are left. The rows of least density come when nothing else is left."""
    draft = _Draft(pool, np.ones(len(pool.keys), dtype=np.bool_), seed)
    k = min(max(k, 0), len(pool.keys))
    wanted = [] if near is None else list(dict.fromkeys(near.tolist()))[:k]
    draft.take_random(min(round(RANDOM_SHARE * k), k - len(wanted)))
    for row in wanted:
        draft.take(row, Why.START)
    is_outlier = np.zeros(len(pool.keys), dtype=np.bool_)
    last = np.lexsort((draft.rank, pool.density))[: int(OUTLIER_SHARE * len(pool.keys))]
    is_outlier[last] = True
    for is_left in (draft.is_new & ~is_outlier, ~is_outlier, np.ones_like(is_outlier)):
        draft.take_covering(k, is_left)
    return draft.picks()


def next_rows(pool: RoundPool, probabilities: Floats, is_open: Flags, m: int, *, n_by_label: Ints, seed: int) -> Picks:
    """Return the m rows to label next of those that are open, all of fewer.

    `probabilities` (n, L) of the student that has learned from the labels so far; `n_by_label` (L,) how many rows have
    each. RANDOM_SHARE is drawn; at most RARE_SHARE are the rows that most likely have a label of fewer than FEW_ROWS;
    of the SHORT_LIST times as many rows of greatest (1 - margin) * density, facility location keeps as many as are
    left. A near-duplicate of a row that is not open, or of a pick, is taken only when no other is left."""
    draft = _Draft(pool, is_open, seed)
    m = min(max(m, 0), int(is_open.sum()))
    draft.take_random(round(RANDOM_SHARE * m))
    _take_rare(draft, probabilities, n_by_label, min(int(RARE_SHARE * m), m - len(draft.rows)))
    score = np.rint((1 - _margins(probabilities)) * np.maximum(pool.density, 0) * STEPS)
    while len(draft.rows) < m:
        n_missing = m - len(draft.rows)
        listed = draft.best_of_groups(score)[: SHORT_LIST * n_missing]
        for row in _different(pool, listed, draft.rank, n_missing):
            draft.take(row, Why.UNCERTAIN)
    return draft.picks()


def _margins(probabilities: Floats) -> Floats:
    """The greatest probability less the second; 1 where there is one label."""
    if probabilities.shape[1] < 2:
        return np.ones(len(probabilities))
    best = np.partition(probabilities, -2, axis=1)[:, -2:]
    return np.asarray(best[:, 1] - best[:, 0])


def _take_rare(draft: "_Draft", probabilities: Floats, n_by_label: Ints, most: int) -> None:
    """Take rows for the labels that have fewest, in turn, until each has FEW_ROWS or no row is likely to have it."""
    n_rows = n_by_label.tolist()
    rare = [label for label in range(len(n_rows)) if n_rows[label] < FEW_ROWS]
    last = len(draft.rows) + most
    while rare and len(draft.rows) < last:
        label = min(rare, key=lambda label: (n_rows[label], label))
        chance = np.rint(probabilities[:, label] * STEPS)
        listed = draft.best_of_groups(chance)[:1]
        if len(listed) == 0 or chance[listed[0]] < LIKELY * STEPS:
            rare.remove(label)
            continue
        draft.take(int(listed[0]), Why.RARE)
        n_rows[label] += 1
        if n_rows[label] >= FEW_ROWS:
            rare.remove(label)


def _different(pool: RoundPool, listed: Ints, rank: Ints, n: int) -> list[int]:
    listed = listed[np.argsort(rank[listed], kind="stable")]
    kept = facility_location_picks(pool.rows[listed], np.zeros(len(listed)), n, weight=np.inf)
    return [int(row) for row in listed[kept]]


class _Draft:
    """Picks in the making. `rank` (n,) is each row's place in the random order, which decides every tie; `is_new` (n,)
    whether a row may be taken and has no near-duplicate that is taken or not open."""

    def __init__(self, pool: RoundPool, is_open: Flags, seed: int) -> None:
        self._pool = pool
        self._order = random_order(pool.keys, seed)
        self.rank = np.empty(len(pool.keys), dtype=np.int64)
        self.rank[self._order] = np.arange(len(pool.keys))
        self._is_open = is_open.copy()
        self.is_new = is_open & ~np.isin(pool.groups, pool.groups[~is_open])
        self.rows: list[int] = []
        self._why: list[Why] = []

    def take(self, row: int, why: Why) -> None:
        if self._is_open[row]:
            self._is_open[row] = False
            self.is_new[self._pool.groups == self._pool.groups[row]] = False
            self.rows.append(row)
            self._why.append(why)

    def take_random(self, n: int) -> None:
        for may_be_taken in (self.is_new, self._is_open):  # both change as rows are taken
            for row in self._order.tolist():
                if n > 0 and may_be_taken[row]:
                    self.take(row, Why.RANDOM)
                    n -= 1

    def best_of_groups(self, score: Floats) -> Ints:
        """The rows that may be taken, best first: the best of each new group, or every open row where none is new."""
        rows = np.flatnonzero(self.is_new if self.is_new.any() else self._is_open)
        rows = rows[np.lexsort((self.rank[rows], -score[rows]))]
        if not self.is_new.any():
            return rows
        return rows[np.sort(np.unique(self._pool.groups[rows], return_index=True)[1])]

    def take_covering(self, k: int, is_left: Flags) -> None:
        """Take rows until there are k: of those left, the ones that cover the pool best, one a group."""
        while len(self.rows) < k and (is_left & self._is_open).any():
            firsts, sizes, taken = self._representatives(is_left & self._is_open)
            picks = facility_location_picks(
                self._pool.rows[firsts],
                np.zeros(len(firsts)),
                k - len(self.rows),
                weight=np.inf,
                sizes=sizes,
                taken=taken,
            )
            for row in firsts[picks].tolist():
                self.take(row, Why.START)

    def _representatives(self, is_left: Flags) -> tuple[Ints, Ints, Ints]:
        """A row of each group that has rows left, the densest, and the rows that are taken; how many rows each stands
        for; which of them are taken."""
        pool = self._pool
        left = np.flatnonzero(is_left)
        left = left[np.lexsort((self.rank[left], -pool.density[left]))]
        firsts = left[np.unique(pool.groups[left], return_index=True)[1]]
        if len(firsts) > MAX_START_GROUPS:
            firsts = firsts[np.argsort(self.rank[firsts], kind="stable")][:MAX_START_GROUPS]
        sizes = np.bincount(pool.groups[left], minlength=int(pool.groups.max()) + 1)[pool.groups[firsts]]
        taken = np.array(self.rows, dtype=np.int64)
        rows = np.concatenate([firsts, taken])
        counted = np.concatenate([sizes, np.zeros(len(taken), dtype=np.int64)])
        order = np.argsort(self.rank[rows], kind="stable")
        return rows[order], counted[order], np.flatnonzero(np.isin(rows[order], taken))

    def picks(self) -> Picks:
        return Picks(rows=np.array(self.rows, dtype=np.int64), why=tuple(self._why))
