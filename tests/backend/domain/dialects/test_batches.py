"""Where batches are sent, what they cost, and where they are refused."""

from decimal import Decimal
from typing import Any

import pytest

from backend.domain.dialects.batches import OTHER_PROTOCOLS, OUR_MOST_BYTES, OUR_MOST_REQUESTS
from backend.domain.dialects.table import VENDORS
from backend.domain.errors import InvalidSpec
from backend.domain.lifecycle import StepName
from backend.domain.money.pricing import price_book
from backend.domain.money.teacher_prices import kept_prices, resolve_prices
from backend.domain.planning.estimates import estimate
from backend.domain.spec.parsing import Spec, parse_spec
from tests.compile_factories import small_spec

OPENAI = {"provider": "openai_compatible", "base_url": "https://api.openai.com/v1", "model": "gpt-4o-mini"}


def spec_of(**teacher: Any) -> Spec:
    return parse_spec(small_spec(teacher=OPENAI | {"mode": "batch"} | teacher))


def test_a_vendor_either_gets_batches_or_has_a_reason() -> None:
    without = {row.name for row in VENDORS if row.batch is None} - {"deepseek", "cerebras"}
    assert without == set(OTHER_PROTOCOLS)
    for row in VENDORS:
        if row.batch is not None:
            assert row.batch.source.startswith("https://")
            assert row.batch.most_requests <= OUR_MOST_REQUESTS
            assert row.batch.most_bytes <= OUR_MOST_BYTES


@pytest.mark.parametrize(
    ("base_url", "words"),
    [
        ("https://api.mistral.ai/v1", '"mistral" yet: /v1/batch/jobs'),
        ("https://api.anthropic.com/v1", "Message Batches is an API of its own"),
        ("https://llm.example.com/v1", 'knows no batch endpoint of the dialect "openai-compatible"'),
    ],
)
def test_a_vendor_without_batches_is_refused_with_what_to_do(base_url: str, words: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        spec_of(base_url=base_url)
    (problem,) = refused.value.problems
    assert (problem.pointer, problem.code) == ("/teacher/mode", "no_batch_endpoint")
    assert words in problem.message
    assert 'Set "live"' in problem.message


def test_a_teacher_that_is_no_vendor_has_no_batches() -> None:
    with pytest.raises(InvalidSpec, match="grammar has none"):
        parse_spec(small_spec(teacher={"provider": "grammar", "model": "kolm-grammar-1", "mode": "batch"}))


def test_a_server_that_speaks_the_protocol_is_named_by_its_dialect() -> None:
    assert spec_of(base_url="https://llm.example.com/v1", dialect="openai").teacher.mode == "batch"


def test_a_price_in_a_batch_is_a_row_of_its_own() -> None:
    spec = spec_of()
    prices = resolve_prices(spec.teacher, book=price_book())
    assert prices.batch is not None
    assert prices.batch.version == f"{prices.main.version}-batch-50"
    for kind in ("input", "output", "cached_input"):
        assert getattr(prices.batch, kind).usd_per_unit * 2 == getattr(prices.main, kind).usd_per_unit
    kept = kept_prices(prices.to_json(), spec.teacher, book=price_book())
    assert kept == prices
    assert kept.batch_of("gpt-4o-mini") == prices.batch


def test_a_declared_price_may_have_a_discount_of_its_own() -> None:
    declared = {"input_usd_per_mtok": 2, "output_usd_per_mtok": 8}
    halved = resolve_prices(spec_of(price=declared).teacher, book=price_book())
    fifth = resolve_prices(spec_of(price=declared | {"batch_discount": 0.2}).teacher, book=price_book())
    assert halved.batch is not None
    assert fifth.batch is not None
    assert halved.batch.input.usd_per_unit * 1_000_000 == Decimal(1)
    assert fifth.batch.input.usd_per_unit * 1_000_000 == Decimal("1.6")


def test_cached_input_costs_what_input_costs_where_discounts_do_not_add_up() -> None:
    groq = {"base_url": "https://api.groq.com/openai/v1", "model": "openai/gpt-oss-20b"}
    batch = resolve_prices(spec_of(**groq).teacher, book=price_book()).batch
    assert batch is not None
    assert batch.cached_input.usd_per_unit == batch.input.usd_per_unit


def test_the_fallback_model_has_its_own_price_in_a_batch() -> None:
    prices = resolve_prices(spec_of(fallback_model="gpt-4o").teacher, book=price_book())
    assert prices.batch_of("gpt-4o") == prices.batch_fallback
    assert prices.batch_of("gpt-4o-mini") == prices.batch


def test_the_estimate_expects_the_price_of_a_batch_and_says_how_long_one_takes() -> None:
    batch, live = estimate(spec_of()), estimate(spec_of(mode="live"))
    for name in (StepName.SYNTHESIS, StepName.LABELING):
        assert live.steps[name].expected * 0.49 < batch.steps[name].expected < live.steps[name].expected * 0.53
        assert batch.steps[name].high == live.steps[name].high
    assert batch.to_json()["batch_window_h"] == 24
    assert live.to_json()["batch_price"] is live.to_json()["batch_window_h"] is None
    assert any("each answered within 24 h" in line for line in batch.assumptions)
