"""Which signal ranks a pool, and what names a text."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from backend.domain.answers.candidates import (
    Candidate,
    Signal,
    Verdict,
    rank_signal,
    text_key,
    with_scores,
)


def candidate(text: str = "where is my refund", **fields: object) -> Candidate:
    return replace(Candidate(id=text, slice_name="refund", text=text), **fields)


PASSED = Verdict(passed=True, score=0.9)


def test_a_pool_is_ranked_by_its_reward_else_by_the_best_signal_that_every_candidate_has() -> None:
    full = candidate(reward=0.1, verdict=PASSED, logprob=-3.0, n_tokens=3)
    judged = replace(full, reward=None)
    assert rank_signal([full, full]) is Signal.REWARD
    assert rank_signal([full, full, judged]) is Signal.REWARD, "more than half have one"
    assert rank_signal([full, judged]) is Signal.VERIFIER
    assert rank_signal([judged, replace(judged, verdict=None)]) is Signal.LOGPROB
    assert rank_signal([judged, candidate()]) is Signal.NONE
    assert rank_signal([]) is Signal.NONE


def test_each_candidate_gets_the_score_of_the_pools_signal() -> None:
    scored = with_scores([candidate(reward=0.7, verdict=PASSED), candidate(verdict=Verdict(passed=False, score=0.2))])
    assert [(c.score, c.signal) for c in scored] == [(0.9, Signal.VERIFIER), (0.2, Signal.VERIFIER)]
    assert [(c.score, c.signal) for c in with_scores([candidate()])] == [(0.0, Signal.NONE)]


def test_a_candidate_without_a_reward_is_placed_among_the_others_by_the_verifiers() -> None:
    rewarded = [
        candidate(reward=reward, verdict=Verdict(passed=True, score=score))
        for reward, score in ((0.1, 0.2), (0.5, 0.4), (0.6, 0.6), (0.9, 0.8))
    ]
    unread = {score: candidate(verdict=Verdict(passed=True, score=score)) for score in (0.0, 0.5, 1.0)}
    scored = with_scores([*rewarded, *unread.values()])
    assert [c.signal for c in scored] == [Signal.REWARD] * 4 + [Signal.VERIFIER] * 3
    assert [c.score for c in scored] == [0.1, 0.5, 0.6, 0.9, 0.1, 0.6, 0.9]


scores = st.floats(min_value=0, max_value=1)


@given(st.lists(st.tuples(scores, scores), min_size=2, max_size=12), st.lists(scores, max_size=1))
def test_no_reward_moves_for_those_that_lack_one(rewarded: list[tuple[float, float]], unread: list[float]) -> None:
    pool = [candidate(reward=reward, verdict=Verdict(passed=True, score=score)) for reward, score in rewarded]
    pool += [candidate(verdict=Verdict(passed=True, score=score)) for score in unread]
    scored = with_scores(pool)
    assert [c.score for c in scored[: len(rewarded)]] == [reward for reward, _ in rewarded]
    assert all(min(r for r, _ in rewarded) <= (c.score or 0.0) <= max(r for r, _ in rewarded) for c in scored)
    assert with_scores(pool[::-1])[::-1] == scored, "the order of the pool changes nothing"


def test_a_log_prob_is_taken_per_token_so_that_length_alone_does_not_win() -> None:
    short, long = candidate(logprob=-4.0, n_tokens=2), candidate(logprob=-6.0, n_tokens=12)
    a, b = with_scores([short, long])
    assert (a.score, b.score) == (-2.0, -0.5)
    assert with_scores([candidate(logprob=-4.0)])[0].score == -4.0


def test_equal_texts_share_a_key_whatever_their_unicode_form_or_outer_space() -> None:
    assert text_key(" caf\u00e9\n") == text_key("cafe\u0301")
    assert text_key("cafe") != text_key("caf\u00e9")
    assert text_key("\ud800") != text_key("")  # a lone surrogate is no reason to fall
