"""One slice's part in `draft_pool_play`: the drafts that it finds, and its pool while its picks are verified."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from backend.domain.drafts.calibration import SourceCount, acceptance_after
from backend.domain.drafts.pool_policy import FLOOR
from backend.domain.drafts.question_policy import n_to_ask
from backend.domain.drafts.vocabulary import Kinship
from tests.bench.draft_pool_prices import Spent
from tests.bench.draft_pool_world import K, N, World

N_NEAR = N_KIN = 4  # the nearest sources, and the newest of the same slice and of the same label
RETIRED_AFTER = 8  # pools
LEAST_POOL = 0.9

Draft = tuple[int, int]  # source, place


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf:
    """What a slice finds: sources, relatives first and then the nearest, with the drafts that are there."""

    slice: int
    drafts: Mapping[int, tuple[int, ...]]
    n_with_drafts: int  # slices of the compile


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooled:
    """`drafts` with what is expected of each; `n_counted` candidates are not written."""

    drafts: tuple[tuple[int, int, float], ...] = ()
    n_counted: int = 0


class PoolPolicy(Protocol):
    uses_filter: bool

    def plan(self, world: World, shelf: Shelf) -> Pooled: ...

    def learn(self, counts: Mapping[int, Sequence[SourceCount]], spent: Mapping[int, Spent]) -> None:
        """What a compile's questions brought and cost, by slice."""


@dataclass(slots=True, kw_only=True)
class Stock:
    """The drafts that earlier compiles left, by source, and how many pools each has entered."""

    live: dict[int, list[int]] = field(default_factory=dict)
    entered: dict[Draft, int] = field(default_factory=dict)

    def enter(self, draft: Draft) -> None:
        self.entered[draft] = self.entered.get(draft, 0) + 1
        if self.entered[draft] == RETIRED_AFTER:
            self.live[draft[0]].remove(draft[1])

    def shelf(self, world: World, now: int, *, filtered: bool, kin: bool = True) -> dict[int, tuple[int, ...]]:
        there = np.array([source for source, places in self.live.items() if places], dtype=np.int64)
        if not len(there):
            return {}
        distances, kinships = world.distances[now, there], world.kinships[now, there]
        near = there[np.argsort(distances, kind="stable")[:N_NEAR]].tolist()
        if kin:
            for kinds in ((Kinship.SLICE,), (Kinship.SLICE, Kinship.LABEL)):
                near += sorted(there[[kinship in kinds for kinship in kinships]].tolist())[-N_KIN:]
        order = tuple(Kinship)
        ranked = sorted(set(near), key=lambda s: (order.index(world.kinships[now, s]), world.distances[now, s], s))
        passing = {
            s: tuple(p for p in self.live[s] if not filtered or world.same_label[now, s] or world.passes[now, s, p])
            for s in ranked
        }
        return {source: places for source, places in passing.items() if places}


@dataclass(slots=True, kw_only=True)
class Pool:
    """One slice's pool while its picks are verified."""

    slice: int
    n_counted: int
    unverified: dict[Draft, float]
    accepted: list[Draft] = field(default_factory=list)
    n_fresh: int = 0
    shown: dict[int, list[bool]] = field(default_factory=dict)  # verdicts by source
    spent: Spent = field(default_factory=Spent)

    def fill(self, n: int) -> None:
        if n > self.n_fresh:
            self.spent.write(n - self.n_fresh)
            self.n_fresh = n

    def order(self, world: World) -> list[Draft | int]:
        """Drafts and places of fresh candidates, as selection prefers them."""
        fresh = world.fresh_clocks[self.slice]
        clocks: list[tuple[float, Draft | int]] = [(float(fresh[i]), i) for i in range(self.n_fresh)]
        clocks += [(float(world.clocks[self.slice, s, p]), (s, p)) for s, p in (*self.accepted, *self.unverified)]
        return [each for _, each in sorted(clocks, key=lambda pair: pair[0])]

    def to_ask(self, world: World, *, reserves: bool) -> list[Draft]:
        """The unverified drafts among the picks, or among as many as it takes until K are expected to be valid."""
        order = self.order(world)
        expected = [self.unverified.get(each, 1.0) for each in order]  # type: ignore[call-overload]
        return [each for each in order[: n_to_ask(expected, K) if reserves else K] if each in self.unverified]  # type: ignore[misc]

    def take(self, draft: Draft, is_accepted: bool | None) -> None:
        """A verdict; None: its controls failed twice."""
        del self.unverified[draft]
        if is_accepted:
            self.accepted.append(draft)
        if is_accepted is not None:
            self.shown.setdefault(draft[0], []).append(is_accepted)

    def top_up(self) -> None:
        expected = math.floor(len(self.accepted) + math.fsum(self._likely().values()) + 1e-9)
        if expected < self.n_counted - (1 - LEAST_POOL) * N:
            self.n_counted = expected
            self.fill(N - expected)

    def drop_unlikely(self) -> None:
        self.unverified = {d: self.unverified[d] for d, p in self._likely().items() if p >= FLOOR}

    def _likely(self) -> dict[Draft, float]:
        verdicts = {s: self.shown.get(s, []) for s, _ in self.unverified}
        return {d: acceptance_after(p, len(v := verdicts[d[0]]), sum(v)) for d, p in self.unverified.items()}

    def counts(self, world: World) -> list[SourceCount]:
        return [
            SourceCount(
                distance=float(world.distances[self.slice, s]),
                n_shown=len(verdicts),
                n_accepted=sum(verdicts),
                kinship=world.kinships[self.slice, s],
            )
            for s, verdicts in self.shown.items()
        ]
