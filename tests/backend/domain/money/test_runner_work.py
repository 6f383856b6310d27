"""Work and its price: the same everywhere, a larger base's tokens weigh more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.money.pricing import kept_book, price_book, price_books
from backend.domain.money.runner_work import (
    WorkSku,
    base_size_b,
    bills_work,
    causal_answers,
    causal_training,
    cost_of,
    costs_of,
    drafted_within,
    drafting,
    encoder_reading,
    encoder_training,
    selecting,
)

BOOK = price_book()


def test_a_token_of_a_larger_base_counts_as_often_as_it_is_larger() -> None:
    small, large = (causal_training(base, 1000) for base in ("kolm-tiny-1", "Qwen/Qwen2.5-7B-Instruct"))
    assert small == {WorkSku.CAUSAL_JOB: 1, WorkSku.CAUSAL_TRAIN: 1000}
    assert large == {WorkSku.CAUSAL_JOB: 14, WorkSku.CAUSAL_TRAIN: 14_000}
    answers = causal_answers("org/m-1b", n_read=10, n_written=3)
    assert answers == {WorkSku.CAUSAL_JOB: 2, WorkSku.CAUSAL_READ: 20, WorkSku.CAUSAL_WRITE: 6}
    assert base_size_b("org/m-0.2b") == 0.2
    assert causal_training("org/m-0.2b", 10)[WorkSku.CAUSAL_TRAIN] == 10


def test_each_part_has_its_price_and_nothing_costs_nothing() -> None:
    parts = costs_of(encoder_training(100_000) | selecting(0), BOOK)
    assert [(part.sku, part.unit, part.quantity, part.amount_microusd) for part in parts] == [
        ("runner.encoder_job", "job", 1, 900),
        ("runner.encoder_train_token", "token", 100_000, 15_000),
        ("runner.select_job", "job", 1, 300),
    ]
    assert cost_of(encoder_reading(100_000), BOOK) == 900 + 11_000


@pytest.mark.parametrize("seconds", [1.0, 30.0, 0.5])
def test_the_seconds_of_a_search_buy_as_much_as_seconds_cost(seconds: float) -> None:
    work = {**drafting("kolm-tiny-1", 0), WorkSku.CAUSAL_DRAFT: drafted_within(seconds, BOOK)}
    assert cost_of(work, BOOK) - cost_of(drafting("kolm-tiny-1", 0), BOOK) == pytest.approx(150 * seconds, abs=4)


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_more_work_never_costs_less(n: int, more: int) -> None:
    assert cost_of(encoder_training(n), BOOK) <= cost_of(encoder_training(n + more), BOOK)
    assert cost_of(causal_training("7b", n), BOOK) <= cost_of(causal_training("7b", n + more), BOOK)


def test_books_of_before_bill_seconds_and_a_compile_keeps_its_own() -> None:
    assert [bills_work(book) for book in price_books()] == [False, False, True]
    assert kept_book("2026-11-22") is price_books()[1]
    assert kept_book("test") is price_books()[-1]
