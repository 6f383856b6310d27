"""Which price a teacher has, and that a compile keeps it."""

import json
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.canonical import canonical_json
from backend.domain.errors import InvalidSpec
from backend.domain.money.pricing import LINE_TO_PASTE, price_book
from backend.domain.money.teacher_prices import (
    TeacherPrices,
    kept_prices,
    price_json,
    price_of_json,
    price_sentence,
    price_warnings,
    resolve_prices,
    row_price,
)
from backend.domain.money.vendor_prices import NO_PRICES, PriceTable, read_prices, shipped_prices
from backend.domain.spec.parsing import Teacher
from backend.domain.spec.teacher import DeclaredPrice

BOOK = price_book()
OPENAI = "https://api.openai.com/v1"
DECLARED = {"input_usd_per_mtok": 7, "output_usd_per_mtok": 9}


def outside(model: str = "gpt-4o-mini", base_url: str = OPENAI, **fields: Any) -> Teacher:
    return Teacher.model_validate({"provider": "openai_compatible", "model": model, "base_url": base_url, **fields})


def operator(**changes: Any) -> PriceTable:
    row = {
        "host": "llm.example.com:8443",
        "model": "own",
        "input_usd_per_mtok": "1",
        "output_usd_per_mtok": "2",
        "as_of": "2026-11-01",
        "source": "contract 4711",
    } | changes
    row = {name: value for name, value in row.items() if value is not None}
    return read_prices(json.dumps({"prices": [row]}).encode(), origin="operator")


CHEAPER = {"host": None, "provider": "openai", "model": "gpt-4o-mini", "input_usd_per_mtok": "0.1"}


def resolved(teacher: Teacher, table: PriceTable = NO_PRICES) -> TeacherPrices:
    return resolve_prices(teacher, book=BOOK, operator=table)


def refusal(teacher: Teacher, table: PriceTable = NO_PRICES) -> str:
    with pytest.raises(InvalidSpec) as caught:
        resolved(teacher, table)
    (problem,) = caught.value.problems
    assert (caught.value.code, problem.code) == ("unknown_teacher_price", "unknown_teacher_price")
    return f"{problem.pointer}: {problem.message}"


def test_the_spec_goes_before_the_operator_who_goes_before_the_vendor() -> None:
    table = operator(**CHEAPER)
    found = [
        resolved(outside(price=DECLARED), table).main,
        resolved(outside(), table).main,
        resolved(outside()).main,
        resolved(Teacher(provider="grammar", model="kolm-grammar-1"), table).main,
    ]
    assert [price.listing.origin for price in found] == ["spec", "operator", "vendor", "book"]
    assert [price.input.usd_per_unit * 1_000_000 for price in found] == [
        7,
        Decimal("0.1"),
        Decimal("0.15"),
        Decimal("0.1"),
    ]
    assert [price.version.split("-")[0] for price in found] == ["declared", "operator", "vendor", BOOK.version[:4]]


def test_an_endpoint_of_the_operators_has_the_price_of_its_host_and_port() -> None:
    assert resolved(outside("own", "https://llm.example.com:8443/v1"), operator()).main.listing.place == (
        "llm.example.com:8443"
    )
    assert refusal(outside("own", "https://llm.example.com/v1"), operator()).startswith("/teacher/price: ")


def test_the_books_model_has_its_price_at_any_host_and_in_a_recording() -> None:
    for teacher in (
        outside("kolm-grammar-1", "http://127.0.0.1:8000/v1"),
        Teacher(provider="replay", model="kolm-grammar-1"),
    ):
        assert resolved(teacher).main.version == BOOK.version


def test_another_hosts_price_is_never_taken() -> None:
    message = refusal(outside("gpt-4o-mini", "https://gateway.example.com/v1"))
    assert 'no price for the model "gpt-4o-mini" at gateway.example.com.' in message
    assert "The price at openai is another host's" in message
    assert refusal(Teacher(provider="replay", model="gpt-4o-mini"))


def test_an_unknown_model_is_told_the_line_to_paste_and_what_is_spelled_alike_at_its_host() -> None:
    message = refusal(outside("gpt-4o-mnii"))
    assert 'no price for the model "gpt-4o-mnii" at api.openai.com.' in message
    assert LINE_TO_PASTE in message
    assert "There is a price for gpt-4o-mini, " in message
    assert len(message) < 400


def test_the_line_is_the_yaml_of_a_price_and_bills_nothing_before_it_is_filled_in() -> None:
    pasted = yaml.safe_load(LINE_TO_PASTE)["price"]
    assert set(pasted) <= set(DeclaredPrice.model_fields)
    with pytest.raises(ValueError, match="INPUT"):
        DeclaredPrice.model_validate(pasted)
    filled = yaml.safe_load(LINE_TO_PASTE.replace("INPUT", "0.15").replace("OUTPUT", "0.6"))["price"]
    assert DeclaredPrice.model_validate(filled).input_usd_per_mtok == Decimal("0.15")


