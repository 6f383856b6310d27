"""Families with bad drafts are suspended by label votes, those without are not: simulated slices of ten draft picks and
six fresh picks, of whose good texts 3 % get another label, looked at after every slice. What comes out:

| bad drafts | suspended after (median of 300) |
|---|---|
| 100 % | 8 slices |
| 50 % | 15 |
| 20 % | 35 |
| 13.6 % | 55 |
| 10 % | 80 |
| 6.3 % | 152 |
| 5 % | 228 |
| 3 % | 1,004 |
"""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from backend.domain.confidence_sequences import log_bets, mix_bets
from backend.domain.drafts.judge_controls import Audits, ControlCounts, bad_rate
from backend.domain.drafts.label_votes import FULL_SLICE, LabelVotes, SliceVotes

BOUND = 0.02
NEVER = 10**9
ENOUGH = -math.log(0.05 / 4)  # for drafts beside fresh picks: a quarter of the error
Floats = NDArray[np.float64]


def rates(rng: np.random.Generator, mean: float, correlation: float, shape: tuple[int, int]) -> Floats:
    """Rates of slices whose texts are so correlated: beta-distributed about the mean."""
    if correlation == 0.0 or mean in (0.0, 1.0):
        return np.full(shape, mean)
    scale = (1 - correlation) / correlation
    return rng.beta(mean * scale, (1 - mean) * scale, shape)


def draw(
    rng: np.random.Generator,
    shape: tuple[int, int],
    *,
    bad: Floats | float,
    noise: Floats | float = 0.03,
    n: NDArray[np.int64] | int = 10,
    n_fresh: NDArray[np.int64] | int = 6,
) -> NDArray[np.int64]:
    """(4, runs, slices) of what `SliceVotes` has; `noise` is the share of good texts with another label."""
    counts = np.broadcast_to(n, shape), np.broadcast_to(n_fresh, shape)
    other = rng.binomial(counts[0], bad + (1 - np.asarray(bad)) * noise), rng.binomial(counts[1], noise)
    return np.stack([counts[0], other[0], counts[1], other[1]])


