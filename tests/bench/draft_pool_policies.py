"""The policies of `draft_pool`. Ours is the product's `decide_pool` and `learn_from`; the product before it is its
`decide`, from a flat curve, slice by slice in batches of 24."""

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from backend.domain.drafts.calibration import (
    Curves,
    SourceCount,
    flat_curve,
    learn_from,
    prior_curves,
    update,
)
from backend.domain.drafts.policy import Decision, Ledger, Offerable, decide
from backend.domain.drafts.pool_policy import FLOOR, ODD_ONE_OUT, decide_pool
from backend.domain.drafts.vocabulary import Arm
from tests.bench.draft_policy_streams import SENSITIVITY, SPECIFICITY
from tests.bench.draft_pool_play import Draft, Pooled, Shelf
from tests.bench.draft_pool_prices import (
    BEFORE_ITEM,
    BEFORE_PROMPT,
    BEFORE_VERDICT,
    CONTROL_EVERY,
    Scenario,
    Spent,
)
from tests.bench.draft_pool_world import N_SLICES, FilterRates, K, N, World


class Ours:
    """The product's decision, curves and ledger."""

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        *,
        uses_filter: bool = True,
        start: Curves | None = None,
        floor: float = FLOOR,
    ) -> None:
        self.uses_filter = uses_filter
        self.curves = self._start = start or prior_curves()
        self._scenario, self._floor, self._rng = scenario, floor, random.Random(seed)
        self._n_lookups = self._n_since_shown = 0
        self._spent = self._explored = 0.0
        self._arms: dict[int, Arm] = {}

    def plan(self, world: World, shelf: Shelf) -> Pooled:
        drafts = [(source, place) for source, places in shelf.drafts.items() for place in places]
        offerables = [
            Offerable(
                index=i,
                source=source,
                distance=float(world.distances[shelf.slice, source]),
                verify_microusd=self._scenario.verify,
                kinship=world.kinships[shelf.slice, source],
            )
            for i, (source, _) in enumerate(drafts)
        ]
        decision = decide_pool(
            self.curves,
            offerables,
            n_wanted=N,
            k=K,
            fresh_microusd=self._scenario.fresh,
            overhead_microusd=self._scenario.overhead(N_SLICES, shelf.n_with_drafts),
            ledger=Ledger(
                n_lookups=self._n_lookups,
                n_since_shown=self._n_since_shown,
                spent_microusd=self._spent,
                explored_microusd=self._explored,
            ),
            rng=self._rng,
            floor=self._floor,
        )
        self._arms[shelf.slice] = decision.arm
        pooled = zip(decision.pooled, decision.predicted, strict=True)
        return Pooled(drafts=tuple((*drafts[i], p) for i, p in pooled), n_counted=decision.n_counted)

    def learn(self, counts: Mapping[int, Sequence[SourceCount]], spent: Mapping[int, Spent]) -> None:
        for now, of_slice in counts.items():
            self.curves = learn_from(self.curves, of_slice, self._start)
            self._spent += spent[now].cost(self._scenario)
            arm = self._arms.pop(now, None)
            self._explored += spent[now].judged(self._scenario) if arm is Arm.PROBED else 0.0
            self._n_lookups += 1
            self._n_since_shown = 0 if of_slice else self._n_since_shown + (arm is not None)


class Fixed:
    """Pools what lies within a distance, relatives and nearest first or in random order, and counts each for a fixed
    share; knows no price and learns nothing."""

    uses_filter = True

    def __init__(self, distance: float, share: float, *, seed: int | None = None) -> None:
        self._distance, self._share = distance, share
        self._rng = None if seed is None else random.Random(seed)

    def plan(self, world: World, shelf: Shelf) -> Pooled:
        near = sorted(shelf.drafts, key=lambda s: float(world.distances[shelf.slice, s]))
        drafts = [
            (source, place, self._share)
            for source in near
            if world.distances[shelf.slice, source] <= self._distance
            for place in shelf.drafts[source]
        ]
        if self._rng is not None:
            self._rng.shuffle(drafts)
        drafts = drafts[: math.ceil(N / self._share)]
        return Pooled(drafts=tuple(drafts), n_counted=min(N, math.floor(len(drafts) * self._share + 1e-9)))

    def learn(self, counts: Mapping[int, Sequence[SourceCount]], spent: Mapping[int, Spent]) -> None:
        pass


