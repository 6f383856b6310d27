"""Recording usage facts and summing them. A fact is priced when it is recorded, by the price book in force then."""

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Sum

from backend.usage.models import Billing, UsageFact


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """`source_key` names the event in the world that used something; recording it again changes nothing."""

    sku: str
    quantity: int
    unit: str
    amount_microusd: int
    price_version: str
    source_key: str
    billing: Billing = Billing.CHARGE
    is_estimated: bool = False


def record(tenant_id: UUID, facts: Iterable[Fact], *, compile_id: UUID | None, step: str) -> None:
    """Write the facts in the caller's transaction; those already there are left as they are."""
    UsageFact.objects.bulk_create(
        [
            UsageFact(
                tenant_id=tenant_id,
                compile_id=compile_id,
                step=step,
                sku=fact.sku,
                quantity=fact.quantity,
                unit=fact.unit,
                price_version=fact.price_version,
                amount_microusd=fact.amount_microusd,
                billing=fact.billing,
                is_estimated=fact.is_estimated,
                source_key=fact.source_key,
            )
            for fact in facts
        ],
        ignore_conflicts=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTotal:
    step: str
    sku: str
    unit: str
    billing: str
    quantity: int
    amount_microusd: int


def totals_of_compile(tenant_id: UUID, compile_id: UUID) -> list[UsageTotal]:
    """What a compile used, summed by step, sku and who carries it."""
    rows = (
        UsageFact.objects.filter(tenant_id=tenant_id, compile_id=compile_id)
        .values("step", "sku", "unit", "billing")
        .annotate(n=Sum("quantity"), usd=Sum("amount_microusd"))
        .order_by("step", "sku", "billing")
    )
    return [
        UsageTotal(
            step=r["step"],
            sku=r["sku"],
            unit=r["unit"],
            billing=r["billing"],
            quantity=r["n"],
            amount_microusd=r["usd"],
        )
        for r in rows
    ]