def suspended_after(votes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The slice of each run after which the evidence is enough, by the very bets of the bound; NEVER where it is not.
    That `bad_rate` says the same there, and not yet before, is asserted of the first run."""
    n, other, n_fresh, fresh_other = votes
    bets = log_bets(other / n - fresh_other / n_fresh, np.minimum(n, FULL_SLICE) / FULL_SLICE, BOUND, least=-1.0)
    enough = mix_bets(np.cumsum(bets, axis=-1)) >= ENOUGH
    after = np.where(enough.any(axis=1), enough.argmax(axis=1) + 1, NEVER)
    first = int(min(after[0], votes.shape[2]))
    assert is_suspended(votes[:, 0, :first]) == enough[0, first - 1]
    assert not is_suspended(votes[:, 0, : first - 1])
    return after


def is_suspended(votes: NDArray[np.int64]) -> bool:
    slices = LabelVotes.of(SliceVotes(*map(int, row)) for row in votes.T)
    return bad_rate(Audits(), ControlCounts(), slices).is_above(BOUND)


@pytest.mark.parametrize(
    ("bad", "within"), [(0.063, 220), (0.10, 110), (0.136, 75), (0.20, 45), (0.50, 20), (1.0, 10)]
)  # 6.3 and 13.6 %: a judge that lets 15 % of bad drafts through, where three or five in ten are
def test_a_family_with_bad_drafts_is_suspended(bad: float, within: int) -> None:
    votes = draw(np.random.default_rng(1), (100, 2 * within), bad=bad)
    after = suspended_after(votes)
    assert np.median(after) <= within
    assert np.quantile(after, 0.9) <= 1.5 * within


@pytest.mark.parametrize(("bad", "within"), [(0.03, 1500), (0.05, 320)])
def test_a_family_with_some_bad_drafts_is_suspended_in_the_end(bad: float, within: int) -> None:
    after = suspended_after(draw(np.random.default_rng(2), (300, 4 * within), bad=bad))
    assert np.median(after) <= within
    assert np.quantile(after, 0.9) <= 3 * within


def test_bad_drafts_that_cluster_are_found_almost_as_soon() -> None:
    rng = np.random.default_rng(3)
    shape = (100, 200)
    clustered = draw(rng, shape, bad=rates(rng, 0.2, 0.3, shape), noise=rates(rng, 0.03, 0.3, shape))
    assert np.median(suspended_after(clustered)) <= 55


def test_a_judge_that_is_wrong_about_one_slice_in_five_is_found() -> None:
    rng = np.random.default_rng(4)
    inverted = np.where(np.arange(200) % 5 == 2, 1.0, 0.0)
    assert np.quantile(suspended_after(draw(rng, (100, 200), bad=inverted)), 0.9) <= 60


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("bad", [0.0, 0.01, 0.02])
def test_a_family_within_its_bound_is_not_suspended(bad: float, correlation: float) -> None:
    """In any of 600 slices, whatever clusters in them."""
    rng = np.random.default_rng(5)
    shape = (200, 600)
    votes = draw(rng, shape, bad=rates(rng, bad, correlation, shape), noise=rates(rng, 0.03, correlation, shape))
    assert np.mean(suspended_after(votes) < NEVER) <= 0.03


@pytest.mark.nightly
def test_a_family_at_its_bound_is_hardly_ever_suspended_in_a_long_time() -> None:
    """5,000 slices of all sizes, half of them hard to label, and those use more drafts."""
    rng = np.random.default_rng(6)
    shape = (400, 5000)
    is_hard = rng.random(shape) < 0.5
    noise = np.where(is_hard, rates(rng, 0.2, 0.3, shape), rates(rng, 0.01, 0.3, shape))
    n, n_fresh = np.where(is_hard, 14, rng.integers(1, 6, shape)), np.where(is_hard, 2, rng.integers(4, 12, shape))
    after = suspended_after(draw(rng, shape, bad=rates(rng, 0.02, 0.3, shape), noise=noise, n=n, n_fresh=n_fresh))
    assert np.mean(after < NEVER) <= 0.025


def test_slices_that_are_hard_to_label_and_use_more_drafts_are_no_false_alarm() -> None:
    """All picks together have 11 % of drafts with another label and 4 % of fresh picks, and no draft is bad."""
    rng = np.random.default_rng(7)
    shape = (100, 500)
    is_hard = rng.random(shape) < 0.3
    noise, n, n_fresh = np.where(is_hard, 0.2, 0.01), np.where(is_hard, 14, 4), np.where(is_hard, 2, 12)
    votes = draw(rng, shape, bad=0.0, noise=noise, n=n, n_fresh=n_fresh)
    total = votes.sum(axis=(1, 2))
    assert total[1] / total[0] > 0.1 > 0.05 > total[3] / total[2]
    assert np.mean(suspended_after(votes) < NEVER) <= 0.02


def test_slices_of_drafts_alone_are_found_by_the_fresh_picks_of_others() -> None:
    rng = np.random.default_rng(8)
    early = LabelVotes.of(SliceVotes(*map(int, row)) for row in draw(rng, (1, 60), bad=0.0)[:, 0].T)
    for bad, is_found in ((0.5, True), (0.01, False)):
        alone = draw(rng, (1, 40), bad=bad, n=16, n_fresh=0)[:, 0].T
        votes = early + LabelVotes.of(SliceVotes(*map(int, row)) for row in alone)
        assert bad_rate(Audits(), ControlCounts(), votes).is_above(BOUND) is is_found


def test_a_judge_that_repeats_itself_proves_nothing_and_label_votes_find_it() -> None:
    """It accepts in every audit what it accepted before, half of it bad."""
    audits, controls = Audits(n=800), ControlCounts(n_positive=800, n_positive_accepted=780, n_negative=800)
    measured = bad_rate(audits, controls)
    assert (measured.low, measured.high) == (0.0, 1.0)
    votes = draw(np.random.default_rng(9), (1, 40), bad=0.5)[:, 0].T
    measured = bad_rate(audits, controls, LabelVotes.of(SliceVotes(*map(int, row)) for row in votes))
    assert measured.is_above(BOUND)
    assert measured.estimate == pytest.approx(0.5, abs=0.1)
    assert (measured.high, measured.other_label.high < 0.7) == (1.0, True)


@pytest.mark.parametrize("bad", [0.0, 0.1])
def test_the_upper_bound_of_another_label_holds_and_comes_down(bad: float) -> None:
    rng = np.random.default_rng(10)
    for n_slices, most in ((50, 0.3), (400, 0.15)):
        rows = draw(rng, (20, n_slices), bad=rates(rng, bad, 0.3, (20, n_slices)))
        found = [bad_rate(Audits(), ControlCounts(), LabelVotes.of(SliceVotes(*map(int, r)) for r in run.T)).other_label
                 for run in rows.transpose(1, 0, 2)]  # fmt: skip
        assert all(each.low <= bad * 0.97 <= each.high for each in found)
        assert np.median([each.high for each in found]) <= bad + most