class Clairvoyant:
    """Knows every pair's true rate, and so how often the judge will say yes; not what it will say, nor what selection
    will pick. Pools, likeliest first, as many as make the expected saving of this slice largest."""

    uses_filter = True

    def __init__(self, scenario: Scenario, passed: FilterRates) -> None:
        self._scenario, self._passed = scenario, passed

    def plan(self, world: World, shelf: Shelf) -> Pooled:
        now = shelf.slice
        drafts = [(s, p, self._yes(world, now, s)) for s, places in shelf.drafts.items() for p in places]
        drafts = sorted(drafts, key=lambda each: -each[2])[: 2 * N]
        overhead = self._scenario.overhead(N_SLICES, shelf.n_with_drafts)
        best, plan = 0.0, Pooled()
        chances = np.zeros(len(drafts) + 1)
        chances[0] = 1.0
        expected = 0.0
        for m, (_, _, yes) in enumerate(drafts, start=1):
            chances[1:] = chances[1:] * (1 - yes) + chances[:-1] * yes
            chances[0] *= 1 - yes
            expected += yes
            n_counted = min(N, math.floor(expected + 1e-9))
            net = self._net(chances[: m + 1], m, n_counted) - overhead
            if net > best:
                best, plan = net, Pooled(drafts=tuple(drafts[:m]), n_counted=n_counted)
        return plan

    def learn(self, counts: Mapping[int, Sequence[SourceCount]], spent: Mapping[int, Spent]) -> None:
        pass

    def _net(self, chances: NDArray[np.float64], m: int, n_counted: int) -> float:
        accepted = np.arange(m + 1)
        q = np.minimum(1.0, K / np.maximum(N - n_counted + accepted, 1))
        asked = q * accepted + (1 - (1 - q) ** ODD_ONE_OUT) * (m - accepted)
        saved = np.minimum(accepted, n_counted) * self._scenario.fresh
        return float(chances @ (saved - asked * self._scenario.verify))

    def _yes(self, world: World, now: int, source: int) -> float:
        """The chance that a draft that passed the local filter is accepted."""
        rate = float(world.rates[now, source])
        other = self._passed.own if world.same_label[now, source] else self._passed.other
        rate = rate * self._passed.own / (rate * self._passed.own + (1 - rate) * other)
        return rate * SENSITIVITY + (1 - rate) * (1 - SPECIFICITY)


class Before:
    """The product as it was: all of a slice's near drafts are put to a judge before anything is written, where the
    distance alone says what to expect, and the quoted overhead is that of all of them."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self._scenario, self._rng = scenario, random.Random(seed)
        self.curve = flat_curve()
        self._ledger = Ledger(n_lookups=0, n_since_shown=0, spent_microusd=0.0, explored_microusd=0.0)
        self._counts: list[list[SourceCount]] = []

    def __call__(self, world: World, shelf: Shelf, spent: Spent) -> list[Draft]:
        drafts = [(source, place) for source, places in shelf.drafts.items() for place in places][: 4 * N]
        if not drafts:
            self._book(world, shelf, [], Arm.NO_DRAFTS, Spent(n_fresh=N, n_calls=3))
            return []
        asked = Spent()
        overhead = self._scenario.overhead_before(len(drafts))
        decision = self._decide(world, shelf, drafts, range(len(drafts)), N, overhead, {})
        shown = [drafts[i] for i in decision.first or decision.shown]
        accepted = self._ask(world, shelf.slice, shown, asked)
        if decision.first:
            rest = [i for i in range(len(drafts)) if i not in decision.first]
            seen = self._seen(world, shelf, shown)
            more = self._decide(world, shelf, drafts, rest, N - len(accepted), overhead, seen)
            second = [drafts[i] for i in more.shown]
            accepted += self._ask(world, shelf.slice, second, asked)
            shown += second
        written = N - min(N, len(accepted))
        whole = Spent(n_fresh=written, n_calls=-(-written // 8)) + asked
        self._book(world, shelf, shown, decision.arm, whole)
        spent.text_in += asked.text_in
        spent.items += asked.items
        spent.out += asked.out
        return accepted

    def learn(self) -> None:
        for counts in self._counts:
            self.curve = update(self.curve, counts)
        self._counts = []

    def _decide(
        self,
        world: World,
        shelf: Shelf,
        drafts: Sequence[Draft],
        which: Sequence[int],
        n_wanted: int,
        overhead: float,
        seen: Mapping[int, SourceCount],
    ) -> Decision:
        return decide(
            Curves(slice=self.curve, label=self.curve, other=self.curve),
            [
                Offerable(
                    index=i,
                    source=drafts[i][0],
                    distance=float(world.distances[shelf.slice, drafts[i][0]]),
                    verify_microusd=self._scenario.verify_before,
                )
                for i in which
            ],
            n_wanted=n_wanted,
            fresh_microusd=self._scenario.fresh,
            overhead_microusd=overhead,
            ledger=self._ledger,
            rng=self._rng,
            seen=seen,
        )

    def _ask(self, world: World, now: int, shown: Sequence[Draft], asked: Spent) -> list[Draft]:
        accepted = [(s, p) for s, p in shown if world.says_yes[0, now, s, p]]
        n_requests = -(-len(shown) // CONTROL_EVERY)
        asked.items += len(shown) + n_requests
        asked.text_in += n_requests * (BEFORE_PROMPT + BEFORE_ITEM) + BEFORE_ITEM * len(shown)
        asked.out += BEFORE_VERDICT * len(accepted)
        return accepted

    def _seen(self, world: World, shelf: Shelf, shown: Sequence[Draft]) -> dict[int, SourceCount]:
        yes = Counter(s for s, p in shown if world.says_yes[0, shelf.slice, s, p])
        return {
            s: SourceCount(distance=float(world.distances[shelf.slice, s]), n_shown=n, n_accepted=yes[s])
            for s, n in Counter(s for s, _ in shown).items()
        }

    def _book(self, world: World, shelf: Shelf, shown: Sequence[Draft], arm: Arm, whole: Spent) -> None:
        if shown:
            self._counts.append(list(self._seen(world, shelf, shown).values()))
        explored = whole.judged(self._scenario) if arm is Arm.PROBED else 0.0
        self._ledger = Ledger(
            n_lookups=self._ledger.n_lookups + 1,
            n_since_shown=0 if shown else self._ledger.n_since_shown + (arm is not Arm.NO_DRAFTS),
            spent_microusd=self._ledger.spent_microusd + whole.cost(self._scenario),
            explored_microusd=self._ledger.explored_microusd + explored,
        )
