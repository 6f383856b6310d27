"""The product before its drafts were pooled: each slice's are put to a judge before anything is written, in batches of
24, and only the distance says what to expect, from a flat curve. Its `decide` is the product's own."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence

from backend.domain.drafts.calibration import Curves, SourceCount, flat_curve, update
from backend.domain.drafts.policy import Decision, Ledger, Offerable, decide
from backend.domain.drafts.vocabulary import Arm
from tests.bench.draft_pool_play import count_picks
from tests.bench.draft_pool_prices import (
    BEFORE_ITEM,
    BEFORE_PROMPT,
    BEFORE_VERDICT,
    CHOICES,
    CONTROL_EVERY,
    Played,
    Scenario,
    Spent,
)
from tests.bench.draft_pool_slices import Draft, Pool, Shelf, Stock
from tests.bench.draft_pool_world import N_COMPILES, N_SLICES, K, N, World


def play_before(world: World, policy: "Before") -> Played:
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
        policy.learn()
        played.spent.append(spent)
    return played


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
        whole = Spent(n_fresh=written, n_calls=-(-written // CHOICES)) + asked
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
