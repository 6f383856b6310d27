"""The policy of letting drafts compete unverified: which of them enter a slice's pool, and are asked about if picked.

The slice lacks `n_wanted` candidates of its pool, and selection will pick k. m drafts are pooled, each counts as its
expected acceptance, and the whole part of their sum is not written anew. Then selection picks, the teacher is asked
about the drafts among the picks, and what it refuses is replaced. So most drafts are never asked about: where N are in
the pool, one that is accepted with probability a pays above a = (k / N) V / F, a third of what it would have to reach
if all were asked.

How many are asked: think of the pool in the order in which selection prefers it. It goes down until it has k valid
ones, so a valid one is met with q = k / valid ones. A draft that will be refused is met more often, because selection
looks for the odd one out: of 10 % wrong ones it picks them twice as likely (ODD_ONE_OUT), which makes that
1 - (1 - q)^2. For the same reason verdicts are about worse drafts than the pool's: what a curve says of them is
turned back into what is true of all (`in_pool`). How many are valid is beta-binomial by source (`expected_savings`).

A draft below `floor` never enters by expectation, however little asking would cost: the judge lets a share of wrong
ones through, and the more are tried the more of those train. What the guard against a wrong curve lets in (`policy`)
may lie below it.
"""

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from backend.domain.drafts.calibration import Curves, predict_each
from backend.domain.drafts.expected_savings import SourceOffer, accepted_of_first
from backend.domain.drafts.policy import (
    EXPLORATION_SHARE,
    FIRST_OF_SOURCE,
    LOCKED_OUT_AFTER,
    MOST_SHOWN,
    Ledger,
    Offerable,
)
from backend.domain.drafts.vocabulary import Arm