def test_a_declared_price_of_zero_is_a_price() -> None:
    free = outside("own", "http://10.0.0.5:8000/v1", price={"input_usd_per_mtok": 0, "output_usd_per_mtok": 0})
    assert resolved(free).main.most_microusd(input_tokens=10**9, output_tokens=10**9) == 0


def test_the_fallback_model_has_its_own_row_and_is_refused_at_its_own_place() -> None:
    prices = resolved(outside(fallback_model="gpt-4o"))
    assert prices.of("gpt-4o").input.usd_per_unit > prices.of("gpt-4o-mini").input.usd_per_unit
    assert prices.dearest.output == prices.of("gpt-4o").output
    both = resolved(outside(fallback_model="gpt-4o", price=DECLARED))
    assert both.of("gpt-4o").input.usd_per_unit == both.of("gpt-4o-mini").input.usd_per_unit
    assert refusal(outside(fallback_model="gpt-unheard-of")).startswith("/teacher/fallback_model: ")


def test_a_version_is_of_all_that_the_row_says() -> None:
    versions = [
        row_price(operator(**changes).rows[0], "operator").version
        for changes in (
            {},
            {"input_usd_per_mtok": "1.000"},
            {"input_usd_per_mtok": "1.001"},
            {"as_of": "2026-11-02"},
            {"source": "contract 4712"},
            {"note": "peak"},
            {"cached_input_usd_per_mtok": "0.5"},
        )
    ]
    assert versions[0] == versions[1]
    assert len(set(versions)) == len(versions) - 1
    assert all(version.startswith("operator-2026-11-0") and len(version) <= 64 for version in versions)


@pytest.mark.parametrize("row", shipped_prices().rows, ids=lambda row: f"{row.place}/{row.model}")
def test_a_row_is_kept_and_read_back_to_the_last_digit(row: Any) -> None:
    price = row_price(row, "vendor")
    assert price_of_json(json.loads(canonical_json(price_json(price)))) == price
    assert price.model == row.model


def test_a_compile_keeps_its_prices_whatever_the_tables_say_now() -> None:
    teacher = outside(fallback_model="gpt-4o")
    estimate = json.loads(json.dumps(resolved(teacher, operator(**CHEAPER)).to_json()))
    kept = kept_prices(estimate, teacher, book=BOOK)
    assert kept == resolved(teacher, operator(**CHEAPER)) != resolved(teacher)
    assert kept.of("gpt-4o").listing.origin == "vendor"


def test_an_estimate_of_before_there_were_tables_goes_by_the_spec_and_the_book() -> None:
    grammar = Teacher(provider="grammar", model="kolm-grammar-1", fallback_model="kolm-grammar-1")
    assert kept_prices({"total": {}}, grammar, book=BOOK) == resolved(grammar)
    declared = outside("m", price=DECLARED)
    assert kept_prices({}, declared, book=BOOK) == resolved(declared)


def test_what_the_price_book_names_goes_by_the_book_in_force() -> None:
    grammar = Teacher(provider="grammar", model="kolm-grammar-1")
    estimate = resolve_prices(grammar, book=price_book(BOOK.effective_at - timedelta(days=1))).to_json()
    assert kept_prices(estimate, grammar, book=BOOK).main.version == BOOK.version


@given(st.integers(min_value=-30, max_value=2000))
def test_a_row_that_nobody_looked_at_for_a_year_is_doubted_and_not_refused(age: int) -> None:
    price = row_price(operator().rows[0], "operator")
    warnings = list(price_warnings(price, date(2026, 11, 1) + timedelta(days=age)))
    assert bool(warnings) == (age > 365)
    assert all(
        text == "the price of own is of 2026-11-01 (contract 4711): check it, or declare teacher.price"
        for text in warnings
    )


def test_a_row_that_its_vendor_has_ended_is_doubted_the_day_after() -> None:
    price = row_price(operator(until="2026-11-30").rows[0], "operator")
    assert list(price_warnings(price, date(2026, 11, 30))) == []
    (warning,) = price_warnings(price, date(2026, 12, 1))
    assert warning.startswith("the price of own was published until 2026-11-30 ")


def test_a_price_of_the_spec_or_the_book_is_never_old() -> None:
    for teacher in (outside(price=DECLARED), Teacher(provider="grammar", model="kolm-grammar-1")):
        assert list(price_warnings(resolved(teacher).main, date(2060, 1, 1))) == []


def test_a_price_is_said_in_one_line_with_whose_it_is() -> None:
    said = [
        price_sentence(price_json(resolved(teacher, operator(note="nights")).main))
        for teacher in (
            outside("own", "https://llm.example.com:8443/v1"),
            outside(),
            Teacher(provider="grammar", model="kolm-grammar-1"),
        )
    ]
    assert said == [
        "own: $1 input and $2 output a million tokens, llm.example.com:8443 as of 2026-11-01, contract 4711 (nights)",
        "gpt-4o-mini: $0.15 input and $0.6 output a million tokens, openai as of 2026-10-29, "
        "https://developers.openai.com/api/docs/pricing",
        f"kolm-grammar-1: $0.1 input and $0.4 output a million tokens, by the price book {BOOK.version}",
    ]
