"""The policy of showing drafts to a verifier, if any: those whose expected net is positive, best first.

A draft that is accepted with probability a saves a fresh candidate's cost F and costs its verification V. Sources are
ranked by the mean expected net of their drafts; inside a source the order is random, because choosing among the drafts
of one slice by anything that depends on their text would bias the log-prob rules. Nothing is shown unless the sum pays
for the request too.

More drafts than are needed are shown, at most twice as many: as many as make the expected net largest
(`expected_savings`). Where what is expected to be refused costs more than a request, two drafts of each source go
first: drafts of one source succeed and fail together, so two tell about the rest, and `decide` is asked again with what
was `seen`.

A curve that says "never" would never be contradicted. So where nothing was shown for 20 slices, a few drafts are shown
against the expectation, for at most 2 % of what the stream has spent.
"""

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType

from backend.domain.drafts.calibration import Curves, SourceCount, acceptance_after, predict_each
from backend.domain.drafts.costs import Quote, break_even
from backend.domain.drafts.expected_savings import SourceOffer, expected_nets
from backend.domain.drafts.vocabulary import Arm, Kinship

MOST_SHOWN = 2  # times what is wanted
FIRST_OF_SOURCE = 2
LOCKED_OUT_AFTER = 20
EXPLORATION_SHARE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Offerable:
    """A draft that could be shown. `index` is the caller's; `distance` and `kinship` are its source's;
    `verify_microusd` is what this draft adds to the request, which under a log-prob rule has to be equal for all drafts
    of a source."""

    index: int
    source: int
    distance: float
    verify_microusd: float
    kinship: Kinship = Kinship.OTHER


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """A stream's (tenant, family, teacher, strategy) past: slices that looked for drafts, how many of them in a row
    were shown none, what the teacher was paid for all of them, what of it for drafts shown against the expectation."""

    n_lookups: int
    n_since_shown: int
    spent_microusd: float
    explored_microusd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """`shown` holds indices, best first; `predicted` and `propensity` are beside it. Where `first` is not empty, show
    those alone, and ask again about the others of `shown` with what was `seen`: not all of them will be worth it.

    A propensity is the chance that this draft was chosen, given everything but the random order in its source.
    `expected_net_microusd` is that of the best number of them, shown at once; 0 where none is worth it."""

    arm: Arm
    shown: tuple[int, ...] = ()
    first: tuple[int, ...] = ()
    predicted: tuple[float, ...] = ()
    propensity: tuple[float, ...] = ()
    expected_net_microusd: float = 0.0
    break_even: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ranked:
    """`known` is what its curve says, `acceptance` what it says after what was seen of the source."""

    draft: Offerable
    known: float
    acceptance: float
    net: float


_NO_COUNT = SourceCount(distance=0.0, n_shown=0, n_accepted=0)
_NOTHING_SEEN: Mapping[int, SourceCount] = MappingProxyType({})


def decide(
    curves: Curves,
    offerables: Sequence[Offerable],
    *,
    n_wanted: int,
    fresh_microusd: float,
    overhead_microusd: float,
    ledger: Ledger,
    rng: random.Random,
    seen: Mapping[int, SourceCount] = _NOTHING_SEEN,
) -> Decision:
    """Return what to show of `offerables` for `n_wanted` candidates that cost `fresh_microusd` each, in a request that
    costs `overhead_microusd` besides its drafts.

    `seen` holds, for sources whose first drafts were just shown for this slice, what became of them; those drafts are
    no longer among the offerables, and `n_wanted` no longer counts the accepted ones.
    """
    if n_wanted <= 0 or not offerables:
        return Decision(arm=Arm.NOT_WORTH if offerables else Arm.NO_DRAFTS)
    ranked = _rank(curves, offerables, fresh_microusd, rng, seen)
    worth = [each for each in ranked if each.net > 0]
    foremost = worth[: MOST_SHOWN * n_wanted]
    nets = expected_nets(
        _by_source(foremost, seen),
        n_wanted=n_wanted,
        fresh_microusd=fresh_microusd,
        overhead_microusd=overhead_microusd,
    )
    net = max(nets, default=0.0)
    if net > 0:
        first = () if seen else _first(_until_enough(foremost, n_wanted), overhead_microusd)
        shown = worth if first else foremost[: nets.index(net) + 1]
        return _decision(Arm.OFFERED, shown, ranked, fresh_microusd, overhead_microusd, net=net, first=first)
    probe = () if seen else _exploration(ranked, n_wanted, overhead_microusd, ledger)
    return _decision(Arm.PROBED if probe else Arm.NOT_WORTH, probe, ranked, fresh_microusd, overhead_microusd)


