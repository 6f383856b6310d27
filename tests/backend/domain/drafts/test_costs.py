"""Verifying costs money: break-even acceptances against the formula, and what they may not depend on."""

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.drafts.costs import (
    Quote,
    break_even,
    fresh_microusd,
    judge_quote,
    score_quote,
)
from backend.domain.money.pricing import TeacherPrice, price_book, teacher_price
from backend.domain.spec.parsing import DeclaredPrice

CONTROLS_TOKENS = 200  # a judge's instructions and planted controls
N = 12


def price(ratio: int, cached: str = "0.1") -> TeacherPrice:
    """One dollar in, `ratio` out, a tenth for cached input."""
    usd = {"input_usd_per_mtok": 1, "output_usd_per_mtok": ratio, "cached_input_usd_per_mtok": Decimal(cached)}
    return teacher_price(price_book(), "m", DeclaredPrice.model_validate(usd))


@pytest.mark.parametrize(
    ("length", "prompt", "ratio", "is_cached", "expected"),
    [
        (500, 800, 5, False, 0.231),
        (500, 2000, 5, True, 0.210),
        (500, 800, 8, False, 0.147),
        (60, 800, 5, False, 0.418),
        (60, 2000, 5, True, 0.279),
    ],
)
def test_a_judges_break_even_is_the_formulas(
    length: int, prompt: int, ratio: int, is_cached: bool, expected: float
) -> None:
    whole = prompt + CONTROLS_TOKENS
    quote = judge_quote(
        prompt_tokens=whole, draft_tokens=[length] * N, price=price(ratio), cached_tokens=whole if is_cached else 0
    )
    fresh = fresh_microusd(
        prompt_tokens=prompt,
        n_per_call=N,
        output_tokens=length,
        price=price(ratio),
        cached_tokens=prompt if is_cached else 0,
    )
    r, k = 1 / ratio, 0.1 if is_cached else 1.0
    formula = (whole * r * k / N + length * r + 2) / (length + prompt * r * k / N)
    assert break_even(quote, fresh) == pytest.approx(formula, rel=1e-12)
    assert round(formula, 3) == expected


def test_a_batch_price_halves_both_sides_and_moves_nothing() -> None:
    def at(share: str) -> float:
        usd = {"input_usd_per_mtok": Decimal(share), "output_usd_per_mtok": Decimal(share) * 5}
        each = teacher_price(price_book(), "m", DeclaredPrice.model_validate(usd))
        quote = judge_quote(prompt_tokens=1000, draft_tokens=[500] * N, price=each)
        return break_even(quote, fresh_microusd(prompt_tokens=800, n_per_call=N, output_tokens=500, price=each))

    assert at("1") == pytest.approx(at("0.5"), rel=1e-12)


def test_where_there_is_nothing_to_save_nothing_pays() -> None:
    assert break_even(Quote(overhead_microusd=1.0, per_draft_microusd=()), 10.0) == math.inf
    assert break_even(Quote(overhead_microusd=0.0, per_draft_microusd=(1.0,)), 0.0) == math.inf


def test_scoring_pays_only_below_the_divergence_of_one_over_r_times_the_length() -> None:
    """One expected kept token saves an output token; the whole draft is paid as input (prompt cached for nothing)."""
    one = price(5, cached="0")

    def net(length: int, tv: float) -> float:
        quote = score_quote(prompt_tokens=800, draft_tokens=[length], price=one, cached_tokens=800)
        kept_tokens = math.fsum((1 - tv) ** i for i in range(1, length + 1))
        return kept_tokens * 5 - quote.whole_microusd

    for length, limit in ((500, 0.010), (60, 0.083)):
        assert net(length, limit * 0.8) > 0 > net(length, limit * 1.25)


@given(n=st.integers(1, 400), chunk=st.integers(1, 400), tv=st.floats(0, 1))
def test_chunks_never_cost_less_than_their_first_nor_more_than_all_of_them(n: int, chunk: int, tv: float) -> None:
    def whole(tv_per_token: float) -> float:
        return score_quote(
            prompt_tokens=100, draft_tokens=[n], price=price(5), tv_per_token=tv_per_token, chunk_tokens=chunk
        ).whole_microusd

    assert 100 + min(n, chunk) - 1e-6 <= whole(tv) <= whole(0.0) + 1e-6


def test_a_chunk_bounds_what_a_draft_that_breaks_at_once_wastes() -> None:
    prices = price(5)
    at_once = score_quote(prompt_tokens=0, draft_tokens=[500], price=prices, tv_per_token=0.9)
    chunked = score_quote(prompt_tokens=0, draft_tokens=[500], price=prices, tv_per_token=0.9, chunk_tokens=16)
    assert at_once.whole_microusd == 500
    assert chunked.whole_microusd == pytest.approx(16, abs=1e-9)
