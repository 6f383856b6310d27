"""Plays a policy through a stream, with the drafts verified after selection (`play_pool`) or before (`play_before`).

After selection: what a policy pools competes unverified with the fresh candidates, selection takes the eight least
clocks, and the teacher is asked about the drafts among them, all slices of the compile in one question of about a
hundred drafts a request, one in 24 a control of another slice. A chunk of 24 whose control is accepted is asked once
more. What is refused leaves the pool, and drafts of sources that it makes unlikely too; a pool that is short by more
than a tenth is filled up; then selection picks again, at most three questions.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from backend.domain.drafts.calibration import SourceCount, acceptance_after
from backend.domain.drafts.pool_policy import FLOOR
from backend.domain.drafts.question_policy import is_worth_asking_again, n_to_ask
from backend.domain.drafts.vocabulary import Kinship
from tests.bench.draft_pool_prices import CONTROL_EVERY, HEAD, ITEM, RUN, SLICE_LINES, Played, Scenario, Spent
from tests.bench.draft_pool_world import MAX_TURNS, N_COMPILES, N_SLICES, K, N, World

N_NEAR = N_KIN = 4  # the nearest sources, and the newest of the same slice and of the same label
A_REQUEST = 100
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """Three questions about the picks at most; `are_frugal`: the first goes as far as `question_policy` says, and
    another one has to pay."""

    scenario: Scenario
    are_frugal: bool


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


def play_pool(world: World, policy: PoolPolicy, questions: Questions) -> Played:
    played, stock = Played(), Stock()
    for number in range(N_COMPILES):
        slices = range(N_SLICES * number, N_SLICES * (number + 1))
        shelves = {now: stock.shelf(world, now, filtered=policy.uses_filter) for now in slices}
        n_with = sum(bool(shelf) for shelf in shelves.values())
        pools = []
        for now, drafts in shelves.items():
            plan = policy.plan(world, Shelf(slice=now, drafts=drafts, n_with_drafts=n_with)) if drafts else Pooled()
            pool = Pool(slice=now, n_counted=plan.n_counted, unverified={(s, p): a for s, p, a in plan.drafts})
            pool.fill(N - plan.n_counted)
            played.n_pooled += len(plan.drafts)
            pools.append(pool)
        for turn in range(MAX_TURNS):
            asked = {pool.slice: pool.to_ask(world, reserves=questions.are_frugal and not turn) for pool in pools}
            if not any(asked.values()) or (turn and questions.are_frugal and not _pays(pools, questions.scenario)):
                break
            played.n_turns += 1
            _ask(world, number, turn, pools, asked, played)  # type: ignore[arg-type]
            for pool in pools:
                pool.top_up()
                pool.drop_unlikely()
        spent = Spent()
        for pool in pools:
            _finish(world, pool, stock, played)
            spent += pool.spent
        played.spent.append(spent)
        policy.learn({pool.slice: pool.counts(world) for pool in pools}, {pool.slice: pool.spent for pool in pools})
    return played


def _pays(pools: Sequence[Pool], scenario: Scenario) -> bool:
    """Say whether another question costs less than writing the picks that verified candidates do not suffice for."""
    return is_worth_asking_again(
        sum(max(0, K - pool.n_fresh - len(pool.accepted)) for pool in pools),
        fresh_microusd=scenario.fresh,
        verify_microusd=scenario.verify,
        overhead_microusd=scenario.overhead(N_SLICES, 1),
    )


def _finish(world: World, pool: Pool, stock: Stock, played: Played) -> None:
    """No pick is unverified: those that nobody was asked about leave where one would be."""
    picks = pool.order(world)[:K]
    if any(pick in pool.unverified for pick in picks):
        pool.unverified = {}
    pool.fill(K - len(pool.accepted))
    picks = pool.order(world)[:K]
    for draft in pool.accepted:
        stock.enter(draft)
    count_picks(world, pool.slice, picks, pool.accepted, played)
    stock.live[pool.slice] = [place for place in range(pool.n_fresh) if place not in picks]


def count_picks(
    world: World, now: int, picks: Sequence[Draft | int], accepted: Sequence[Draft], played: Played
) -> None:
    drafts = [pick for pick in picks if not isinstance(pick, int)]
    bad = [(s, p) for s, p in drafts if not world.is_right[now, s, p]]
    played.n_accepted += len(accepted)
    played.n_bad += sum(not world.is_right[now, s, p] for s, p in accepted)
    played.n_picks += len(picks)
    played.n_bad_picks += len(bad)
    played.n_bad_after += sum(not world.is_seen[now, s, p] for s, p in bad)


def _ask(
    world: World, number: int, turn: int, pools: Sequence[Pool], asked: Mapping[int, list[Draft]], played: Played
) -> None:
    """One question about the picked drafts of all slices; its cost is shared by the drafts."""
    items = [(pool, draft) for pool in pools for draft in asked[pool.slice]]
    played.n_asked += len(items)
    spent = Spent()
    for first in range(0, len(items), A_REQUEST):
        request = items[first : first + A_REQUEST]
        flags: list[bool] = [bool(world.positive_accepted[number, turn, first // A_REQUEST])]
        for start in range(0, len(request), CONTROL_EVERY):
            chunk = request[start : start + CONTROL_EVERY]
            place = first // CONTROL_EVERY + start // CONTROL_EVERY
            verdicts = [bool(world.says_yes[0, pool.slice, s, p]) for pool, (s, p) in chunk]
            failed = world.control_accepted[number, turn, place]
            flags += _with_control(verdicts, bool(failed[0]))
            if failed[0]:
                verdicts = [bool(world.says_yes[1, pool.slice, s, p]) for pool, (s, p) in chunk]
                spent += _request(len(chunk) + 2, [True, *_with_control(verdicts, bool(failed[1]))])
            for (pool, draft), is_accepted in zip(chunk, verdicts, strict=True):
                pool.take(draft, None if failed.all() else is_accepted)
        spent += _request(len(flags), flags)
    for pool in pools:
        share = len(asked[pool.slice]) / len(items)
        pool.spent += Spent(text_in=spent.text_in * share, items=spent.items * share, out=spent.out * share)


def _with_control(verdicts: Sequence[bool], is_accepted: bool) -> list[bool]:
    middle = len(verdicts) // 2
    return [*verdicts[:middle], is_accepted, *verdicts[middle:]]


def _request(n_items: int, flags: Sequence[bool]) -> Spent:
    """Accepted numbers are answered as runs."""
    n_runs = sum(now and not before for before, now in zip((False, *flags), flags, strict=False))
    text_in = HEAD + SLICE_LINES * N_SLICES + ITEM * n_items
    return Spent(text_in=text_in, items=n_items, out=RUN * (1 + n_runs))


Before = Callable[[World, Shelf, Spent], list[Draft]]  # the accepted drafts, at most N; books what it asked


def play_before(world: World, policy: Before, learn: Callable[[], None]) -> Played:
    """Each slice's drafts are verified before anything is written; a compile's slices do not learn from each other."""
    played, stock = Played(), Stock()
    for number in range(N_COMPILES):
        slices = range(N_SLICES * number, N_SLICES * (number + 1))
        spent = Spent()
        left: dict[int, list[int]] = {}
        for now in slices:
            shelf = Shelf(slice=now, drafts=stock.shelf(world, now, filtered=False, kin=False), n_with_drafts=1)
            before = spent.items
            pool = Pool(slice=now, n_counted=0, unverified={}, accepted=policy(world, shelf, spent)[:N])
            played.n_asked += round(spent.items - before)
            pool.fill(N - len(pool.accepted))
            picks = pool.order(world)[:K]
            for draft in pool.accepted:
                stock.enter(draft)
            count_picks(world, now, picks, pool.accepted, played)
            left[now] = [place for place in range(pool.n_fresh) if place not in picks]
            spent += pool.spent
        stock.live |= left
        learn()
        played.spent.append(spent)
    return played