FLOOR = 0.3  # of expected acceptance
ODD_ONE_OUT = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolDecision:
    """`pooled` holds indices, best first; `predicted` and `propensity` are beside it: the acceptance of all drafts like
    this one, of which the picked are worse. `n_counted` candidates need not be written; a probe counts for none. A
    propensity is the chance that this draft was chosen, given everything but the
    random order in its source."""

    arm: Arm
    pooled: tuple[int, ...] = ()
    predicted: tuple[float, ...] = ()
    propensity: tuple[float, ...] = ()
    n_counted: int = 0
    expected_asked: float = 0.0
    expected_net_microusd: float = 0.0
    break_even: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """A source's drafts in random order: the acceptance of those that are asked about, and of all."""

    asked: float
    acceptance: float
    drafts: tuple[Offerable, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """The pooling of some drafts; `costs` is what asking is expected to cost, the request included."""

    n_counted: int
    asked: float
    costs: float
    net: float


def decide_pool(
    curves: Curves,
    offerables: Sequence[Offerable],
    *,
    n_wanted: int,
    k: int,
    fresh_microusd: float,
    overhead_microusd: float,
    ledger: Ledger,
    rng: random.Random,
    n_there: int = 0,
    floor: float = FLOOR,
) -> PoolDecision:
    """Return which of `offerables` enter the pool of one slice, beside `n_there` candidates that are there already, at
    most twice the `n_wanted`.

    `fresh_microusd` is what a candidate that is not written saves, a draft's `verify_microusd` what asking about it
    costs, `overhead_microusd` the slice's share of the compile's request.
    """
    if n_wanted <= 0 or not offerables:
        return PoolDecision(arm=Arm.NOT_WORTH if offerables else Arm.NO_DRAFTS)
    share = min(1.0, k / (n_there + n_wanted))
    ranked = _rank(curves, offerables, fresh_microusd, share, rng)
    worth = [each for each in ranked if each.asked >= floor]
    terms = _Terms(n_wanted=n_wanted, n_there=n_there, k=k, fresh=fresh_microusd, overhead=overhead_microusd)
    plans = list(_plans(_foremost(worth, MOST_SHOWN * n_wanted), terms))
    best = max(plans, key=lambda plan: plan.net, default=None)
    if best is not None and best.net > 0:
        return _decision(Arm.OFFERED, worth, ranked, plans.index(best) + 1, best, terms)
    few = _foremost([replace(s, drafts=s.drafts[:FIRST_OF_SOURCE]) for s in ranked], n_wanted)
    probe = _probe(few, terms, ledger)
    if probe is None:
        share_costs = overhead_microusd + share * math.fsum(d.verify_microusd for d in ranked[0].drafts)
        return PoolDecision(
            arm=Arm.NOT_WORTH, break_even=_break_even(share_costs, len(ranked[0].drafts), fresh_microusd)
        )
    n, plan = probe
    return _decision(Arm.PROBED, few, ranked, n, plan, terms)


def in_pool(asked: float, share: float) -> float:
    """The acceptance of all drafts like those that are accepted with probability `asked` when they are picked, where a
    `share` of a pool is picked: verdicts are about the odd ones.

    >>> [round(in_pool(0.6, share), 3) for share in (0.01, 1 / 3, 1.0)]
    [0.749, 0.714, 0.6]
    """
    odds: float = (1 - (1 - share) ** ODD_ONE_OUT) / share
    return odds * asked / (1 - asked + odds * asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Terms:
    n_wanted: int
    n_there: int
    k: int
    fresh: float
    overhead: float


def _rank(
    curves: Curves, offerables: Sequence[Offerable], fresh_microusd: float, share: float, rng: random.Random
) -> list[_Source]:
    """Best source first, by what a draft of it is expected to net."""
    places = {draft.source: (draft.kinship, draft.distance) for draft in offerables}
    known = dict(zip(places, predict_each(curves, list(places.values())), strict=True))
    drafts = {source: [draft for draft in offerables if draft.source == source] for source in known}

    def net(source: int) -> float:
        cost = math.fsum(draft.verify_microusd for draft in drafts[source]) / len(drafts[source])
        return in_pool(known[source], share) * fresh_microusd - share * cost

    return [
        _Source(
            asked=known[source],
            acceptance=in_pool(known[source], share),
            drafts=tuple(rng.sample(drafts[source], len(drafts[source]))),
        )
        for source in sorted(known, key=lambda source: (-net(source), source))
    ]


def _foremost(sources: Sequence[_Source], most: int) -> list[_Source]:
    """The first `most` drafts, by source."""
    taken: list[_Source] = []
    for source in sources:
        if most <= 0:
            break
        taken.append(replace(source, drafts=source.drafts[:most]))
        most -= len(source.drafts)
    return taken


def _plans(sources: Sequence[_Source], terms: _Terms, *, counts: bool = True) -> Iterator[_Plan]:
    """Pooling the first m drafts, m = 1, 2, ...; not `counts`: all are written anew nevertheless."""
    offers = [
        SourceOffer(
            acceptance=source.acceptance,
            n_seen=0,
            n_accepted=0,
            verify_microusd=tuple(draft.verify_microusd for draft in source.drafts),
        )
        for source in sources
    ]
    expected = itertools.accumulate(source.acceptance for source in sources for _ in source.drafts)
    verify = itertools.accumulate(draft.verify_microusd for source in sources for draft in source.drafts)
    n_drafts = sum(len(source.drafts) for source in sources)
    chances_of = accepted_of_first(offers, most=n_drafts)
    accepted = np.arange(n_drafts + 1)
    for m, (chances, acceptance, costs) in enumerate(zip(chances_of, expected, verify, strict=True), start=1):
        n_counted = min(terms.n_wanted, math.floor(acceptance + 1e-9)) if counts else 0
        asked = float(chances[: m + 1] @ _count_asked(accepted[: m + 1], m, terms, terms.n_wanted - n_counted))
        saved = float(chances @ np.minimum(accepted, n_counted)) * terms.fresh
        cost = asked * costs / m + terms.overhead
        yield _Plan(n_counted=n_counted, asked=asked, costs=cost, net=saved - cost)


def _count_asked(accepted: NDArray[np.int64], m: int, terms: _Terms, n_fresh: int) -> NDArray[np.float64]:
    """The number of `m` pooled drafts that are asked about, where so many of them would be accepted."""
    q = np.minimum(1.0, terms.k / np.maximum(terms.n_there + n_fresh + accepted, 1))
    met: NDArray[np.float64] = q * accepted + (1 - (1 - q) ** ODD_ONE_OUT) * (m - accepted)
    return met


def _probe(few: Sequence[_Source], terms: _Terms, ledger: Ledger) -> tuple[int, _Plan] | None:
    """The number of a few drafts that the allowance has room for; None before a probe is due, or where that is 0."""
    left = EXPLORATION_SHARE * ledger.spent_microusd - ledger.explored_microusd
    if ledger.n_since_shown < LOCKED_OUT_AFTER:
        return None
    affordable = itertools.takewhile(lambda plan: plan[1].costs <= left, enumerate(_plans(few, terms, counts=False), 1))
    return max(affordable, key=lambda plan: plan[0], default=None)


def _decision(
    arm: Arm, chosen: Sequence[_Source], ranked: Sequence[_Source], n: int, plan: _Plan, terms: _Terms
) -> PoolDecision:
    pooled = _foremost(chosen, n)
    n_could = {source.drafts[0].source: len(source.drafts) for source in ranked}
    return PoolDecision(
        arm=arm,
        pooled=tuple(draft.index for source in pooled for draft in source.drafts),
        predicted=tuple(source.acceptance for source in pooled for _ in source.drafts),
        propensity=tuple(len(s.drafts) / n_could[d.source] for s in pooled for d in s.drafts),
        n_counted=plan.n_counted,
        expected_asked=plan.asked,
        expected_net_microusd=plan.net if arm is Arm.OFFERED else 0.0,
        break_even=_break_even(plan.costs, n, terms.fresh),
    )


def _break_even(costs: float, n: int, fresh_microusd: float) -> float:
    return costs / (n * fresh_microusd) if fresh_microusd > 0 else math.inf
