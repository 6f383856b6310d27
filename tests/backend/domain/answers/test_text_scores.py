"""ROUGE-L against a table filled in by hand, and what it says of texts."""

import time

from hypothesis import given
from hypothesis import strategies as st

from backend.domain.answers.text_scores import lcs_length, rouge_l, text_consensus, tokens

words = st.lists(st.sampled_from("abcd"), max_size=14)


@given(words, words)
def test_the_common_subsequence_is_the_longest(a: list[str], b: list[str]) -> None:
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a, start=1):
        for j, y in enumerate(b, start=1):
            table[i][j] = table[i - 1][j - 1] + 1 if x == y else max(table[i - 1][j], table[i][j - 1])
    assert lcs_length(a, b) == table[-1][-1]


@given(words, words)
def test_rouge_is_symmetric_and_one_only_for_equal_words(a: list[str], b: list[str]) -> None:
    one, other = rouge_l(" ".join(a), " ".join(b)), rouge_l(" ".join(b), " ".join(a))
    assert one == other
    assert (one == 1_000_000) == (a == b)
    assert (one == 0) == (not set(a) & set(b) and a + b != [])


def test_case_punctuation_and_form_do_not_count() -> None:
    assert tokens("The cat's  Ｈat, 2026!") == ["the", "cat", "s", "hat", "2026"]
    assert rouge_l("Kind regards!", "kind REGARDS") == 1_000_000
    assert rouge_l("", "") == 1_000_000
    assert rouge_l("", "x") == 0


def test_a_long_text_costs_milliseconds() -> None:
    a, b = "ab cd " * 10_000, "cd ab " * 10_000
    started = time.process_time()
    assert rouge_l(a, b) > 990_000
    assert time.process_time() - started < 0.5


def test_the_consensus_of_texts_is_the_one_in_the_middle() -> None:
    samples = ["we refund you today", "we refund you", None, "no"]
    found = text_consensus(samples, 4)
    assert found.index == 0
    assert found.agreement_ppm == (1_000_000 + rouge_l(samples[0], samples[1])) // 4
