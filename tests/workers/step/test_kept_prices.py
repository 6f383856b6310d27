"""A compile is billed by the row that it was estimated by, to its end, whatever becomes of the tables."""

import json
from typing import Any

import pytest

from backend.artifacts.models import Receipt
from backend.compiles.models import Compile
from backend.domain.artifact.receipts import payload_of
from backend.domain.lifecycle import StepName
from backend.domain.money.teacher_prices import price_of_json
from backend.domain.money.vendor_prices import PriceTable, read_prices
from backend.tenants.isolation import tenant_scope
from backend.usage.models import UsageFact
from tests.compile_factories import make_compile
from tests.factories import make_tenant
from tests.workers.pipeline_helpers import (
    USAGE,
    ScriptedTeacher,
    calls,
    check_money,
    start,
    take_over,
    taught_by,
    told_apart,
    walk_through,
)
from workers.teachers.protocol import TeacherIdentity

pytestmark = pytest.mark.usefixtures("committed_db")
FIRST = (StepName.SLICING, StepName.SYNTHESIS)
THEN = (StepName.VERIFICATION, StepName.SELECTION, StepName.LABELING)
GPT = {"provider": "openai_compatible", "model": "gpt-4o-mini", "base_url": "https://api.openai.com/v1"}


class VendorsTeacher(ScriptedTeacher):
    identity = TeacherIdentity(provider="openai_compatible", model="gpt-4o-mini", revision="scripted")


def table(usd: str) -> PriceTable:
    row = {"provider": "openai", "model": "gpt-4o-mini", "input_usd_per_mtok": usd, "output_usd_per_mtok": usd}
    row |= {"as_of": "2026-11-20", "source": "contract 4711"}
    return read_prices(json.dumps({"prices": [row]}).encode(), origin="operator")


def facts(row: Compile) -> list[UsageFact]:
    with tenant_scope(row.tenant_id):
        return list(UsageFact.objects.filter(compile_id=row.id, sku__startswith="teacher."))


def signed_prices(row: Compile) -> dict[str, list[dict[str, Any]]]:
    with tenant_scope(row.tenant_id):
        receipts = list(Receipt.objects.filter(compile_id=row.id))
    statements = [json.loads(payload_of(receipt.envelope))["predicate"] for receipt in receipts]
    return {part["step"]: part["teacher"]["prices"] for part in statements if part["teacher"]["requests"]}


@pytest.mark.parametrize("begins_with", [None, "3"], ids=["the vendors' table", "the operator's table"])
def test_a_compile_is_billed_by_its_estimates_row_though_the_operators_table_changes(
    monkeypatch, settings, begins_with
):
    taught_by(monkeypatch, VendorsTeacher())
    if begins_with:
        settings.KOLM_TEACHER_PRICES = table(begins_with)
    examples = {"inline": told_apart(24), "holdout": 0.5}
    row = make_compile(make_tenant(), teacher=GPT, examples=examples, sampling={"n_candidates": 8})
    shown = row.estimate["teacher_price"]
    assert shown["origin"] == ("operator" if begins_with else "vendor")

    run = start(row)
    walk_through(run, *FIRST)
    settings.KOLM_TEACHER_PRICES = table("40")
    run = take_over(run, row)
    walk_through(run, *THEN)

    price = price_of_json(shown)
    made = calls(row)
    assert {call.step for call in made} >= {StepName.SYNTHESIS, StepName.LABELING}
    assert {call.price_version for call in made} == {shown["version"]}
    one = price.cost_microusd(input_tokens=USAGE.input_tokens, output_tokens=USAGE.output_tokens)
    assert {call.cost_microusd for call in made} == {one}
    billed = facts(row)
    assert {fact.price_version for fact in billed} == {shown["version"]}
    assert sum(fact.amount_microusd for fact in billed) == one * len(made)
    assert signed_prices(row) == {StepName.SYNTHESIS: [shown], StepName.LABELING: [shown]}
    check_money(row)
    again = make_compile(make_tenant(), teacher=GPT, examples=examples)
    assert again.estimate["teacher_price"]["input_usd_per_mtok"] == "40"


def test_a_compile_of_before_there_were_tables_is_billed_as_it_was(monkeypatch, settings):
    """Its estimate holds no price: the declared one still counts, and no table that came later."""
    taught_by(monkeypatch, VendorsTeacher())
    price = {"input_usd_per_mtok": 2, "output_usd_per_mtok": 8}
    row = make_compile(
        make_tenant(), teacher=GPT | {"price": price}, examples={"inline": told_apart(24), "holdout": 0.5}
    )
    with tenant_scope(row.tenant_id):
        estimate = {key: value for key, value in row.estimate.items() if key not in ("teacher_price", "fallback_price")}
        Compile.objects.filter(id=row.id).update(estimate=estimate)
    settings.KOLM_TEACHER_PRICES = table("40")
    walk_through(start(row), *FIRST)
    made = calls(row)
    assert {call.price_version for call in made} == {row.estimate["teacher_price_version"]}
    assert {call.cost_microusd for call in made} == {100 * 2 + 10 * 8}
