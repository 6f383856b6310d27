"""Which drafts are shown: those that are expected to pay, and a few that are not, so that a wrong curve can mend."""

import math
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.drafts.calibration import Curves, SourceCount, flat_curve, flat_curves, predict, update
from backend.domain.drafts.policy import (
    EXPLORATION_SHARE,
    FIRST_OF_SOURCE,
    LOCKED_OUT_AFTER,
    Decision,
    Ledger,
    Offerable,
    decide,
)
from backend.domain.drafts.vocabulary import Arm, Kinship

FRESH = 100.0


def taught(n_accepted: int, distance: float = 0.2) -> Curves:
    """After 40 slices in which `n_accepted` of 8 were accepted."""
    curve = flat_curve()
    for _ in range(40):
        curve = update(curve, [SourceCount(distance=distance, n_shown=8, n_accepted=n_accepted)])
    return Curves(slice=curve, label=curve, other=curve)


GOOD, HALF, BAD = taught(8), taught(4), taught(0)
NEW = Ledger(n_lookups=0, n_since_shown=0, spent_microusd=0.0, explored_microusd=0.0)


def offered(*sources: tuple[float, int], verify: float = 20.0) -> list[Offerable]:
    """`(distance, drafts)` of each source."""
    drafts = [(s, distance) for s, (distance, n) in enumerate(sources) for _ in range(n)]
    return [Offerable(index=i, source=s, distance=d, verify_microusd=verify) for i, (s, d) in enumerate(drafts)]


def decided(curves: Curves, offerables: list[Offerable], **changes: Any) -> Decision:
    values = {
        "n_wanted": 12,
        "fresh_microusd": FRESH,
        "overhead_microusd": 100.0,
        "ledger": NEW,
        "rng": random.Random(1),
    } | changes
    return decide(curves, offerables, **values)


@st.composite
def offerables(draw: st.DrawFn) -> list[Offerable]:
    sources = draw(st.lists(st.tuples(st.floats(0, 1.2), st.integers(1, 8)), min_size=0, max_size=4))
    drafts = [(s, distance) for s, (distance, n) in enumerate(sources) for _ in range(n)]
    costs = draw(st.lists(st.floats(0, 150), min_size=len(drafts), max_size=len(drafts)))
    return [
        Offerable(index=i, source=s, distance=d, verify_microusd=v)
        for i, ((s, d), v) in enumerate(zip(drafts, costs, strict=True))
    ]


ledgers = st.builds(
    Ledger,
    n_lookups=st.integers(0, 500),
    n_since_shown=st.integers(0, 60),
    spent_microusd=st.floats(0, 1e6),
    explored_microusd=st.floats(0, 2e4),
)
all_curves = st.sampled_from([flat_curves(), GOOD, HALF, BAD])


@given(
    curves=all_curves,
    drafts=offerables(),
    n=st.integers(0, 14),
    over=st.floats(0, 500),
    ledger=ledgers,
    seed=st.integers(),
)
def test_a_draft_that_is_not_expected_to_pay_is_shown_only_as_a_probe_within_its_allowance(
    curves: Curves, drafts: list[Offerable], n: int, over: float, ledger: Ledger, seed: int
) -> None:
    found = decided(curves, drafts, n_wanted=n, overhead_microusd=over, ledger=ledger, rng=random.Random(seed))
    by_index = {o.index: o for o in drafts}
    nets = [p * FRESH - by_index[i].verify_microusd for i, p in zip(found.shown, found.predicted, strict=True)]
    if found.arm is Arm.OFFERED:
        assert min(nets) > 0
        assert found.expected_net_microusd > 0
        assert found.first or found.expected_net_microusd <= math.fsum(nets) - over + 1e-6
    elif found.arm is Arm.PROBED:
        cost = over + math.fsum(by_index[i].verify_microusd for i in found.shown)
        assert ledger.explored_microusd + cost <= EXPLORATION_SHARE * ledger.spent_microusd + 1e-6
        assert ledger.n_since_shown >= LOCKED_OUT_AFTER
    else:
        assert found.shown == ()


@given(
    curves=all_curves,
    drafts=offerables(),
    n=st.integers(0, 14),
    over=st.floats(0, 500),
    ledger=ledgers,
    seed=st.integers(),
)
def test_a_decision_is_well_formed_and_the_same_again_from_the_same_seed(
    curves: Curves, drafts: list[Offerable], n: int, over: float, ledger: Ledger, seed: int
) -> None:
    found, again = (
        decided(curves, drafts, n_wanted=n, overhead_microusd=over, ledger=ledger, rng=random.Random(seed))
        for _ in range(2)
    )
    assert found == again
    assert len(set(found.shown)) == len(found.shown)
    assert len(found.first or found.shown) <= 2 * n
    assert set(found.first) <= set(found.shown) <= {o.index for o in drafts}
    assert len(found.shown) == len(found.predicted) == len(found.propensity)
    assert all(0 < p <= 1 for p in found.propensity)


def test_where_nothing_is_wanted_nothing_is_shown() -> None:
    overdue = Ledger(n_lookups=99, n_since_shown=99, spent_microusd=1e9, explored_microusd=0.0)
    for curves in (GOOD, BAD):
        assert decided(curves, offered((0.1, 8)), n_wanted=0, ledger=overdue).shown == ()
    assert decided(GOOD, []).arm is Arm.NO_DRAFTS


