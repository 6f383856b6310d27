from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.domain.rules.wording import placed_words, word_bytes, words_of

TEXTS = st.text(st.characters() | st.sampled_from("aZ09 '’.-\n注ÄЖΣ😀\u2028\ud800"), max_size=30)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't RE-ORDER item #12!", ["dont", "re", "order", "item", "12"]),
        ("It’s 'quoted'", ["its", "quoted"]),
        ("GRÖSSE, ΟΔΟΣ, ЁЛКА", ["grösse", "οδοσ", "ёлка"]),
        ("我要退款 ok", ["我", "要", "退", "款", "ok"]),
        ("a\u2028b\u00a0c\u3000d…e", ["a", "b", "c", "d", "e"]),
        ("😀😀 x", ["😀😀", "x"]),
        ("' ’ '", []),
    ],
)
def test_words_are_what_stands_between_separators(text: str, words: list[str]) -> None:
    assert words_of(text) == words


@settings(deadline=None)
@given(TEXTS)
def test_each_word_is_placed_where_it_stands(text: str) -> None:
    words, spans = placed_words(text)
    assert words == word_bytes(text)
    assert [word_bytes(text[start:end]) for start, end in spans] == [[word] for word in words]
    assert all(one[1] <= other[0] for one, other in pairwise(spans))


@settings(deadline=None)
@given(TEXTS)
def test_words_are_their_own_normal_form(text: str) -> None:
    assert words_of(" ".join(words_of(text))) == words_of(text)
