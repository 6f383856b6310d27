"""Prices are exact, dated and never invented; estimates contain what a compile costs."""

from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.errors import InvalidSpec
from backend.domain.money.pricing import Price, cost_microusd, price_book, price_books, teacher_price
from backend.domain.spec.parsing import DeclaredPrice

DECLARED = DeclaredPrice(input_usd_per_mtok=Decimal("0.15"), output_usd_per_mtok=Decimal("0.6"))


def test_the_built_in_prices() -> None:
    price = teacher_price(price_book(), "kolm-grammar-1", None)
    assert price.cost_microusd(input_tokens=1_000_000, output_tokens=0) == 100_000
    assert price.cost_microusd(input_tokens=0, output_tokens=1_000_000) == 400_000
    prices = price_book().prices
    assert cost_microusd(1000, prices["runner.second"]) == 150_000
    assert cost_microusd(1_000_000, prices["embedding.token"]) == 10_000


def test_a_spec_brings_the_price_of_a_model_that_the_book_does_not_know() -> None:
    price = teacher_price(price_book(), "vendor/model", DECLARED)
    assert price.cost_microusd(input_tokens=2_000_000, output_tokens=1_000_000) == 900_000
    assert price.version.startswith("declared-")
    assert len(price.version) <= 64
    assert price.input.sku == "teacher.vendor/model.input_token"


def test_a_declared_price_goes_before_the_book() -> None:
    price = teacher_price(price_book(), "kolm-grammar-1", DECLARED)
    assert price.cost_microusd(input_tokens=1_000_000, output_tokens=0) == 150_000


def test_equal_declarations_have_equal_versions() -> None:
    same = DeclaredPrice(input_usd_per_mtok=Decimal("0.150"), output_usd_per_mtok=Decimal("0.60"))
    other = DeclaredPrice(input_usd_per_mtok=Decimal("0.151"), output_usd_per_mtok=Decimal("0.60"))
    versions = [teacher_price(price_book(), "m", declared).version for declared in (DECLARED, same, other)]
    assert versions[0] == versions[1] != versions[2]


def test_an_unknown_model_without_a_price_is_refused_with_what_to_add() -> None:
    with pytest.raises(InvalidSpec) as caught:
        teacher_price(price_book(), "gpt-unknown", None)
    assert caught.value.code == "unknown_teacher_price"
    problem = caught.value.problems[0]
    assert (problem.pointer, problem.code) == ("/teacher/price", "unknown_teacher_price")
    assert "input_usd_per_mtok" in problem.message


def test_the_book_in_force_is_the_newest_not_after_the_time() -> None:
    assert price_book(datetime(2026, 11, 1, tzinfo=UTC)) is price_books()[0]
    assert price_book(datetime(2030, 1, 1, tzinfo=UTC)) is price_books()[-1]
    with pytest.raises(LookupError):
        price_book(datetime(2026, 10, 31, 23, 59, tzinfo=UTC))


def test_a_book_cannot_be_edited_and_its_digest_is_that_of_its_canonical_form() -> None:
    with pytest.raises(TypeError):
        price_book().prices["runner.second"] = price_book().prices["embedding.token"]  # type: ignore[index]
    # a change here is a change of history: add a book instead
    assert price_books()[0].sha256 == "cf21a8ae9d04565aba467d53574e0be0308301432f954c14948d17b8bdff15ad"
    assert [book.effective_at for book in price_books()] == sorted(book.effective_at for book in price_books())


decimals = st.decimals(min_value=0, max_value=10_000, places=6, allow_nan=False, allow_infinity=False)


@given(quantity=st.integers(0, 10**12), usd=decimals)
def test_an_amount_is_the_exact_product_rounded_half_to_even_once(quantity: int, usd: Decimal) -> None:
    price = Price(sku="x", unit="token", usd_per_unit=usd / 1_000_000)
    exact = Fraction(quantity) * Fraction(usd)  # micro-USD
    assert cost_microusd(quantity, price) == round(exact)


def test_half_a_micro_dollar_goes_to_the_even_neighbour() -> None:
    price = Price(sku="x", unit="token", usd_per_unit=Decimal("0.0000005"))
    assert [cost_microusd(n, price) for n in (1, 2, 3, 5)] == [0, 1, 2, 2]


