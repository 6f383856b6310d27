import random

from hypothesis import given, settings
from hypothesis import strategies as st

from backend.domain.rules.splitting import MIN_WORDS, halves
from backend.domain.rules.wording import word_bytes

TEXTS = st.lists(st.lists(st.sampled_from("abcde"), max_size=7).map(" ".join), max_size=12)


def is_near(one: str, other: str) -> bool:
    a, b = word_bytes(one), word_bytes(other)
    if a == b:
        return True
    if min(len(a), len(b)) < MIN_WORDS:
        return False
    without = ({tuple(w[:i] + w[i + 1 :]) for i in range(len(w))} | {tuple(w)} for w in (a, b))
    return bool(next(without) & next(without))


@settings(deadline=None)
@given(TEXTS, st.sampled_from([0.0, 0.4, 0.5]))
def test_texts_that_differ_in_one_word_are_on_one_side(texts: list[str], share: float) -> None:
    proposing, heldout = halves(texts, heldout_share=share, seed=7)
    assert sorted(proposing + heldout) == list(range(len(texts)))
    assert len(heldout) <= share * len(texts)
    assert not any(is_near(texts[i], texts[j]) for i in proposing for j in heldout)


def test_unlike_texts_are_divided_as_asked() -> None:
    rng = random.Random(1)
    texts = [" ".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=10)) for _ in range(500)]
    proposing, heldout = halves(texts, heldout_share=0.4, seed=7)
    assert (len(proposing), len(heldout)) == (300, 200)
    assert halves(texts, heldout_share=0.4, seed=8)[1] != heldout


def test_texts_that_differ_in_a_number_are_near() -> None:
    texts = [f"where is my order number {n}" for n in range(100)]
    assert halves(texts, heldout_share=0.4, seed=7)[1] == []
