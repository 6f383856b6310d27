"""What a judge's question is expected to cost is what it costs."""

import dataclasses
import json
import random
from collections.abc import Sequence
from decimal import Decimal

import pytest

from backend.domain.money.pricing import Price, TeacherPrice
from tests.workers.teachers.judges.numbered_judges import NAMES, drafts_of, hold, question_of, slice_of, truthful
from workers.teachers.judges.compile_judge import judge_compile
from workers.teachers.judges.compile_requests import MAX_SHARED_CHARS
from workers.teachers.judges.judge_quotes import (
    ANSWER_TOKENS,
    ITEM_TOKENS,
    MIN_CACHED_TOKENS,
    SECTION_TOKENS,
    quote_pool,
    request_tokens,
    verdict_tokens,
)
from workers.teachers.judges.judged_slices import JudgedSlice
from workers.teachers.prompts.candidate_and_label import unfence
from workers.teachers.prompts.number_ranges import as_ranges
from workers.teachers.protocol import Message
from workers.teachers.token_estimates import estimate_tokens


def price(usd_in: str, usd_out: str, usd_cached: str = "0.1") -> TeacherPrice:
    def per_token(usd: str) -> Price:
        return Price(sku="s", unit="token", usd_per_unit=Decimal(usd) / 1_000_000)

    cached, plain = per_token(usd_cached), per_token(usd_in)
    return TeacherPrice(version="v", input=plain, output=per_token(usd_out), cached_input=cached, cache_write=plain)


def compile_of(n_slices: int, per_slice: int, words: int = 10) -> list[JudgedSlice]:
    made = []
    for key in range(n_slices):
        texts = [f"{NAMES[key]} {i} " + "word " * words for i in range(per_slice)]
        drafts = tuple(dataclasses.replace(d, n_tokens=estimate_tokens(d.text)) for d in drafts_of(texts))
        made.append(dataclasses.replace(slice_of(key, []), drafts=drafts))
    return made


@pytest.mark.parametrize(("n_slices", "per_slice"), [(5, 8), (5, 19), (1, 30), (4, 24), (3, 90)])
def test_the_quotes_of_a_compiles_slices_sum_to_about_what_is_sent(n_slices: int, per_slice: int) -> None:
    slices = compile_of(n_slices, per_slice)
    question = question_of(*slices)
    tokens = request_tokens(question)
    quotes = [
        quote_pool(tokens, [d.n_tokens for d in one.drafts], price("1", "0"), n_slices=n_slices, acceptance=1.0)
        for one in slices
    ]
    _, rounds = hold(judge_compile(question, random.Random(1)), truthful)
    sent = sum(tokens_of(request.messages) for request in rounds[0])
    assert sum(quote.whole_microusd for quote in quotes) == pytest.approx(sent, rel=0.06)


def tokens_of(messages: Sequence[Message]) -> int:
    """A token for every four bytes, and ITEM_TOKENS for what stands around a numbered text."""
    items = unfence(messages[1].content)
    texts = [json.loads(line.split(" ", 1)[1]) for fenced in items for line in fenced.split("\n")]
    in_items = sum(estimate_tokens(text) + ITEM_TOKENS for text in texts)
    besides = estimate_tokens(messages[0].content) + estimate_tokens(messages[1].content)
    return besides - sum(estimate_tokens(fenced) for fenced in items) + in_items


@pytest.mark.parametrize("acceptance", [0.1, 0.3, 0.5, 0.7, 0.9, 0.96])
def test_verdict_tokens_are_those_of_ranges_of_independent_verdicts(acceptance: float) -> None:
    """A number is a token and a half, a comma with its space two."""
    rng, n, total = random.Random(1), 20_000, 0.0
    ranges = as_ranges(i for i in range(1, n + 1) if rng.random() < acceptance)
    for part in ranges.split(", "):
        total += 2 + sum(1.5 for _ in part.split("-")) + ("-" in part)
    assert verdict_tokens(acceptance) == pytest.approx(total / n, rel=0.1)
    assert verdict_tokens(0.0) == verdict_tokens(1.0) == 0.0


def test_a_slice_pays_its_share_of_the_request_and_a_large_one_for_all_that_it_fills() -> None:
    tokens = request_tokens(question_of(*compile_of(5, 8)))
    few = quote_pool(tokens, [12] * 8, price("1", "5"), n_slices=5, acceptance=0.9)
    alone = quote_pool(tokens, [12] * 8, price("1", "5"), n_slices=1, acceptance=0.9)
    many = quote_pool(tokens, [12] * 192, price("1", "5"), n_slices=5, acceptance=0.9)
    request = tokens.prompt + 5 * ANSWER_TOKENS
    assert few.overhead_microusd == pytest.approx(request / 5 + SECTION_TOKENS)
    assert alone.overhead_microusd == pytest.approx(request + SECTION_TOKENS)
    assert many.overhead_microusd == pytest.approx(2 * request + SECTION_TOKENS)
    (each,) = set(few.per_draft_microusd)
    assert each == pytest.approx(12 + ITEM_TOKENS + round(tokens.control / 16) + 5 * verdict_tokens(0.9))
    assert quote_pool(tokens, [], price("1", "5"), n_slices=5, acceptance=0.9).per_draft_microusd == ()


def test_a_long_beginning_is_expected_from_the_vendors_cache_and_a_short_one_is_not() -> None:
    slices = compile_of(5, 8)
    short = request_tokens(question_of(*slices))
    assert short.cached == 0
    question = dataclasses.replace(question_of(*slices), head=("Task: " + "t" * 4 * MIN_CACHED_TOKENS,))
    long = request_tokens(question)
    assert MIN_CACHED_TOKENS < long.cached < long.prompt
    paid = [
        quote_pool(long, [12], price("1", "5", cached), n_slices=1, acceptance=0.5).overhead_microusd
        for cached in ("0.1", "1")
    ]
    assert paid[1] - paid[0] == pytest.approx(0.9 * long.cached)


def test_of_too_many_slices_some_are_counted_and_nothing_is_cached() -> None:
    one = dataclasses.replace(slice_of(0, []), lines=("Slice: x", "Hint: " + "x" * 400))
    many = [dataclasses.replace(one, key=key) for key in range(1 + MAX_SHARED_CHARS // 400)]
    tokens = request_tokens(question_of(*many))
    assert tokens.cached == 0
    assert tokens.prompt < request_tokens(question_of(*many[:15])).prompt