def _rank(
    curves: Curves,
    offerables: Sequence[Offerable],
    fresh_microusd: float,
    rng: random.Random,
    seen: Mapping[int, SourceCount],
) -> list[_Ranked]:
    """Best source first, its drafts in random order."""
    places = {draft.source: (draft.kinship, draft.distance) for draft in offerables}
    known = dict(zip(places, predict_each(curves, list(places.values())), strict=True))
    by_source: dict[int, list[_Ranked]] = {source: [] for source in known}
    for draft in offerables:
        count = seen.get(draft.source, _NO_COUNT)
        acceptance = acceptance_after(known[draft.source], count.n_shown, count.n_accepted)
        net = acceptance * fresh_microusd - draft.verify_microusd
        by_source[draft.source].append(_Ranked(draft=draft, known=known[draft.source], acceptance=acceptance, net=net))
    best_first = sorted(by_source, key=lambda s: (-math.fsum(r.net for r in by_source[s]) / len(by_source[s]), s))
    return [each for source in best_first for each in rng.sample(by_source[source], len(by_source[source]))]


def _by_source(ranked: Sequence[_Ranked], seen: Mapping[int, SourceCount]) -> list[SourceOffer]:
    """Neighbours of one source together."""
    offers: list[SourceOffer] = []
    for source, group in groupby(ranked, key=lambda each: each.draft.source):
        run, count = list(group), seen.get(source, _NO_COUNT)
        offers.append(
            SourceOffer(
                acceptance=run[0].known,
                n_seen=count.n_shown,
                n_accepted=count.n_accepted,
                verify_microusd=tuple(each.draft.verify_microusd for each in run),
            )
        )
    return offers


def _until_enough(ranked: Sequence[_Ranked], n_wanted: int) -> Sequence[_Ranked]:
    """Take drafts from the front, until as many are expected to be accepted as are wanted."""
    expected = 0.0
    for n, each in enumerate(ranked):
        if expected >= n_wanted:
            return ranked[:n]
        expected += each.acceptance
    return ranked


def _first(plan: Sequence[_Ranked], overhead_microusd: float) -> tuple[_Ranked, ...]:
    """Two of each source, where what the others are expected to waste costs more than another request."""
    first = _few_of_each(plan)
    chosen = {each.draft.index for each in first}
    rest = [each for each in plan if each.draft.index not in chosen]
    waste = math.fsum((1 - each.acceptance) * each.draft.verify_microusd for each in rest)
    return first if waste > overhead_microusd else ()


def _few_of_each(ranked: Sequence[_Ranked]) -> tuple[_Ranked, ...]:
    taken: dict[int, int] = {}
    few: list[_Ranked] = []
    for each in ranked:
        if taken.get(each.draft.source, 0) < FIRST_OF_SOURCE:
            taken[each.draft.source] = taken.get(each.draft.source, 0) + 1
            few.append(each)
    return tuple(few)


def _exploration(
    ranked: Sequence[_Ranked], n_wanted: int, overhead_microusd: float, ledger: Ledger
) -> tuple[_Ranked, ...]:
    """Two drafts of each source, best first, as many as the allowance has room for; none before it is due."""
    left = EXPLORATION_SHARE * ledger.spent_microusd - ledger.explored_microusd - overhead_microusd
    if ledger.n_since_shown < LOCKED_OUT_AFTER:
        return ()
    probe: list[_Ranked] = []
    for each in _few_of_each(ranked)[:n_wanted]:
        left -= each.draft.verify_microusd
        if left < 0:
            break
        probe.append(each)
    return tuple(probe)


def _decision(
    arm: Arm,
    plan: Sequence[_Ranked],
    ranked: Sequence[_Ranked],
    fresh_microusd: float,
    overhead_microusd: float,
    *,
    net: float = 0.0,
    first: Sequence[_Ranked] = (),
) -> Decision:
    """The break-even is the plan's own; without a plan, that of the best source's drafts."""
    batch = plan or [each for each in ranked if each.draft.source == ranked[0].draft.source]
    quote = Quote(
        overhead_microusd=overhead_microusd, per_draft_microusd=tuple(each.draft.verify_microusd for each in batch)
    )
    return Decision(
        arm=arm,
        shown=tuple(each.draft.index for each in plan),
        first=tuple(each.draft.index for each in first),
        predicted=tuple(each.acceptance for each in plan),
        propensity=_propensities(plan, first, ranked, arm),
        expected_net_microusd=net,
        break_even=break_even(quote, fresh_microusd),
    )


def _propensities(
    plan: Sequence[_Ranked], first: Sequence[_Ranked], ranked: Sequence[_Ranked], arm: Arm
) -> tuple[float, ...]:
    """The share that is shown of a source's drafts that could have been; of the first, the share that is first."""
    n_could = Counter(each.draft.source for each in ranked if arm is Arm.PROBED or each.net > 0)
    n_shown = Counter(each.draft.source for each in plan)
    n_first = Counter(each.draft.source for each in first)
    are_first = {each.draft.index for each in first}
    return tuple(
        (n_first if each.draft.index in are_first else n_shown)[each.draft.source] / n_could[each.draft.source]
        for each in plan
    )
