"""Label votes bound the share of drafts of another label, whatever moves together in a slice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.drafts.label_votes import LabelVotes, SliceVotes, other_label
from backend.domain.errors import InvalidInput

GOOD = SliceVotes(10, 0, 6, 0)
slice_votes = st.tuples(st.integers(0, 12), st.integers(0, 12), st.integers(0, 8), st.integers(0, 8)).map(
    lambda n: SliceVotes(n[0], min(n[0], n[1]), n[2], min(n[2], n[3]))
)


@given(st.lists(slice_votes, max_size=30))
def test_votes_are_kept_as_counts_and_read_as_they_were(slices: list[SliceVotes]) -> None:
    votes = LabelVotes.of(slices)
    assert LabelVotes.from_json(votes.to_json()) == votes
    assert votes.total == tuple(map(sum, zip(SliceVotes(), *slices, strict=True)))
    assert LabelVotes.of(slices[:7]) + LabelVotes.of(slices[7:]) == votes


@given(st.lists(slice_votes, max_size=30))
def test_the_bounds_are_shares_and_hold_the_estimate(slices: list[SliceVotes]) -> None:
    measured = other_label(LabelVotes.of(slices))
    assert 0.0 <= measured.low <= measured.high <= 1.0
    assert measured.estimate is None or measured.low <= measured.estimate


def test_without_votes_nothing_is_known() -> None:
    nothing = other_label(LabelVotes())
    assert (nothing.estimate, nothing.low, nothing.high) == (None, 0.0, 1.0)
    alone = other_label(LabelVotes.of([SliceVotes(n_drafts=10, n_drafts_other=10)] * 50))
    assert (alone.estimate, alone.low) == (None, 0.0)  # perhaps everything is labelled so


def test_what_fresh_picks_of_the_slice_do_too_is_not_held_against_its_drafts() -> None:
    hard = other_label(LabelVotes.of([SliceVotes(10, 5, 6, 3)] * 100 + [SliceVotes(0, 0, 16, 0)] * 100))
    assert (hard.estimate, hard.low) == (0.0, 0.0)
    assert other_label(LabelVotes.of([SliceVotes(10, 5, 6, 0)] * 100)).low > 0.4


def test_a_slice_without_fresh_picks_is_compared_with_all_of_them() -> None:
    drafts_alone = [SliceVotes(n_drafts=16, n_drafts_other=16)] * 20
    few, many = (other_label(LabelVotes.of([GOOD] * n + drafts_alone)) for n in (5, 60))
    assert few.low < 0.02 < 0.5 < many.low
    assert other_label(LabelVotes.of([GOOD] * 60 + [SliceVotes(n_drafts=16)] * 20)).low == 0.0


def test_a_small_slice_weighs_less_than_a_full_one() -> None:
    small, full = (other_label(LabelVotes.of([SliceVotes(n, n // 2, 6, 0)] * 20)) for n in (2, 8))
    assert small.low < full.low
    assert small.estimate == full.estimate == 0.5


@pytest.mark.parametrize("votes", [(3, 4, 0, 0, 1), (3, 0, 1, 2, 1), (3, -1, 0, 0, 1), (3, 0, 0, 0, -1)])
def test_votes_that_cannot_be_are_refused(votes: tuple[int, ...]) -> None:
    with pytest.raises(InvalidInput):
        LabelVotes.from_json([votes])
