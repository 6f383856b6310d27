"""The catalogue's examples have the fields that the API's shapes have: of objects that others emit."""

from datetime import UTC, datetime
from typing import Any

import pytest

from backend.billing.models import Invoice, InvoiceLine
from backend.billing.shapes import InvoiceLineShape, InvoiceShape
from backend.domain.webhooks.events import EventType, entry
from backend.rest.new_ids import new_uuid7
from backend.usage.budgets import BudgetShape
from backend.usage.models import Budget
from backend.webhooks.models import WebhookEndpoint
from backend.webhooks.shapes import EndpointShape

NOW = datetime(2026, 11, 22, tzinfo=UTC)


def a_budget() -> dict[str, Any]:
    row = Budget(tenant_id=new_uuid7(), scope="tenant", cap_microusd=1, period_start=NOW, created_at=NOW)
    return BudgetShape.of(row) | {"threshold_percent": 80}


def an_invoice() -> dict[str, Any]:
    row = Invoice(tenant_id=new_uuid7(), number="1", plan="pro", period_start=NOW, period_end=NOW, status="open")
    row.created_at = NOW
    line = InvoiceLineShape.of(InvoiceLine(kind="usage", description="x", amount_microusd=1, amount_cents=0))
    return InvoiceShape.of(row) | {"lines": [line]}


def an_endpoint() -> dict[str, Any]:
    shape = EndpointShape.of(
        WebhookEndpoint(tenant_id=new_uuid7(), url="https://x.example", events=["*"], created_at=NOW)
    )
    return {name: shape[name] for name in ("id", "object", "url", "status", "disabled_reason", "disabled_at")}


@pytest.mark.parametrize(
    ("type", "shape"),
    [
        (EventType.BUDGET_THRESHOLD, a_budget),
        (EventType.BUDGET_REACHED, a_budget),
        (EventType.INVOICE_FINALIZED, an_invoice),
        (EventType.ENDPOINT_DISABLED, an_endpoint),
    ],
)
def test_an_example_has_the_fields_of_the_object(type: EventType, shape: Any) -> None:
    assert set(entry(type).object) == set(shape())
    examples, lines = entry(type).object.get("lines", []), shape().get("lines", [])
    assert bool(examples) == bool(lines)
    assert {frozenset(example) for example in examples} == {frozenset(line) for line in lines}
