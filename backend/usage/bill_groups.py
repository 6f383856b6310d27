"""A bill by what the money was for: compiles and deployments by name, and inside each its steps and skus.

The amounts are those of the ledger's transactions, fact by fact, and what was taken back stands with the compile or the
deployment that it is of. So the groups sum to the use of a bill less its credits and corrections: to the micro-dollar.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from django.db.models import Max, QuerySet, Sum

from backend.domain.money.ledger import OF_USE, Kind
from backend.domain.money.sku_titles import sku_title
from backend.usage.bills import LineKind, adjustments
from backend.usage.models import Billing, LedgerTx, UsageFact


class GroupKind(StrEnum):
    COMPILE = "compile"
    DEPLOYMENT = "deployment"
    OTHER = "other"  # answers outside of deployments, selections, questions of the playground


_Place = tuple[GroupKind, UUID | None]
_NOWHERE: _Place = (GroupKind.OTHER, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPart:
    """One step's use of one sku, or what was taken back (`kind`, with its `reason`): negative then."""

    kind: LineKind
    title: str
    amount_microusd: int
    step: str = ""
    sku: str = ""
    quantity: int | None = None
    unit: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BillGroup:
    """`name` is the one of the booking; "" where it was booked before bills kept names."""

    kind: GroupKind
    id: UUID | None
    name: str
    parts: tuple[GroupPart, ...]

    @property
    def subtotal_microusd(self) -> int:
        return sum(part.amount_microusd for part in self.parts)

    @property
    def used_microusd(self) -> int:
        return sum(part.amount_microusd for part in self.parts if part.kind is LineKind.USAGE)


def period_txs(tenant_id: UUID, start: datetime, end: datetime) -> QuerySet[LedgerTx]:
    """The transactions of use of the billing periods that begin in a span."""
    rows = LedgerTx.objects.of_tenant(tenant_id).filter(is_use=True)
    return rows.filter(period_start__gte=start, period_start__lt=end)


def invoiced_txs(tenant_id: UUID, start: datetime, end: datetime) -> QuerySet[LedgerTx]:
    """The transactions of use that were booked in a span, as an invoice has them."""
    return LedgerTx.objects.of_tenant(tenant_id).filter(is_use=True, booked_at__gte=start, booked_at__lt=end)


def groups_of(tenant_id: UUID, txs: QuerySet[LedgerTx]) -> list[BillGroup]:
    """The groups, the largest subtotal first."""
    used = txs.filter(kind__in=OF_USE - {Kind.CREDIT_OUR_FAULT})
    facts = UsageFact.objects.of_tenant(tenant_id).filter(tx_id__in=used.values("id"), billing=Billing.CHARGE)
    parts, names = _used_parts(facts)
    for place, part in _taken_back(tenant_id, txs):
        parts[place].append(part)
    groups = [
        BillGroup(kind=place[0], id=place[1], name=names.get(place, ""), parts=tuple(rows))
        for place, rows in parts.items()
    ]
    return sorted(groups, key=lambda group: (-group.subtotal_microusd, group.kind, str(group.id)))


def share_of(group: BillGroup, groups: Iterable[BillGroup]) -> float:
    """The share of all use, before what was taken back; 0 where nothing was used."""
    total = sum(one.used_microusd for one in groups)
    return group.used_microusd / total if total else 0.0


def _used_parts(facts: QuerySet[UsageFact]) -> tuple[defaultdict[_Place, list[GroupPart]], dict[_Place, str]]:
    parts: defaultdict[_Place, list[GroupPart]] = defaultdict(list)
    names: dict[_Place, str] = {}
    rows = facts.values("compile_id", "deployment_id", "step", "sku", "unit")
    sums = rows.annotate(n=Sum("amount_microusd"), quantity_sum=Sum("quantity"), name=Max("subject"))
    for row in sums.order_by("step", "sku"):
        place = _place_of(row)
        names[place] = max(names.get(place, ""), row["name"])
        part = GroupPart(
            kind=LineKind.USAGE,
            title=sku_title(row["sku"]),
            amount_microusd=row["n"],
            step=row["step"],
            sku=row["sku"],
            quantity=row["quantity_sum"],
            unit=row["unit"],
        )
        parts[place].append(part)
    return parts, names


def _taken_back(tenant_id: UUID, txs: QuerySet[LedgerTx]) -> Iterable[tuple[_Place, GroupPart]]:
    """Credits for failures of ours and corrections, each with the place that it is of."""
    reversed_ids = list(txs.filter(kind=Kind.REVERSE).values_list("reverses", flat=True))
    facts = UsageFact.objects.of_tenant(tenant_id).filter(tx_id__in=reversed_ids, deployment_id__isnull=False)
    deployments = dict(facts.values_list("tx_id", "deployment_id"))
    for line in adjustments(tenant_id, txs):
        deployment_id = deployments.get(line.reverses) if line.reverses else None
        place = _place_of({"compile_id": line.compile_id, "deployment_id": deployment_id})
        is_credit = line.kind is LineKind.CREDIT_OUR_FAULT
        title = "Credit: it failed by a fault of ours" if is_credit else "Correction"
        yield place, GroupPart(kind=line.kind, title=title, amount_microusd=line.amount_microusd, reason=line.reason)


def _place_of(row: Mapping[str, object]) -> _Place:
    for kind, id in ((GroupKind.DEPLOYMENT, row["deployment_id"]), (GroupKind.COMPILE, row["compile_id"])):
        if isinstance(id, UUID):
            return kind, id
    return _NOWHERE
