"""Which signal ranks a pool, and what names a text."""

from dataclasses import replace

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


def test_a_pool_is_ranked_by_the_best_signal_that_every_candidate_has() -> None:
    full = candidate(reward=0.1, verdict=PASSED, logprob=-3.0, n_tokens=3)
    assert rank_signal([full, full]) is Signal.REWARD
    assert rank_signal([full, replace(full, reward=None)]) is Signal.VERIFIER
    assert rank_signal([full, replace(full, reward=None), replace(full, verdict=None)]) is Signal.LOGPROB
    assert rank_signal([full, candidate()]) is Signal.NONE
    assert rank_signal([]) is Signal.NONE


def test_each_candidate_gets_the_score_of_the_pools_signal() -> None:
    scored = with_scores([candidate(reward=5.0, verdict=PASSED), candidate(verdict=Verdict(passed=False, score=0.2))])
    assert [(c.score, c.signal) for c in scored] == [(0.9, Signal.VERIFIER), (0.2, Signal.VERIFIER)]
    assert [(c.score, c.signal) for c in with_scores([candidate()])] == [(0.0, Signal.NONE)]


def test_a_log_prob_is_taken_per_token_so_that_length_alone_does_not_win() -> None:
    short, long = candidate(logprob=-4.0, n_tokens=2), candidate(logprob=-6.0, n_tokens=12)
    a, b = with_scores([short, long])
    assert (a.score, b.score) == (-2.0, -0.5)
    assert with_scores([candidate(logprob=-4.0)])[0].score == -4.0


def test_equal_texts_share_a_key_whatever_their_unicode_form_or_outer_space() -> None:
    assert text_key(" caf\u00e9\n") == text_key("cafe\u0301")
    assert text_key("cafe") != text_key("caf\u00e9")
    assert text_key("\ud800") != text_key("")  # a lone surrogate is no reason to fall
