"""Replay: the counters of greedy verification."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tests.greedy_replay import Replayed, replay


class Fixed:
    """Proposes what `drafts` has for the number of tokens that have come."""

    def __init__(self, drafts: dict[int, list[int]]) -> None:
        self.drafts, self.came, self.asked = drafts, list[int](), list[int]()

    def propose(self, most: int) -> Sequence[int]:
        self.asked.append(most)
        return self.drafts.get(len(self.came), [])

    def advance(self, token: int) -> None:
        self.came.append(token)


def test_without_drafts_every_token_is_a_step() -> None:
    assert replay([[1, 2, 3], [4]], lambda i: Fixed({}), max_draft=4) == Replayed(
        n_tokens=4, n_steps=4, n_drafted=0, n_accepted=0, n_drafts=0
    )


def test_a_step_gives_the_accepted_tokens_and_one_more() -> None:
    drafts = Fixed({0: [1, 2], 1: [2, 3, 9], 4: [5, 6]})
    counts = replay([[1, 2, 3, 4, 5, 6]], lambda i: drafts, max_draft=4)
    # the first token by itself (no draft is asked for), then 2 3 and 4, then 5 6 and the end
    assert counts == Replayed(n_tokens=6, n_steps=3, n_drafted=5, n_accepted=4, n_drafts=2)
    assert drafts.came == [1, 2, 3, 4, 5, 6]


def test_a_draft_beyond_the_end_of_an_answer_is_cut_by_it() -> None:
    counts = replay([[1, 0]], lambda i: Fixed({1: [0, 7, 7]}), max_draft=4)
    assert counts == Replayed(n_tokens=2, n_steps=2, n_drafted=3, n_accepted=1, n_drafts=1)


def test_a_limit_cuts_the_answer_and_no_draft_reaches_its_last_token() -> None:
    drafts = Fixed({1: [2, 3, 4, 5]})
    counts = replay([[1, 2, 3, 4, 5, 6]], lambda i: drafts, max_draft=4, limit=4)
    assert drafts.asked == [2]
    assert counts == Replayed(n_tokens=4, n_steps=2, n_drafted=2, n_accepted=2, n_drafts=1)


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=12),
    st.dictionaries(st.integers(1, 11), st.lists(st.integers(0, 2), max_size=6)),
    st.integers(1, 5),
    st.none() | st.integers(1, 12),
)
def test_tokens_are_steps_and_accepted_drafts(
    answer: list[int], drafts: dict[int, list[int]], most: int, limit: int | None
) -> None:
    counts = replay([answer], lambda i: Fixed(drafts), max_draft=most, limit=limit)
    assert counts.n_tokens == len(answer[:limit])
    ends_inside = counts.n_tokens - counts.n_steps - counts.n_accepted
    assert ends_inside in (0, -1)  # a draft that holds the last token leaves none for its step to add
    assert counts.n_accepted <= counts.n_drafted <= most * counts.n_drafts
