"""The table of vendors' prices: what ships, what is refused, and that a host's price is nobody else's."""

import json
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.money.vendor_prices import (
    PROVIDER_HOSTS,
    BadPrices,
    PriceTable,
    host_of,
    read_prices,
    shipped_prices,
)
from tests.backend.domain.money.prices_page import PAGE, page_with_prices

ROW = {
    "provider": "openai",
    "model": "m-1",
    "input_usd_per_mtok": "0.15",
    "output_usd_per_mtok": "0.60",
    "as_of": "2026-11-01",
    "source": "https://vendor.example/pricing",
}


def table_of(*rows: dict[str, Any]) -> PriceTable:
    return read_prices(json.dumps({"prices": rows}).encode(), origin="operator")


def row(**changes: Any) -> dict[str, Any]:
    return {name: value for name, value in (ROW | changes).items() if value is not ...}


def test_every_row_that_ships_has_a_price_above_zero_a_day_and_a_page_as_its_source() -> None:
    rows = shipped_prices().rows
    assert len(rows) >= 100
    for each in rows:
        assert each.provider in PROVIDER_HOSTS
        assert 0 < each.input_usd_per_mtok <= each.output_usd_per_mtok
        assert each.source.startswith("https://")
        assert date(2026, 10, 1) <= each.as_of <= date(2026, 11, 25)
        for part in (each.cached_input_usd_per_mtok, each.cache_write_usd_per_mtok):
            assert part is None or part > 0
        assert each.cached_input_usd_per_mtok is None or each.cached_input_usd_per_mtok < each.input_usd_per_mtok


def test_no_row_that_ships_is_a_name_that_moves() -> None:
    assert [each.model for each in shipped_prices().rows if each.model.endswith("latest")] == []


def test_a_host_belongs_to_one_provider() -> None:
    hosts = [host for provider in PROVIDER_HOSTS.values() for host in provider]
    assert len(hosts) == len(set(hosts))
    assert [host_of(f"https://{host}/v1") for host in hosts] == hosts


def test_the_page_shows_the_rows_that_ship() -> None:
    text = PAGE.read_text()
    assert page_with_prices(text) == text, "run `python -m tests.backend.domain.money.prices_page`"


def test_one_model_has_the_price_of_each_host() -> None:
    shipped = shipped_prices()
    groq, together, cerebras = (
        shipped.find(host, model)
        for host, model in (
            ("api.groq.com", "openai/gpt-oss-120b"),
            ("api.together.xyz", "openai/gpt-oss-120b"),
            ("api.cerebras.ai", "gpt-oss-120b"),
        )
    )
    assert groq is not None
    assert together is not None
    assert cerebras is not None
    assert groq.cached_input_usd_per_mtok != together.cached_input_usd_per_mtok
    assert cerebras.input_usd_per_mtok != groq.input_usd_per_mtok
    assert shipped.find("llm.example.com", "openai/gpt-oss-120b") is None
    assert shipped.find(None, "openai/gpt-oss-120b") is None


def test_a_snapshot_without_a_row_of_its_own_has_no_price() -> None:
    shipped = shipped_prices()
    assert shipped.find("api.openai.com", "gpt-4o-2024-08-06") is not None
    assert shipped.find("api.openai.com", "gpt-4o-2030-01-01") is None
    assert shipped.find("api.openai.com", "GPT-4o") is None


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("https://api.openai.com/v1", "api.openai.com"),
        ("https://API.OPENAI.COM.:443/v1", "api.openai.com"),
        ("https://api.openai.com:8443/v1", "api.openai.com:8443"),
        ("https://api.openai.com@llm.example.com/v1", "llm.example.com"),
        ("https://llm.example.com/api.openai.com", "llm.example.com"),
        ("http://[::1]:8000/v1", "[::1]:8000"),
        ("https://host:no-port/v1", None),
        ("/v1", None),
        (None, None),
    ],
)
def test_the_host_of_an_address_is_where_the_calls_go(address: str | None, host: str | None) -> None:
    assert host_of(address) == host


