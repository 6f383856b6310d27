"""The choice of recipes that a pack has room for: the most saving for each byte first, where look-ups really happen.

A place is worth what its recipe saves there: the tokens that are accepted, less a little for those that are refused.
With several contexts at a place the longest literal one speaks, then the keyed shape, then the shape, so that a recipe
is worth only what it adds to the one that would speak without it. Look-ups happen where a step begins, and where steps
begin depends on the recipes: a first choice is for the places that all of them together lead to, a second one for those
that the first choice leads to. Counting other places too, however little, doubled packs and saved nothing.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backend.domain.recipes.mining.corpus import END, Corpus, Ints
from backend.domain.recipes.mining.runs import Groups
from backend.domain.recipes.pack import BEGIN

ACCEPTED, REFUSED = 8, 1  # worth of a token
ROUNDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """`level` counts kinds of contexts from the weakest; `n_bytes` in recipes.json; `more` is worth that the corpus
    does not show."""

    level: int
    group: int
    n_bytes: int
    more: int = 0


def choose_recipes(
    corpus: Corpus,
    levels: Sequence[Groups],
    candidates: Sequence[Candidate],
    *,
    max_bytes: int,
    missed: frozenset[str] = frozenset(),
) -> list[Candidate]:
    """Choose recipes, in no order that means anything. Places of a `missed` shape count twice."""
    is_missed = np.array([corpus.shapes.text(state) in missed for state in range(corpus.shapes.n_states)])
    times = np.where(is_missed[corpus.states] & (corpus.states >= 0), 2, 1)
    worth = [_worth(groups) for groups in levels]
    places = [_places_by_group(groups) for groups in levels]
    taken: list[Candidate] = list(candidates)
    for _ in range(ROUNDS):
        weights = np.where(_find_visited(corpus, levels, taken), times, 0)
        taken = _Choice(levels, worth, places, weights).take(candidates, max_bytes)
    return taken


class _Choice:
    """One greedy pass: `value` and `level` of what speaks at each place so far."""

    def __init__(
        self, levels: Sequence[Groups], worth: Sequence[Ints], places: Sequence[list[Ints]], weights: Ints
    ) -> None:
        n = len(weights)
        self.worth, self.places, self.weights = worth, places, weights
        self.value, self.level = np.zeros(n, dtype=np.int64), np.full(n, -1, dtype=np.int64)

    def take(self, candidates: Sequence[Candidate], max_bytes: int) -> list[Candidate]:
        taken: list[Candidate] = []
        left, room = list(candidates), max_bytes
        while True:  # what was worth nothing may be, once a weaker recipe speaks wrongly at its places
            new, refused, room = self._sweep(left, room)
            taken += new
            left = refused
            if not new:
                return taken

    def _sweep(self, candidates: Sequence[Candidate], room: int) -> tuple[list[Candidate], list[Candidate], int]:
        waiting = [(-self.gain(one) / one.n_bytes, i) for i, one in enumerate(candidates)]
        heapq.heapify(waiting)
        taken, refused = [], []
        while waiting:
            before, i = heapq.heappop(waiting)
            one = candidates[i]
            now = -self.gain(one) / one.n_bytes
            if now >= 0 or one.n_bytes > room:
                refused.append(one)
            elif now > before and waiting and now > waiting[0][0]:
                heapq.heappush(waiting, (now, i))
            else:
                self._speak(one)
                taken.append(one)
                room -= one.n_bytes
        return taken, refused, room

    def gain(self, one: Candidate) -> int:
        places = self._places(one)
        added = self.worth[one.level][places] - self.value[places]
        return int((added * self.weights[places]).sum()) + one.more

    def _speak(self, one: Candidate) -> None:
        places = self._places(one)
        self.value[places], self.level[places] = self.worth[one.level][places], one.level

    def _places(self, one: Candidate) -> Ints:
        if one.group < 0:
            return np.zeros(0, dtype=np.int64)
        places = self.places[one.level][one.group]
        return places[self.level[places] < one.level]


def _worth(groups: Groups) -> Ints:
    if not len(groups.lengths):
        return np.zeros(len(groups.of_place), dtype=np.int64)
    return (ACCEPTED + REFUSED) * groups.accepted - REFUSED * groups.lengths[groups.of_place]


def _places_by_group(groups: Groups) -> list[Ints]:
    places = np.flatnonzero(groups.of_place >= 0)
    order = np.argsort(groups.of_place[places], kind="stable")
    return np.split(places[order], np.cumsum(groups.support)[:-1])


def _find_visited(corpus: Corpus, levels: Sequence[Groups], recipes: Sequence[Candidate]) -> NDArray[np.bool_]:
    """Return whether a step begins at a place: at an answer's second token, and one token after what a step accepts."""
    accepted = np.zeros(len(corpus.tokens), dtype=np.int64)
    for level, groups in enumerate(levels):
        speaks = np.zeros(len(groups.support) + 1, dtype=np.bool_)
        speaks[[one.group for one in recipes if one.level == level and one.group >= 0]] = True
        speaks[-1] = False
        here = speaks[groups.of_place]
        accepted[here] = groups.accepted[here]
    visited = np.zeros(len(corpus.tokens), dtype=np.bool_)
    begins = np.flatnonzero(corpus.tokens == BEGIN)
    ends = np.flatnonzero(corpus.tokens == END)
    steps = (accepted + 1).tolist()
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        at = begin + 2
        while at < end:
            visited[at] = True
            at += steps[at]
    return visited
