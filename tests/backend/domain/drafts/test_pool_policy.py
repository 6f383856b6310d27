"""Which drafts compete unverified: those that pay if only the picked ones are asked about, and few that do not."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.drafts.calibration import Curves, SourceCount, flat_curve, flat_curves, prior_curves, update
from backend.domain.drafts.policy import EXPLORATION_SHARE, LOCKED_OUT_AFTER, Ledger, Offerable, decide
from backend.domain.drafts.pool_policy import (
    FLOOR,
    ODD_ONE_OUT,
    PoolDecision,
    decide_pool,
    in_pool,
)
from backend.domain.drafts.vocabulary import Arm, Kinship

FRESH = 86.0
NEW = Ledger(n_lookups=0, n_since_shown=0, spent_microusd=0.0, explored_microusd=0.0)
DUE = Ledger(n_lookups=99, n_since_shown=LOCKED_OUT_AFTER, spent_microusd=1e6, explored_microusd=0.0)


def learnt(n_accepted: int) -> Curves:
    """After 40 slices in which `n_accepted` of 8 were accepted, whatever the kinship."""
    curve = flat_curve()
    for _ in range(40):
        curve = update(curve, [SourceCount(distance=0.2, n_shown=8, n_accepted=n_accepted)])
    return Curves(slice=curve, label=curve, other=curve)


GOOD, HALF, BAD = learnt(8), learnt(4), learnt(0)


def offered(*sources: tuple[float, int], verify: float = 20.0, kinship: Kinship = Kinship.OTHER) -> list[Offerable]:
    """`(distance, drafts)` of each source."""
    drafts = [(s, distance) for s, (distance, n) in enumerate(sources) for _ in range(n)]
    return [
        Offerable(index=i, source=s, distance=d, verify_microusd=verify, kinship=kinship)
        for i, (s, d) in enumerate(drafts)
    ]


def decided(curves: Curves, offerables: list[Offerable], **changes: Any) -> PoolDecision:
    values = {
        "n_wanted": 24,
        "k": 8,
        "fresh_microusd": FRESH,
        "overhead_microusd": 70.0,
        "ledger": NEW,
        "rng": random.Random(1),
    } | changes
    return decide_pool(curves, offerables, **values)


@st.composite
def offerables(draw: st.DrawFn) -> list[Offerable]:
    sources = draw(st.lists(st.tuples(st.floats(0, 1.2), st.integers(1, 6), st.sampled_from(Kinship)), max_size=3))
    return [
        Offerable(index=7 * s + i, source=s, distance=distance, verify_microusd=draw(st.floats(0, 60)), kinship=kinship)
        for s, (distance, n, kinship) in enumerate(sources)
        for i in range(n)
    ]


ledgers = st.builds(
    Ledger,
    n_lookups=st.integers(0, 500),
    n_since_shown=st.integers(0, 60),
    spent_microusd=st.floats(0, 1e6),
    explored_microusd=st.floats(0, 2e4),
)


@given(
    curves=st.sampled_from([flat_curves(), prior_curves(), GOOD, HALF, BAD]),
    drafts=offerables(),
    n=st.integers(0, 14),
    k=st.integers(1, 14),
    there=st.integers(0, 8),
    over=st.floats(0, 500),
    ledger=ledgers,
    seed=st.integers(),
)
def test_a_decision_is_well_formed_keeps_its_floor_and_its_allowance(
    curves: Curves, drafts: list[Offerable], n: int, k: int, there: int, over: float, ledger: Ledger, seed: int
) -> None:
    one, again = (
        decided(curves, drafts, n_wanted=n, k=k, n_there=there, overhead_microusd=over, ledger=ledger, rng=rng)
        for rng in (random.Random(seed), random.Random(seed))
    )
    assert one == again
    assert set(one.pooled) <= {draft.index for draft in drafts}
    assert len(set(one.pooled)) == len(one.pooled) == len(one.predicted) == len(one.propensity) <= 2 * n
    assert list(one.predicted) == sorted(one.predicted, reverse=True) or len({d.verify_microusd for d in drafts}) > 1
    assert all(0 < share <= 1 for share in one.propensity)
    assert 0 <= one.n_counted <= min(n, sum(one.predicted) + 1e-6)
    assert 0 <= one.expected_asked <= len(one.pooled)
    if one.arm is Arm.OFFERED:
        assert one.expected_net_microusd > 0
        assert one.n_counted > 0
        assert min(one.predicted) >= FLOOR
        assert one.expected_net_microusd <= one.n_counted * FRESH - over + 1e-6
    elif one.arm is Arm.PROBED:
        assert one.n_counted == 0
        assert ledger.n_since_shown >= LOCKED_OUT_AFTER
        assert ledger.explored_microusd + over <= EXPLORATION_SHARE * ledger.spent_microusd + 1e-6
    else:
        assert one.pooled == ()


def test_kin_is_pooled_from_the_first_compile_on_where_asking_about_all_would_not_pay() -> None:
    """Twelve tokens at 5:1: before selection half have to be accepted, of the picks a sixth."""
    drafts = offered((0.15, 16), (0.2, 16), verify=42.0, kinship=Kinship.SLICE)
    before = decide(
        flat_curves(),
        drafts,
        n_wanted=24,
        fresh_microusd=FRESH,
        overhead_microusd=220.0,
        ledger=NEW,
        rng=random.Random(1),
    )
    after = decided(prior_curves(), drafts)
    assert before.arm is Arm.NOT_WORTH
    assert after.arm is Arm.OFFERED
    assert after.n_counted >= 18
    assert after.break_even < 0.35


def test_what_is_asked_is_what_a_draw_of_the_picks_asks() -> None:
    """Certain drafts are a share of the picks; of hopeless ones the odd ones are met more often, and replaced."""
    sure = decided(GOOD, offered((0.2, 12)))
    assert sure.expected_asked == pytest.approx(sum(sure.predicted) * 8 / 24, rel=0.1)
    rng = random.Random(3)
    n_fresh, n_right, n_wrong, k, total = 14, 8, 6, 8, 0
    for _ in range(4000):
        weights = [1.0] * (n_fresh + n_right) + [ODD_ONE_OUT] * n_wrong
        order = sorted(range(len(weights)), key=lambda i, w=weights: rng.expovariate(w[i]))  # type: ignore[misc]
        n_valid = 0
        for at in order:
            total += at >= n_fresh
            n_valid += at < n_fresh + n_right
            if n_valid == k:
                break
    q = k / (n_fresh + n_right)
    assert total / 4000 == pytest.approx(q * n_right + (1 - (1 - q) ** ODD_ONE_OUT) * n_wrong, rel=0.06)


def test_nothing_below_the_floor_enters_however_cheap_asking_is() -> None:
    assert decided(BAD, offered((0.2, 16), verify=0.0), overhead_microusd=0.0).arm is Arm.NOT_WORTH
    assert decided(HALF, offered((0.2, 16), verify=0.0), overhead_microusd=0.0).arm is Arm.OFFERED
    assert decided(HALF, offered((0.2, 16), verify=0.0), overhead_microusd=0.0, floor=0.6).arm is Arm.NOT_WORTH
    mixed = [*offered((0.2, 8), kinship=Kinship.SLICE), *offered((0.2, 0), (0.2, 8))]
    drafts = [
        Offerable(index=i, source=d.source, distance=d.distance, verify_microusd=1.0, kinship=d.kinship)
        for i, d in enumerate(mixed)
    ]
    curves = Curves(slice=GOOD.slice, label=GOOD.label, other=BAD.other)
    assert set(decided(curves, drafts).pooled) == set(range(8))


def test_where_nothing_is_wanted_or_the_request_does_not_pay_nothing_enters() -> None:
    assert decided(GOOD, offered((0.1, 8)), n_wanted=0, ledger=DUE).arm is Arm.NOT_WORTH
    assert decided(GOOD, []).arm is Arm.NO_DRAFTS
    assert decided(GOOD, offered((0.1, 8)), overhead_microusd=1e4).arm is Arm.NOT_WORTH


def test_more_than_are_wanted_are_pooled_where_many_are_expected_to_be_refused() -> None:
    decision = decided(HALF, offered((0.2, 16), (0.2, 16), (0.2, 16)), n_wanted=12)
    assert 18 <= len(decision.pooled) <= 24
    assert decision.n_counted < 0.6 * len(decision.pooled)


def test_candidates_that_are_there_already_take_their_share_of_the_picks() -> None:
    alone, beside = (decided(GOOD, offered((0.2, 12)), n_wanted=12, n_there=n) for n in (0, 12))
    assert beside.expected_asked < 0.6 * alone.expected_asked


def test_a_curve_that_says_never_is_probed_when_due_with_two_drafts_a_source() -> None:
    drafts = offered((0.2, 8), (0.3, 8))
    assert decided(BAD, drafts).arm is Arm.NOT_WORTH
    probe = decided(BAD, drafts, ledger=DUE)
    assert probe.arm is Arm.PROBED
    assert [drafts[i].source for i in probe.pooled] == [0, 0, 1, 1]
    assert set(probe.propensity) == {2 / 8}
    spent = Ledger(n_lookups=99, n_since_shown=50, spent_microusd=1e6, explored_microusd=0.02e6)
    assert decided(BAD, drafts, ledger=spent).arm is Arm.NOT_WORTH


def test_what_verdicts_on_picks_say_is_turned_back_into_what_is_true_of_the_pool() -> None:
    """Three quarters of a pool are right; its picks, a third of it, are drawn as selection draws them."""
    rng = random.Random(7)
    right = asked = 0
    for _ in range(3000):
        clocks = [
            (rng.expovariate(1.0 if is_right else ODD_ONE_OUT), is_right) for is_right in [True] * 18 + [False] * 6
        ]
        picks = [is_right for _, is_right in sorted(clocks)[:8]]
        right, asked = right + sum(picks), asked + len(picks)
    assert right / asked < 0.68
    assert in_pool(right / asked, 8 / 24) == pytest.approx(0.75, abs=0.02)
    assert in_pool(0.6, 1.0) == pytest.approx(0.6)