BAD = {
    "no table": (b"[]", 'the file is no object with "prices" alone'),
    "no JSON": (b"{", "the file is not JSON"),
    "a key twice": (b'{"prices": [], "prices": []}', "the file has the key 'prices' twice"),
    "no row": (b'{"prices": [3]}', "row 1 is no object"),
}
BAD_ROWS = {
    "a typo": (row(input_usd="1"), "row 1 (m-1): input_usd: no such field"),
    "no day": (row(as_of=...), "row 1 (m-1): as_of: is missing"),
    "a day that is none": (row(as_of="2026-02-30"), "row 1 (m-1): as_of: a day is needed"),
    "a week for a day": (row(as_of="2026-W01-1"), "row 1 (m-1): as_of: a day is needed"),
    "no source": (row(source=""), "row 1 (m-1): source: where the price is published"),
    "a float": (row(input_usd_per_mtok=0.15), "row 1 (m-1): input_usd_per_mtok: a decimal number in quotes"),
    "a negative price": (row(output_usd_per_mtok="-1"), "row 1 (m-1): output_usd_per_mtok: a decimal number"),
    "another script's digits": (row(output_usd_per_mtok="٣"), "row 1 (m-1): output_usd_per_mtok: a decimal number"),
    "a price in cents of a cent": (row(output_usd_per_mtok="10001"), "row 1 (m-1): output_usd_per_mtok: more than"),
    "zero": (row(input_usd_per_mtok="0"), "row 1 (m-1): input_usd_per_mtok: 0; a model that costs nothing is marked"),
    "zero of a part": (row(cached_input_usd_per_mtok="0.00"), "row 1 (m-1): cached_input_usd_per_mtok: 0; a model"),
    "free, with a price": (row(free=True), "row 1 (m-1): input_usd_per_mtok: 0.15; a model that is free"),
    "free as a word": (row(free="yes"), "row 1 (m-1): free: true or false"),
    "an unknown provider": (row(provider="acme"), "row 1 (m-1): provider: known are openai"),
    "neither provider nor host": (row(provider=...), "row 1 (m-1): provider: either a provider or a host"),
    "both": (row(host="llm.example.com"), "row 1 (m-1): provider: either a provider or a host"),
    "an address for a host": (row(provider=..., host="https://a.example/v1"), "row 1 (m-1): host: a host in small"),
    "a name with a space": (row(model="a b"), "row 1 (a b): model: a name without spaces"),
    "a discount of everything": (row(batch_discount="1"), "row 1 (m-1): batch_discount: a share between"),
}


@pytest.mark.parametrize(("body", "message"), BAD.values(), ids=BAD)
def test_a_file_that_is_no_table_says_so(body: bytes, message: str) -> None:
    with pytest.raises(BadPrices, match="^" + message.replace("(", r"\(")[:30]):
        read_prices(body, origin="operator")


@pytest.mark.parametrize(("bad", "message"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_a_bad_row_is_named_with_its_field(bad: dict[str, Any], message: str) -> None:
    with pytest.raises(BadPrices) as refused:
        table_of(bad)
    assert str(refused.value).startswith(message)


def test_a_model_twice_at_one_host_is_refused_also_where_one_row_names_the_provider() -> None:
    with pytest.raises(BadPrices) as refused:
        table_of(row(), row(model="m-2"), row(provider=..., host="api.openai.com"))
    assert str(refused.value) == "row 3 (m-1): model: row 1 has it for api.openai.com already"


def test_a_model_that_is_marked_free_costs_nothing() -> None:
    (free,) = table_of(
        row(provider=..., host="10.0.0.5:8000", free=True, input_usd_per_mtok="0", output_usd_per_mtok="0.00")
    ).rows
    assert free.free
    assert (free.input_usd_per_mtok, free.output_usd_per_mtok) == (0, 0)


amounts = st.decimals(min_value="0.000000001", max_value=10_000, places=9)


@given(amounts, amounts, st.none() | amounts, st.dates())
def test_what_is_written_is_what_is_read(plain: Decimal, output: Decimal, cached: Decimal | None, as_of: date) -> None:
    written = row(
        input_usd_per_mtok=format(plain, "f"),
        output_usd_per_mtok=format(output, "f"),
        cached_input_usd_per_mtok=None if cached is None else format(cached, "f"),
        as_of=as_of.isoformat(),
    )
    (each,) = table_of(written).rows
    assert (each.input_usd_per_mtok, each.output_usd_per_mtok) == (plain, output)
    assert (each.cached_input_usd_per_mtok, each.as_of) == (cached, as_of)


@given(
    st.dictionaries(
        st.sampled_from([*ROW, "host", "free", "until", "x"]), st.none() | st.text(max_size=12) | st.integers()
    )
)
def test_any_row_is_read_or_refused_with_its_number(value: dict[str, Any]) -> None:
    try:
        table_of(ROW | value)
    except BadPrices as fault:
        message = str(fault)
    else:
        message = "row 1 is good"
    assert message.startswith(("row 1", "the file"))
