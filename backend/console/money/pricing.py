"""The price page, for anybody: what is billed and at which price, from the price book and the plans in force, with
worked examples that the estimate's own code computes. Nothing of a caller is written."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET

from backend.domain.money.plans import plans
from backend.domain.money.price_books import MICRO, Price, PriceBook
from backend.domain.money.price_catalog import catalog
from backend.domain.money.pricing import cost_microusd, kept_book, price_book
from backend.domain.money.runner_work import SECOND
from backend.domain.money.sku_titles import sku_title
from backend.domain.planning.estimates import estimate
from backend.domain.serving.deployments import token_costs
from backend.domain.spec.parsing import parse_spec

_SECTIONS = {
    "Hosted answers": ("serving.",),
    "Compiling: runners, by their work": ("runner.",),
    "Teacher and embedding": ("teacher.", "embedding."),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceLine:
    """A price of the page. `per` is what `usd` buys: a million of a unit, or one."""

    title: str
    sku: str
    per: str
    usd: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    title: str
    how: str
    low_microusd: int
    expected_microusd: int
    high_microusd: int


@require_GET
@transaction.non_atomic_requests
def pricing(request: HttpRequest) -> HttpResponse:
    book = price_book(timezone.now())
    upcoming = [one for one in catalog().books if one.effective_at > book.effective_at]
    context: dict[str, Any] = {
        "book": book,
        "upcoming": upcoming[0] if upcoming else None,
        "sections": [(title, _lines(book, prefixes)) for title, prefixes in _SECTIONS.items()],
        "plans": plans(),
        "plans_version": catalog().plan_tables[-1],
        "compiles": compile_examples(book.version),
        "answers": answer_examples(book),
    }
    return render(request, "console/bills/pricing.html", context)


def _lines(book: PriceBook, prefixes: Sequence[str]) -> list[PriceLine]:
    return [_line(price) for sku, price in book.prices.items() if sku.startswith(tuple(prefixes))]


def _line(price: Price) -> PriceLine:
    """A price that a person can read: of a million where one costs less than a thousandth of a cent.

    >>> _line(Price(sku="runner.select_row", unit="row", usd_per_unit=Decimal("0.00000025"))).usd
    '0.25'
    """
    is_small = 0 < price.usd_per_unit < Decimal("0.00001")
    usd = price.usd_per_unit * MICRO if is_small else price.usd_per_unit
    per = f"1,000,000 × {price.unit}" if is_small else price.unit
    return PriceLine(title=sku_title(price.sku), sku=price.sku, per=per, usd=format(usd.normalize(), "f"))


def answer_examples(book: PriceBook) -> list[Example]:
    """A thousand answers each, priced as their usage is."""
    rows = []
    for title, prompt, completion in (
        ("1,000 hosted labels", 120, 1),
        ("1,000 hosted extractions", 400, 120),
        ("1,000 hosted texts", 600, 300),
    ):
        costs = token_costs(book, prompt=prompt * 1_000, cached=0, completion=completion * 1_000)
        amount = sum(cost.amount_microusd for cost in costs)
        how = f"{prompt} tokens read and {completion} written each; loading the artifact is not billed"
        rows.append(_exactly(title, how, amount))
    amount = 1_000 * (cost_microusd(8, book.prices[SECOND]) // 1_000)
    rows.append(_exactly("1,000 labels outside of a deployment", "8 ms of a runner each", amount))
    return rows


def _exactly(title: str, how: str, amount: int) -> Example:
    return Example(title=title, how=how, low_microusd=amount, expected_microusd=amount, high_microusd=amount)


@lru_cache(maxsize=4)
def compile_examples(version: str) -> tuple[Example, ...]:
    """Whole compiles with the built-in teacher, as `POST /v1/compiles/estimate` would answer."""
    return tuple(_compile_example(title, how, document, version) for title, how, document in _SPECS)


def _compile_example(title: str, how: str, document: dict[str, Any], version: str) -> Example:
    spec = parse_spec(document)
    inputs = [example.input for example in spec.examples.inline]
    n_heldout = len(inputs) // 2
    total = estimate(
        spec,
        n_gold_train=len(inputs) - n_heldout,
        n_heldout=n_heldout,
        shown_inputs=inputs,
        shown_outputs=[str(example.output) for example in spec.examples.inline],
        book=kept_book(version),
    ).total
    return Example(
        title=title, how=how, low_microusd=total.low, expected_microusd=total.expected, high_microusd=total.high
    )


_TEACHER = {"provider": "grammar", "model": "kolm-grammar-1"}
_MAILS = (
    "My parcel has not arrived and I would like to know where it is.",
    "The jacket is too small, please send me a larger one and take this back.",
    "I was charged twice for order 4711, please give me my money back.",
)


def _label_spec(n_candidates: int) -> dict[str, Any]:
    labels = ("delivery", "exchange", "refund")
    pairs = [{"input": f"{_MAILS[i % 3]} Number {i}.", "output": labels[i % 3]} for i in range(90)]
    return {
        "name": "support-router",
        "task": "What does the customer want?",
        "output": {"type": "label", "labels": [{"name": name} for name in labels]},
        "examples": {"inline": pairs},
        "teacher": _TEACHER,
        "sampling": {"n_candidates": n_candidates},
        "budget": {"usd": 5},
    }


_SPECS = (
    ("A router of three labels", "90 examples, 300 texts written and labelled, an encoder trained", _label_spec(100)),
    ("The same, with more data", "90 examples, 1,500 texts written and labelled", _label_spec(500)),
)
