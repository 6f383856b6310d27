"""An operator's prices and plans: every fault is named with its place, and what was estimated by an old book stays."""

import copy
import json
from datetime import UTC, datetime
from importlib import resources
from typing import Any

import pytest

from backend.domain.money.plan_tables import PlanName
from backend.domain.money.plans import plan, plan_then
from backend.domain.money.price_catalog import catalog, catalog_with, install, shipped_catalog
from backend.domain.money.price_file import BadPriceFile, read_price_file
from backend.domain.money.pricing import kept_book, price_book, price_books

SHIPPED: dict[str, Any] = json.loads(resources.files("backend.domain.money").joinpath("prices.json").read_text())


def book(version: str = "ours-1", at: str = "2026-12-01T00:00:00Z", **prices: Any) -> dict[str, Any]:
    newest = copy.deepcopy(SHIPPED["books"][-1])
    return {"version": version, "effective_at": at, "prices": newest["prices"] | prices}


def table(at: str = "2026-12-01T00:00:00Z", **pro: Any) -> dict[str, Any]:
    made = copy.deepcopy(SHIPPED["plans"][-1]) | {"version": "ours", "effective_at": at}
    made["plans"]["pro"] |= pro
    return made


@pytest.fixture
def _shipped_again():
    yield
    install(shipped_catalog())


def test_the_shipped_file_has_the_books_that_were_published() -> None:
    """A digest that differs here would refuse to migrate every installation that there is."""
    assert [one.sha256[:12] for one in shipped_catalog().books] == ["cf21a8ae9d04", "f5603857a7eb", "c30d95043825"]
    assert list(shipped_catalog().plan_tables[-1].plans) == list(PlanName)


def test_an_operators_books_are_in_force_from_their_day_on_and_the_shipped_ones_before() -> None:
    dear = {"unit": "second", "usd": "0.000300"}
    made = catalog_with(
        read_price_file({"books": [book(), book("ours-2", "2027-01-01T00:00:00Z", **{"runner.second": dear})]})
    )
    assert [one.version for one in made.books] == ["2026-11-01", "2026-11-22", "2026-11-26", "ours-1", "ours-2"]
    early = catalog_with(read_price_file({"books": [book(at="2026-11-02T00:00:00Z")]}))
    assert [one.version for one in early.books] == ["2026-11-01", "ours-1"]
    assert set(early.known_books) == {"2026-11-01", "2026-11-22", "2026-11-26", "ours-1"}


@pytest.mark.usefixtures("_shipped_again")
def test_what_was_estimated_by_a_book_is_billed_by_it_after_the_file_changed() -> None:
    install(
        catalog_with(read_price_file({"books": [book(at="2026-11-02T00:00:00Z")], "plans": [table(monthly_usd="59")]}))
    )
    assert price_book(datetime(2026, 11, 27, tzinfo=UTC)).version == "ours-1"
    assert kept_book("2026-11-26").version == "2026-11-26"
    assert [one.version for one in price_books()] == ["2026-11-01", "ours-1"]
    assert plan("pro").monthly_cents == 5_900
    assert plan_then("pro", datetime(2026, 11, 1, tzinfo=UTC)).monthly_cents == 4_900, "the month began before"
    assert catalog().books[-1].version == "ours-1"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([], 'no object with "books"'),
        ({"prices": []}, 'no object with "books"'),
        ({"books": {}}, "books: a list"),
        ({"books": [{"version": "x"}]}, "books[0].effective_at: is missing"),
        ({"books": [book() | {"efective_at": "x"}]}, "did you mean"),
        ({"books": [book("Ours 1")]}, "books[0].version: a name in quotes"),
        ({"books": [book(at="2026-12-01")]}, "a time with its zone"),
        ({"books": [book(), book("ours-0", "2026-11-30T00:00:00Z")]}, "must take effect after"),
        ({"books": [book(), book(at="2027-01-01T00:00:00Z")]}, "the version ours-1 is there twice"),
        ({"books": [book(**{"runner.second": {"unit": "second", "usd": 0.00015}})]}, "US dollars in quotes"),
        ({"books": [book(**{"runner.second": {"unit": "second", "usd": "-1"}})]}, "US dollars in quotes"),
        ({"books": [book(**{"runner.second": {"unit": "second"}})]}, "an object such as"),
        ({"books": [book(**{"embedding.token": {"unit": "token", "usd_per_million": "0.0000000001"}})]}, "15 decimal"),
        ({"plans": [table(seats="ten")]}, "plans[0].plans.pro.seats: a whole number"),
        ({"plans": [table(monthly_usd="49.999")]}, "a whole number of cents"),
        ({"plans": [table(spend_cap_max_usd="1")]}, "is more than spend_cap_max_usd"),
        ({"plans": [table() | {"plans": {"free": {}}}]}, "plans[0].plans.pro: is missing"),
    ],
)
def test_a_fault_is_named_with_its_place(value: object, words: str) -> None:
    with pytest.raises(BadPriceFile) as caught:
        read_price_file(value)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (
            {"books": [{**book(), "prices": {"runner.second": {"unit": "second", "usd": "1"}}}]},
            "no price for embedding.token",
        ),
        ({"books": [book(**{"runner.secnd": {"unit": "second", "usd": "1"}})]}, "runner.secnd is no sku; did you mean"),
        (
            {"books": [book(**{"runner.second": {"unit": "minute", "usd": "1"}})]},
            "the unit of runner.second is 'second'",
        ),
        ({"books": [book("2026-11-26", **{"runner.second": {"unit": "second", "usd": "1"}})]}, "ships another book"),
    ],
)
def test_a_book_that_could_not_bill_everything_is_refused(value: object, words: str) -> None:
    with pytest.raises(BadPriceFile) as caught:
        catalog_with(read_price_file(value))
    assert words in str(caught.value)
