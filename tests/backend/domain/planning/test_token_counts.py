"""Tokens without a tokenizer: by words, by bytes, or by the script of each character."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.planning.token_counts import Counting, Script, count_tokens, counting_of_base, script_of


@pytest.mark.parametrize(
    ("text", "gemma", "minilm"),
    [
        # counted with the two tokenizers themselves, special tokens left out
        ("I was charged twice for the same pair of shoes, can you give me back the second payment?", 20, 20),
        ("Bitte überprüfen Sie Ihre Eingabe und versuchen Sie es später noch einmal.", 14, 28),
        ("Пожалуйста, исправьте ошибку ниже и попробуйте ещё раз.", 15, 48),
        ("上着を返品したいので返金してください", 9, 18),
    ],
)
def test_a_count_is_near_that_of_the_tokenizers(text: str, gemma: int, minilm: int) -> None:
    assert count_tokens(text, Counting.MODEL) == pytest.approx(gemma, rel=0.45)  # one sentence; a task's are nearer
    assert count_tokens(text, Counting.ENCODER) == pytest.approx(minilm, rel=0.25)


def test_one_accent_says_that_the_language_is_not_english() -> None:
    plain, german = "Wo ist mein Paket geblieben", "Wo ist mein Päckchen geblieben"
    assert count_tokens(german, Counting.ENCODER) > 1.3 * count_tokens(plain, Counting.ENCODER)
    assert count_tokens("word " * 1000 + "café", Counting.ENCODER) < 1.01 * count_tokens(
        "word " * 1001, Counting.ENCODER
    )


@given(st.text(max_size=200), st.sampled_from(Counting))
def test_every_text_has_a_count_and_white_space_alone_is_at_most_its_bytes(text: str, by: Counting) -> None:
    text = text.encode("utf-8", "ignore").decode()
    assert 0 <= count_tokens(text, by) <= max(1, 2 * len(text.encode()))


def test_every_character_has_a_script() -> None:
    assert {script_of(chr(point)) for point in range(0x30000)} == set(Script)


def test_an_encoder_of_many_languages_counts_as_a_large_model_does() -> None:
    assert counting_of_base("sentence-transformers/all-MiniLM-L6-v2") is Counting.ENCODER
    assert counting_of_base("BAAI/bge-m3") is Counting.MODEL
