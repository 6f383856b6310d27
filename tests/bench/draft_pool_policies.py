"""The policies of `draft_pool` that verify after selection. Ours is the product's `decide_pool` and `learn_from`."""

import math
import random
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from backend.domain.drafts.calibration import (
    Curves,
    SourceCount,
    learn_from,
    prior_curves,
)
from backend.domain.drafts.policy import Ledger, Offerable
from backend.domain.drafts.pool_policy import FLOOR, ODD_ONE_OUT, decide_pool
from backend.domain.drafts.vocabulary import Arm
from tests.bench.draft_policy_streams import SENSITIVITY, SPECIFICITY
from tests.bench.draft_pool_prices import (
    Scenario,
    Spent,
)
from tests.bench.draft_pool_slices import Pooled, Shelf
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
