"""Controls recover a judge's error rates; the measured share of bad drafts neither hides nor invents any."""

import functools
import math
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.stats import binom

from backend.domain.confidence_sequences import log_e_below
from backend.domain.drafts.judge_controls import (
    THRESHOLDS,
    Audits,
    ControlCounts,
    GateAudit,
    audits_of,
    bad_rate,
    certified_threshold,
    corrected_rate,
    exact_interval,
    most_refused_good,
)
from backend.domain.drafts.vocabulary import DraftVerdict, VerdictKind
from backend.domain.errors import InvalidInput

MANY = ControlCounts(n_negative=2000, n_negative_accepted=60, n_positive=2000, n_positive_accepted=1900)


def test_published_intervals_are_the_notes() -> None:
    assert [round(bound, 3) for bound in exact_interval(294, 300)] == [0.957, 0.993]
    assert [round(bound, 3) for bound in exact_interval(980, 1000)] == [0.969, 0.988]
    assert exact_interval(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize("n", [1, 7, 40])
def test_an_exact_interval_covers_at_least_as_often_as_it_says(n: int) -> None:
    intervals = [exact_interval(k, n, 0.9) for k in range(n + 1)]
    for rate in np.linspace(0.001, 0.999, 97):
        covered = math.fsum(
            float(binom.pmf(k, n, rate)) for k, (low, high) in enumerate(intervals) if low <= rate <= high
        )
        assert covered >= 0.9


def test_apparent_acceptance_is_corrected_as_in_the_note() -> None:
    assert round(corrected_rate(0.30, 0.95, 0.97), 3) == 0.293
    assert round(corrected_rate(0.60, 0.95, 0.97), 3) == 0.620


@given(st.floats(0, 1), st.floats(0.55, 1), st.floats(0.55, 1))
def test_the_correction_undoes_the_judges_errors(rate: float, sensitivity: float, specificity: float) -> None:
    apparent = rate * sensitivity + (1 - rate) * (1 - specificity)
    assert corrected_rate(apparent, sensitivity, specificity) == pytest.approx(rate, abs=1e-9)


def test_a_correction_is_clipped_and_none_without_controls() -> None:
    assert corrected_rate(0.0, 0.95, 0.9) == 0.0
    assert corrected_rate(1.0, 0.9, 0.9) == 1.0
    assert ControlCounts(n_negative=10).sensitivity is None
    assert ControlCounts(n_positive=10, n_positive_accepted=10).specificity is None
    with pytest.raises(InvalidInput):
        corrected_rate(0.5, 0.3, 0.7)
    with pytest.raises(InvalidInput):
        ControlCounts(n_negative=1, n_negative_accepted=2)
    with pytest.raises(InvalidInput):
        Audits(n=1, n_refused=2)


def test_controls_recover_sensitivity_and_specificity_within_their_intervals() -> None:
    rng = np.random.default_rng(3)
    accepted = rng.binomial(120, 0.95, size=1500), rng.binomial(300, 0.03, size=1500)
    covered = [0, 0]
    for positive, negative in zip(*accepted, strict=True):
        counts = ControlCounts(
            n_positive=120, n_positive_accepted=int(positive), n_negative=300, n_negative_accepted=int(negative)
        )
        low, high = exact_interval(counts.n_positive_accepted, counts.n_positive)
        covered[0] += low <= 0.95 <= high
        low, high = exact_interval(counts.n_negative - counts.n_negative_accepted, counts.n_negative)
        covered[1] += low <= 0.97 <= high
    assert min(covered) / 1500 >= 0.95


@pytest.mark.parametrize("sensitivity", [0.2, 0.45, 0.5, 0.8, 0.95, 0.99])
def test_no_spread_of_good_drafts_is_refused_twice_more_often_than_stated(sensitivity: float) -> None:
    """The worst spread by linear programming over chances p on a grid."""
    p = np.linspace(0, 1, 2001)
    worst = linprog(-p * (1 - p) ** 2, A_eq=np.stack([np.ones_like(p), p]), b_eq=[1.0, sensitivity], bounds=(0, 1))
    assert most_refused_good(sensitivity) == pytest.approx(-worst.fun / sensitivity, abs=1e-6)


def peek(rng: np.random.Generator, *, bad: float, good: tuple[float, float], n: int, every: int) -> list[bool]:
    """Whether the bound of 2 % is found broken, looked at `every` so many audits. Of good drafts a share `good[0]` is
    accepted with chance `good[1]` at each ask, the rest always; bad ones with 3 %."""
    share, chance = good
    sensitivity = 1 - share * (1 - chance)
    hard = rng.random(n) < share * chance / sensitivity  # among good drafts that were accepted
    refuses = np.where(rng.random(n) < bad, 0.97, np.where(hard, 1 - chance, 0.0))
    once = rng.random(n) < refuses
    twice = once & (rng.random(n) < refuses)
    positive, negative = rng.random(n) < sensitivity, rng.random(n) < 0.03
    return [
        bad_rate(
            Audits(n=i, n_refused=int(once[:i].sum()), n_refused_twice=int(twice[:i].sum())),
            ControlCounts(
                n_positive=i,
                n_positive_accepted=int(positive[:i].sum()),
                n_negative=i,
                n_negative_accepted=int(negative[:i].sum()),
            ),
        ).is_above(0.02)
        for i in range(every, n + 1, every)
    ]


@pytest.mark.parametrize(
    "good", [(1.0, 0.95), (0.1, 0.5), (0.05, 0.0)]
)  # the judge's doubt spread evenly, worst, and not at all
def test_a_family_at_its_bound_is_not_suspended(good: tuple[float, float]) -> None:
    rng = np.random.default_rng(11)
    false_alarms = sum(any(peek(rng, bad=0.02, good=good, n=1500, every=150)) for _ in range(40))
    assert false_alarms <= 40 * 0.05


@pytest.mark.parametrize(("bad", "within"), [(0.30, 150), (0.10, 750)])
def test_a_family_far_above_its_bound_is_suspended(bad: float, within: int) -> None:
    rng = np.random.default_rng(12)
    found = [any(peek(rng, bad=bad, good=(1.0, 0.95), n=within, every=75)) for _ in range(20)]
    assert sum(found) >= 18


def test_the_estimated_bad_share_is_unbiased_and_its_bound_holds() -> None:
    rng = np.random.default_rng(13)
    estimates, n_covered = [], 0
    for _ in range(300):
        twice = int(rng.binomial(400, 0.1 * 0.97**2 + 0.9 * 0.05**2))
        once = twice + int(rng.binomial(400 - twice, 0.05))
        controls = ControlCounts(
            n_positive=400,
            n_positive_accepted=int(rng.binomial(400, 0.95)),
            n_negative=800,
            n_negative_accepted=int(rng.binomial(800, 0.03)),
        )
        found = bad_rate(Audits(n=400, n_refused=once, n_refused_twice=twice), controls)
        assert found.estimate is not None
        estimates.append(found.estimate)
        n_covered += found.low <= 0.1
    assert np.mean(estimates) == pytest.approx(0.1, abs=0.003)
    assert n_covered / 300 >= 0.95


def test_without_positive_controls_nobody_is_suspended_and_nothing_rules_bad_drafts_out() -> None:
    nothing = bad_rate(Audits(), ControlCounts())
    assert (nothing.estimate, nothing.low, nothing.high) == (None, 0.0, 1.0)
    all_refused = bad_rate(Audits(n=500, n_refused=500, n_refused_twice=500), ControlCounts(n_negative=500))
    assert all_refused.low == 0.0
    all_accepted = ControlCounts(n_negative=500, n_positive=500, n_positive_accepted=500)
    assert bad_rate(Audits(n=500), all_accepted).high == 1.0


def audit(*asks: bool) -> list[DraftVerdict]:
    return [DraftVerdict(draft_id=UUID(int=1), is_accepted=said, kind=VerdictKind.AUDIT) for said in asks]


def test_the_asks_of_one_audit_are_one_look() -> None:
    void = DraftVerdict(draft_id=UUID(int=1), is_accepted=False, kind=VerdictKind.VOID)
    assert audits_of(audit(True)) == Audits(n=1)
    assert audits_of([void, *audit(False), void, *audit(True)]) == Audits(n=1, n_refused=1)
    assert audits_of([*audit(False), void, *audit(False)]) == Audits(n=1, n_refused=1, n_refused_twice=1)
    assert audits_of([*audit(False), void]) == audits_of([]) == Audits()
    assert Audits(n=1, n_refused=1) + Audits(n=2) == Audits(n=3, n_refused=1)


@functools.cache
def chance_of_certifying(contamination: float, rate: float, share: float) -> float:
    """Exact, looked at after each of 1,500 audits: the evidence for less than `contamination` * 0.97 refusals at a true
    rate of refusals `rate`."""
    alive, certified = np.array([1.0]), 0.0
    k = -1  # the most refusals with which n audits certify
    for n in range(1, 1501):
        alive = np.concatenate([alive, [0.0]]) * (1 - rate) + np.concatenate([[0.0], alive]) * rate
        while k < n and log_e_below(k + 1, n, contamination * 0.97) >= -math.log(share):
            k += 1
        certified += float(alive[: k + 1].sum())
        alive[: k + 1] = 0.0
    return certified


@pytest.mark.parametrize("contamination", [0.05, 0.1, 0.2])
def test_a_contaminated_threshold_is_hardly_ever_certified(contamination: float) -> None:
    share = 0.05 / 2 / len(THRESHOLDS)
    assert chance_of_certifying(contamination, contamination * 0.97, share) <= share
    assert chance_of_certifying(contamination, contamination * 0.97 / 4, share) > 0.9


def gate_audits(rng: np.random.Generator, n: int) -> list[GateAudit]:
    """Scores in [0, 1]; of drafts below 0.8 four in ten are refused, above it one in a hundred."""
    scores = rng.random(n)
    refused = rng.random(n) < np.where(scores < 0.8, 0.4, 0.01)
    return [GateAudit(score=float(s), is_refused=bool(r)) for s, r in zip(scores, refused, strict=True)]


def test_the_least_clean_threshold_is_certified_and_none_without_evidence() -> None:
    audits = gate_audits(np.random.default_rng(1), 3000)
    assert certified_threshold(audits, MANY, contamination=0.1) == 0.8
    assert certified_threshold(audits[:40], MANY, contamination=0.1) is None
    assert certified_threshold(audits, ControlCounts(), contamination=0.1) is None
    assert certified_threshold([], MANY, contamination=0.1) is None
    below = [audit for audit in audits if audit.score < 0.8]
    assert certified_threshold(below, MANY, contamination=0.1) is None
