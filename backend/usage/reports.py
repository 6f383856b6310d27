"""Bills and reports: the ledger's figures for money, the facts' for quantities. The same numbers wherever they are
shown: API, console, invoice and CSV."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from django.db.models import Count, DateField, F, Func, Q, QuerySet, Sum

from backend.domain.drafts.vocabulary import Saving
from backend.domain.ids import Prefix, encode_id
from backend.rest.times import rfc3339
from backend.tenants.isolation import tenant_scope
from backend.usage.bills import (
    COUNTED,
    Bill,
    BillLine,
    LineKind,
    adjustments,
    by_step,
    draft_line,
    grants_applied,
    own_key,
    usage_by_meter,
    waste_by_meter,
)
from backend.usage.models import Billing, DraftSaving, LedgerTx, UsageFact

__all__ = [
    "COUNTED",
    "Bill",
    "BillLine",
    "Group",
    "LineKind",
    "UsageRow",
    "compile_bill",
    "csv_rows",
    "period_bill",
    "usage_by",
]

CSV_HEADER = (
    "occurred_at",
    "compile",
    "step",
    "meter",
    "sku",
    "quantity",
    "unit",
    "amount_microusd",
    "billing",
    "provider_microusd",
    "estimated",
    "price_version",
    "api_key",
    "source_key",
)
CSV_CHUNK = 1_000


class Group(StrEnum):
    DAY = "day"
    STEP = "step"
    SKU = "sku"
    API_KEY = "api_key"
    COMPILE = "compile"


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow:
    """One group's usage. `key` is the day, step, sku or public id; "" for what belongs to none."""

    key: str
    n_facts: int
    charged_microusd: int
    waste_microusd: int
    provider_microusd: int


def usage_by(tenant_id: UUID, group: str, start: datetime, end: datetime) -> list[UsageRow]:
    """Usage between two moments (`end` excluded), grouped; the largest group first, days in order."""
    by = Group(group)
    day = Func(F("occurred_at"), template="(%(expressions)s AT TIME ZONE 'UTC')::date", output_field=DateField())
    column = {Group.DAY: day, Group.STEP: F("step"), Group.SKU: F("sku")}.get(by)
    if column is None:
        column = F("api_key_id") if by is Group.API_KEY else F("compile_id")
    rows = _facts(tenant_id, start, end).annotate(group=column).values("group")
    rows = rows.annotate(
        n=Count("id"),
        charged=Sum("amount_microusd", filter=Q(billing=Billing.CHARGE), default=0),
        waste=Sum("amount_microusd", filter=Q(billing=Billing.WASTE), default=0),
        provider=Sum("provider_microusd", default=0),
    )
    ordered = rows.order_by("group") if by is Group.DAY else rows.order_by("-charged", "group")
    return [
        UsageRow(
            key=_key(by, row["group"]),
            n_facts=row["n"],
            charged_microusd=row["charged"],
            waste_microusd=row["waste"],
            provider_microusd=row["provider"],
        )
        for row in ordered
    ]


def period_bill(tenant_id: UUID, start: datetime, end: datetime) -> Bill:
    """The bill of the billing periods that begin in a span; for one period, its start and end."""
    txs = LedgerTx.objects.of_tenant(tenant_id).filter(period_start__gte=start, period_start__lt=end)
    lines = [*usage_by_meter(tenant_id, txs), *adjustments(tenant_id, txs), *grants_applied(tenant_id, txs)]
    # what costs nothing has no transaction: its period is the one that its time is in
    facts = _facts(tenant_id, start, end)
    savings = DraftSaving.objects.of_tenant(tenant_id).filter(occurred_at__gte=start, occurred_at__lt=end)
    saving = _saving(savings)
    lines += [*waste_by_meter(tenant_id, txs), *own_key(facts), *draft_line(saving)]
    return Bill(tenant_id=tenant_id, start=start, end=end, lines=tuple(lines), saving=saving)


def compile_bill(tenant_id: UUID, compile_id: UUID) -> Bill:
    """Return what one compile came to, step by step."""
    txs = LedgerTx.objects.of_tenant(tenant_id).filter(compile_id=compile_id)
    facts = UsageFact.objects.of_tenant(tenant_id).filter(compile_id=compile_id)
    saving = _saving(DraftSaving.objects.of_tenant(tenant_id).filter(compile_id=compile_id))
    lines = [*by_step(facts, Billing.CHARGE, LineKind.USAGE), *adjustments(tenant_id, txs)]
    lines += [*grants_applied(tenant_id, txs), *by_step(facts, Billing.WASTE, LineKind.WASTE)]
    lines += [*own_key(facts), *draft_line(saving)]
    return Bill(tenant_id=tenant_id, start=None, end=None, lines=tuple(lines), saving=saving, compile_id=compile_id)


def csv_rows(tenant_id: UUID, start: datetime, end: datetime) -> Iterator[tuple[str, ...]]:
    """The header and every fact, oldest first, in chunks that are transactions of their own: a file of any length is
    streamed after the request's transaction has ended."""
    yield CSV_HEADER
    after: tuple[datetime, UUID] | None = None
    while True:
        with tenant_scope(tenant_id):
            rows = _facts(tenant_id, start, end).order_by("occurred_at", "id")
            if after is not None:
                rows = rows.filter(Q(occurred_at__gt=after[0]) | Q(occurred_at=after[0], id__gt=after[1]))
            page = list(rows[:CSV_CHUNK])
        for row in page:
            yield _csv_row(row)
        if len(page) < CSV_CHUNK:
            return
        after = (page[-1].occurred_at, page[-1].id)


def _facts(tenant_id: UUID, start: datetime, end: datetime) -> QuerySet[UsageFact]:
    return UsageFact.objects.of_tenant(tenant_id).filter(occurred_at__gte=start, occurred_at__lt=end)


def _saving(rows: QuerySet[DraftSaving]) -> Saving:
    sums = rows.aggregate(avoided=Sum("avoided_microusd"), verification=Sum("verification_microusd"))
    return Saving(avoided=sums["avoided"] or 0, verification=sums["verification"] or 0)


def _key(by: Group, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, UUID):
        return encode_id(Prefix.API_KEY if by is Group.API_KEY else Prefix.COMPILE, value)
    return str(value)


def _csv_row(row: UsageFact) -> tuple[str, ...]:
    return (
        rfc3339(row.occurred_at) or "",
        "" if row.compile_id is None else encode_id(Prefix.COMPILE, row.compile_id),
        row.step,
        row.meter,
        inert(row.sku),
        str(row.quantity),
        row.unit,
        str(row.amount_microusd),
        row.billing,
        str(row.provider_microusd),
        str(row.is_estimated).lower(),
        row.price_version,
        "" if row.api_key_id is None else encode_id(Prefix.API_KEY, row.api_key_id),
        inert(row.source_key),
    )


def inert(text: str) -> str:
    """A spreadsheet takes these for the beginning of a formula, and a model's name is the customer's."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
