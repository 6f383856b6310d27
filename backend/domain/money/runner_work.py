"""Bill a runner's job by the work that it did, as counts. The same work costs the same on every machine,
busy or not, with a GPU or without.

A job counts once (its base is read and moved to the device), and then by its tokens. A causal base's tokens are weighed
by its size, as its name tells it: a base of 7 B counts each token fourteen times, one of up to 0.5 B once.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from backend.domain.money.pricing import PriceBook, cost_microusd

SECOND = "runner.second"  # of jobs whose runner counts nothing, and of books that knew no other price
CAUSAL_BASE_B = 0.5  # billions of parameters of a base whose tokens count once
_SIZE = re.compile(r"(?<![A-Za-z0-9.])(\d{1,4}(?:\.\d{1,3})?)[bB](?![A-Za-z0-9])")


class WorkSku(StrEnum):
    """The kinds of work. A token of a training counts once an epoch."""

    ENCODER_JOB = "runner.encoder_job"
    ENCODER_TRAIN = "runner.encoder_train_token"
    ENCODER_READ = "runner.encoder_read_token"
    CAUSAL_JOB = "runner.causal_job"
    CAUSAL_TRAIN = "runner.causal_train_token"
    CAUSAL_READ = "runner.causal_read_token"
    CAUSAL_WRITE = "runner.causal_write_token"
    CAUSAL_DRAFT = "runner.causal_draft_token"
    SELECT_JOB = "runner.select_job"
    SELECT_ROW = "runner.select_row"


Work = Mapping[WorkSku, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkCost:
    """A part of a job's work at the price of a book."""

    sku: WorkSku
    unit: str
    quantity: int
    amount_microusd: int


def encoder_training(n_tokens: int) -> Work:
    """The work of one encoder's training, of the tokens of its pairs times epochs."""
    return {WorkSku.ENCODER_JOB: 1, WorkSku.ENCODER_TRAIN: n_tokens}


def encoder_reading(n_tokens: int) -> Work:
    """The work of an evaluation: the tokens of the held-out texts and of the gold beside them."""
    return {WorkSku.ENCODER_JOB: 1, WorkSku.ENCODER_READ: n_tokens}


def causal_training(base: str, n_tokens: int) -> Work:
    """The work of one causal training, of the tokens of prompts and answers times epochs."""
    return {WorkSku.CAUSAL_JOB: _at_size(base, 1), WorkSku.CAUSAL_TRAIN: _at_size(base, n_tokens)}


def causal_answers(base: str, *, n_read: int, n_written: int) -> Work:
    """The work of a causal evaluation: the tokens of the prompts that were read, and of the answers."""
    return {
        WorkSku.CAUSAL_JOB: _at_size(base, 1),
        WorkSku.CAUSAL_READ: _at_size(base, n_read),
        WorkSku.CAUSAL_WRITE: _at_size(base, n_written),
    }


def together(*works: Work) -> Work:
    """The work of a job that does several things.

    >>> together({WorkSku.CAUSAL_JOB: 1}, {WorkSku.CAUSAL_JOB: 1, WorkSku.CAUSAL_READ: 5})[WorkSku.CAUSAL_JOB]
    2
    """
    return {sku: sum(work.get(sku, 0) for work in works) for sku in WorkSku if any(sku in work for work in works)}


def drafting(base: str, n_tokens: int) -> Work:
    """The work of measuring what drafts: tokens of answers, one request at a time."""
    return {WorkSku.CAUSAL_JOB: _at_size(base, 1), WorkSku.CAUSAL_DRAFT: _at_size(base, n_tokens)}


def drafted_within(seconds: float, book: PriceBook) -> int:
    """Tokens of CAUSAL_DRAFT that cost as much as so many seconds of a runner."""
    return int(
        Decimal(str(seconds)) * book.prices[SECOND].usd_per_unit / book.prices[WorkSku.CAUSAL_DRAFT].usd_per_unit
    )


def selecting(n_rows: int) -> Work:
    """The work of a selection from so many rows, without their embedding."""
    return {WorkSku.SELECT_JOB: 1, WorkSku.SELECT_ROW: n_rows}


def bills_work(book: PriceBook) -> bool:
    """Say whether a book has prices of work; those before it know seconds alone."""
    return all(sku in book.prices for sku in WorkSku)


def costs_of(work: Work, book: PriceBook) -> list[WorkCost]:
    """Each part at the book's price, rounded once; a part of nothing is left out."""
    return [
        WorkCost(
            sku=sku,
            unit=book.prices[sku].unit,
            quantity=quantity,
            amount_microusd=cost_microusd(quantity, book.prices[sku]),
        )
        for sku, quantity in work.items()
        if quantity
    ]


def cost_of(work: Work, book: PriceBook) -> int:
    """Micro-USD of the whole.

    >>> from backend.domain.money.pricing import price_book
    >>> cost_of({}, price_book())
    0
    """
    return sum(part.amount_microusd for part in costs_of(work, book))


def base_size_b(name: str) -> float:
    """Billions of parameters as the base's name tells them; CAUSAL_BASE_B where it does not.

    >>> base_size_b("Qwen/Qwen2.5-7B-Instruct"), base_size_b("kolm-tiny-1")
    (7.0, 0.5)
    """
    match = _SIZE.search(name)
    return float(match[1]) if match else CAUSAL_BASE_B


def _at_size(base: str, n: int) -> int:
    return math.ceil(n * max(1.0, base_size_b(base) / CAUSAL_BASE_B))