def test_one_call_is_rounded_once() -> None:
    price: Any = teacher_price(
        price_book(), "m", DeclaredPrice(input_usd_per_mtok=Decimal("0.4"), output_usd_per_mtok=Decimal("0.4"))
    )
    assert price.cost_microusd(input_tokens=1, output_tokens=1) == 1  # 0.4 + 0.4, not 0 + 0


FOUR_PRICES = DeclaredPrice(
    input_usd_per_mtok=Decimal(1),
    output_usd_per_mtok=Decimal(4),
    cached_input_usd_per_mtok=Decimal("0.1"),
    cache_write_usd_per_mtok=Decimal("1.25"),
)


def test_cached_and_written_input_have_prices_of_their_own() -> None:
    price = teacher_price(price_book(), "m", FOUR_PRICES)
    assert price.cost_microusd(input_tokens=1000, output_tokens=100) == 1400
    assert price.cost_microusd(input_tokens=1000, output_tokens=100, cached_tokens=600) == 400 + 60 + 400
    assert price.cost_microusd(input_tokens=1000, output_tokens=100, cache_write_tokens=400) == 600 + 500 + 400
    assert price.most_microusd(input_tokens=1000, output_tokens=100) == 1250 + 400


def test_without_them_cached_and_written_input_is_billed_as_input() -> None:
    for price in (teacher_price(price_book(), "m", DECLARED), teacher_price(price_book(), "kolm-grammar-1", None)):
        plain = price.cost_microusd(input_tokens=10_000, output_tokens=7)
        assert price.cost_microusd(input_tokens=10_000, output_tokens=7, cached_tokens=9, cache_write_tokens=5) == plain
        assert price.most_microusd(input_tokens=10_000, output_tokens=7) == plain


def test_a_declaration_of_two_prices_keeps_the_version_it_had_before_there_were_four() -> None:
    assert teacher_price(price_book(), "m", DECLARED).version == "declared-d6f98f07cf218e6b"
    assert (
        teacher_price(price_book(), "m", FOUR_PRICES).version
        != teacher_price(price_book(), "m", FOUR_PRICES.model_copy(update={"cache_write_usd_per_mtok": None})).version
    )


usages = st.tuples(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))


@given(counts=usages, usd=st.tuples(decimals, decimals, decimals, decimals), most=st.integers(0, 10**9))
def test_the_parts_of_a_call_add_up_to_it_and_never_to_more_than_was_set_aside(
    counts: tuple[int, int, int, int], usd: tuple[Decimal, Decimal, Decimal, Decimal], most: int
) -> None:
    plain, cached, written, output = counts
    declared = DeclaredPrice(
        input_usd_per_mtok=usd[0],
        cached_input_usd_per_mtok=usd[1],
        cache_write_usd_per_mtok=usd[2],
        output_usd_per_mtok=usd[3],
    )
    price = teacher_price(price_book(), "m", declared)
    total = plain + cached + written
    tokens = {"input_tokens": total, "output_tokens": output, "cached_tokens": cached, "cache_write_tokens": written}
    parts = price.parts(**tokens, most_microusd=most)
    assert sum(part.amount_microusd for part in parts) == min(most, price.cost_microusd(**tokens))
    assert sum(part.quantity for part in parts) == total + output
    assert all(part.amount_microusd >= 0 for part in parts)
    assert price.cost_microusd(**tokens) <= price.most_microusd(input_tokens=total, output_tokens=output)
    exact = sum(Fraction(n) * Fraction(u) for n, u in zip(counts, usd, strict=True))
    assert price.cost_microusd(**tokens) == round(exact)


def test_a_call_without_a_prompt_cache_has_two_parts() -> None:
    price = teacher_price(price_book(), "m", FOUR_PRICES)
    parts = price.parts(input_tokens=100, output_tokens=0, most_microusd=10**6)
    assert [(part.kind, part.quantity, part.amount_microusd) for part in parts] == [
        ("input", 100, 100),
        ("output", 0, 0),
    ]
