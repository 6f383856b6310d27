"""The price page: for anybody, from the book in force, computed by the estimate's own code."""

import pytest
from django.test import Client

from backend.console.money.pricing import answer_examples, compile_examples
from backend.domain.money.price_catalog import catalog_with, install, shipped_catalog
from backend.domain.money.price_file import read_price_file
from backend.domain.money.pricing import price_book
from tests.backend.console.pages import get
from tests.backend.domain.money.test_price_file import book, table

pytestmark = pytest.mark.django_db


def test_anybody_sees_every_price_of_the_book_with_its_version_and_day():
    text = get(Client(), "/pricing")
    newest = price_book()
    assert f"version <strong>{newest.version}</strong>" in text
    assert f'<time datetime="{newest.effective_at.isoformat()}" data-local>' in text
    for sku in newest.prices:
        assert sku in text
    assert "$49.00" in text
    assert "no margin" in text


def test_it_reads_and_writes_nothing_of_the_caller(django_assert_num_queries):
    client = Client()
    client.get("/pricing")
    with django_assert_num_queries(0):
        answer = client.get("/pricing")
    assert "sessionid" not in answer.cookies
    assert client.post("/pricing").status_code == 405


def test_examples_are_what_the_estimate_says():
    small, large = compile_examples(price_book().version)
    for one in (small, large):
        assert 0 < one.low_microusd <= one.expected_microusd <= one.high_microusd
    assert small.expected_microusd < large.expected_microusd
    labels, *_ = answer_examples(price_book())
    assert labels.expected_microusd == 120_000 * 5 // 100 + 1_000 * 20 // 100


def test_an_operators_prices_are_the_pages():
    dear = {"unit": "second", "usd": "0.004200"}
    file = read_price_file(
        {"books": [book("ours-1", "2026-11-27T00:00:00Z", **{"runner.second": dear})], "plans": [table(title="Gold")]}
    )
    install(catalog_with(file))
    try:
        text = get(Client(), "/pricing")
    finally:
        install(shipped_catalog())
    assert "ours-1" in text
    assert "0.0042" in text
    assert "Gold" in text
