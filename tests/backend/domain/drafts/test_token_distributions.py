"""What a teacher tells of one place."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.drafts.token_distributions import draw, logsumexp, process_logprobs, whole_place

RAW = [("a", math.log(0.5)), ("b", math.log(0.3)), ("c", math.log(0.2))]


def test_a_whole_place_sums_to_one() -> None:
    assert whole_place(RAW) == pytest.approx({"a": 0.5, "b": 0.3, "c": 0.2})


@pytest.mark.parametrize(
    "told",
    [
        RAW[:2],  # a part of the support
        [],
        [*RAW, ("a", -20.0)],  # one name for two tokens
        [*RAW, ("d", math.log(0.1))],  # more than all
        [("a", math.log(1 - 1e-5))],
    ],
)
def test_anything_else_is_not_known_whole(told: list[tuple[str, float]]) -> None:
    assert whole_place(told) is None


def test_what_is_missing_within_the_tolerance_is_spread() -> None:
    place = whole_place([("a", math.log(0.5)), ("b", math.log(0.5 - 5e-7))])
    assert place is not None
    assert math.fsum(place.values()) == pytest.approx(1.0, abs=1e-15)


def test_processed_is_top_k_then_temperature_then_renormalised() -> None:
    half = dict(process_logprobs(RAW, temperature=0.5, top_k=2))
    assert {t: math.exp(p) for t, p in half.items()} == pytest.approx({"a": 0.25 / 0.34, "b": 0.09 / 0.34})
    assert process_logprobs(RAW, temperature=0.0, top_k=None) == (("a", 0.0),)
    assert dict(process_logprobs(RAW, temperature=1.0, top_k=None)) == pytest.approx(dict(RAW))


@given(st.lists(st.floats(min_value=-50, max_value=0), min_size=1, max_size=8), st.sampled_from([0.2, 0.7, 1.0, 3.0]))
def test_processed_always_sums_to_one_and_keeps_the_order(logs: list[float], temperature: float) -> None:
    told = process_logprobs([(str(i), p) for i, p in enumerate(logs)], temperature=temperature, top_k=5)
    assert logsumexp(p for _, p in told) == pytest.approx(0.0, abs=1e-9)
    assert [p for _, p in told] == sorted((p for _, p in told), reverse=True)


def test_draw_gives_each_token_its_share_in_whatever_order_they_come() -> None:
    place = {"b": 0.3, "a": 0.5, "c": 0.2}
    n = 1000
    counts = Counter(draw(place, (i + 0.5) / n) for i in range(n))
    assert counts == {"a": 500, "b": 300, "c": 200}
    assert draw(dict(reversed(place.items())), 0.6) == draw(place, 0.6) == "b"
    assert draw(place, 1.0) == "c"