def test_nothing_is_shown_where_the_drafts_do_not_pay_for_their_request() -> None:
    assert decided(GOOD, offered((0.2, 2)), overhead_microusd=1000.0).arm is Arm.NOT_WORTH
    assert decided(GOOD, offered((0.2, 2)), overhead_microusd=10.0).arm is Arm.OFFERED


def test_the_nearest_source_goes_first_and_the_order_inside_a_source_is_random() -> None:
    drafts = offered((0.3, 4), (0.1, 4))
    orders = Counter(decided(GOOD, drafts, rng=random.Random(seed)).shown[:4] for seed in range(2400))
    assert {i for order in orders for i in order} == {4, 5, 6, 7}
    assert len(orders) == 24
    assert max(orders.values()) < 160, "100 each are expected"


def test_more_than_are_wanted_are_shown_where_some_will_be_refused_but_never_twice_as_many() -> None:
    sources = ((0.2, 8), (0.2, 8), (0.2, 8), (0.2, 8))
    found = decided(HALF, offered(*sources, verify=10.0), n_wanted=6)
    assert 6 < len(found.shown) <= 12
    assert len(decided(GOOD, offered(*sources), n_wanted=6).shown) == 6, "hardly any will be refused"
    assert len(decided(HALF, offered(*sources, verify=0.01), n_wanted=6).shown) == 12


def test_where_refusals_would_cost_more_than_a_request_two_of_each_source_go_first() -> None:
    drafts = offered((0.2, 8), (0.25, 8))
    probing = decided(HALF, drafts, overhead_microusd=50.0)
    by_source = Counter(drafts[i].source for i in probing.first)
    assert by_source == {0: FIRST_OF_SOURCE, 1: FIRST_OF_SOURCE}
    assert set(probing.shown) == set(range(16)), "every other draft that could pay waits for what the first will tell"
    assert {p for i, p in zip(probing.shown, probing.propensity, strict=True) if i in probing.first} == {2 / 8}
    assert decided(HALF, drafts, overhead_microusd=190.0).first == ()
    assert decided(GOOD, drafts, overhead_microusd=50.0).first == (), "hardly any would be refused"


def test_what_was_seen_decides_about_the_rest_of_each_source() -> None:
    drafts = [o for o in offered((0.2, 8), (0.2, 8)) if o.index not in (0, 1, 8, 9)]
    seen = {s: SourceCount(distance=0.2, n_shown=2, n_accepted=n) for s, n in ((0, 0), (1, 2))}
    found = decided(HALF, drafts, n_wanted=10, overhead_microusd=50.0, seen=seen)
    assert {drafts[[o.index for o in drafts].index(i)].source for i in found.shown} == {1}
    assert found.first == ()
    nothing = {s: SourceCount(distance=0.2, n_shown=2, n_accepted=0) for s in (0, 1)}
    assert decided(HALF, drafts, overhead_microusd=50.0, seen=nothing).arm is Arm.NOT_WORTH


def test_a_curve_that_says_never_mends_within_its_allowance() -> None:
    """The drafts would be accepted; the curve was taught that they are not. 2 % of what is spent is enough."""
    curve, spent, explored, n_since = BAD.other, 0.0, 0.0, 0
    drafts = offered((0.2, 8), (0.2, 8))
    arms = []
    for at in range(2000):
        ledger = Ledger(n_lookups=at, n_since_shown=n_since, spent_microusd=spent, explored_microusd=explored)
        found = decided(replace(BAD, other=curve), drafts, ledger=ledger)
        arms.append(found.arm)
        cost = 100.0 + 20.0 * len(found.shown) if found.shown else 0.0
        spent += 1200.0 + cost
        explored += cost if found.arm is Arm.PROBED else 0.0
        n_since = 0 if found.shown else n_since + 1
        assert explored <= EXPLORATION_SHARE * spent
        if found.arm is Arm.OFFERED:
            break
        if found.shown:
            counts = Counter(drafts[i].source for i in found.shown)
            curve = update(curve, [SourceCount(distance=0.2, n_shown=n, n_accepted=n) for n in counts.values()])
    assert arms[:LOCKED_OUT_AFTER] == [Arm.NOT_WORTH] * LOCKED_OUT_AFTER
    assert arms[-1] is Arm.OFFERED
    assert predict(curve, [0.2])[0] > 0.2


def test_the_break_even_is_what_the_plan_would_need() -> None:
    found = decided(GOOD, offered((0.2, 4)), overhead_microusd=40.0)
    assert len(found.shown) == 4
    assert found.break_even == pytest.approx((40 + 4 * 20) / (4 * FRESH))


def test_a_propensity_is_the_share_of_its_sources_drafts() -> None:
    found = decided(GOOD, offered((0.2, 8)), n_wanted=2)
    assert set(found.propensity) == {2 / 8}


def test_each_source_is_judged_by_the_curve_of_its_kinship() -> None:
    curves = Curves(slice=GOOD.other, label=HALF.other, other=BAD.other)
    drafts = [
        Offerable(index=i, source=i, distance=0.2, verify_microusd=20.0, kinship=kinship)
        for i, kinship in enumerate((Kinship.OTHER, Kinship.LABEL, Kinship.SLICE))
    ]
    decision = decided(curves, drafts, overhead_microusd=1.0)
    assert decision.shown == (2, 1)
    assert decision.predicted[0] > 0.9 > decision.predicted[1] > 0.4
