"""The price page: for anybody, from the book in force, computed by the estimate's own code."""

from datetime import timedelta
from decimal import Decimal

import pytest
from django.test import Client
from django.utils import timezone

from backend.console.money.pricing import _lines, answer_examples, compile_examples
from backend.domain.money.price_catalog import catalog_with, install, shipped_catalog
from backend.domain.money.price_file import read_price_file
from backend.domain.money.pricing import price_book
from backend.domain.serving.deployments import token_costs
from backend.tenants.isolation import tenant_scope
from backend.usage.ledger import Fact, record
from backend.usage.models import UsageFact
from tests.backend.console.pages import get
from tests.backend.domain.money.test_price_file import book, table
from tests.factories import make_tenant

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


def test_a_changed_price_moves_the_page_and_the_charge_and_nothing_that_was_booked():
    before, tenant = price_book(), make_tenant()
    prices = before.prices
    booked = charge(tenant, "early", before)
    double = {"unit": "token", "usd": f"{prices['serving.completion_token'].usd_per_unit * 2:f}"}
    now = timezone.now() - timedelta(seconds=1)
    file = read_price_file({"books": [book("ours-2", now.isoformat(), **{"serving.completion_token": double})]})
    shown_before = answer_examples(before)[1].expected_microusd
    install(catalog_with(file))
    try:
        after = price_book()
        assert after.version == "ours-2"
        line = next(line for line in _lines(after, ("serving.",)) if line.sku == "serving.completion_token")
        assert Decimal(line.usd) == prices["serving.completion_token"].usd_per_unit * 2 * 1_000_000
        later = charge(tenant, "late", after)
        shown = answer_examples(after)[1].expected_microusd
    finally:
        install(shipped_catalog())
    assert (booked, later) == (shown_before, shown)
    assert later > booked
    with tenant_scope(tenant.id):
        facts = UsageFact.objects.of_tenant(tenant.id).order_by("price_version")
        by_book = {
            version: sum(one.amount_microusd for one in facts if one.price_version == version)
            for version in (before.version, "ours-2")
        }
    assert by_book == {before.version: booked, "ours-2": later}


def charge(tenant, key, book):
    """Book a thousand extractions as the meter of deployments does; their micro-USD."""
    costs = token_costs(book, prompt=400_000, cached=0, completion=120_000)
    facts = [
        Fact(
            sku=cost.price.sku,
            quantity=cost.quantity,
            unit="token",
            price_version=book.version,
            amount_microusd=cost.amount_microusd,
            source_key=f"{key}:{cost.kind}",
        )
        for cost in costs
    ]
    with tenant_scope(tenant.id):
        record(tenant.id, facts, compile_id=None, step="serve")
    return sum(cost.amount_microusd for cost in costs)
