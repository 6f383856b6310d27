"""A bill and its lines: money from the ledger, quantities from the facts."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from django.db.models import Q, QuerySet, Sum

from backend.domain.drafts.vocabulary import Saving
from backend.domain.ids import Prefix, encode_id
from backend.domain.money.ledger import ACCRUED, CREDIT, REVENUE, WASTE, Kind, Meter, to_cents
from backend.usage.models import Billing, LedgerLine, LedgerTx, UsageFact

METER_TITLES = {
    Meter.TEACHER: "Teacher",
    Meter.GPU_COMPILE: "Compiling on runners",
    Meter.SERVING: "Running artifacts",
    Meter.STORAGE: "Storage",
    Meter.PLATFORM: "Platform",
}


class LineKind(StrEnum):
    """The kind of a line of a bill. Those that count towards the total come first."""

    USAGE = "usage"
    CREDIT_OUR_FAULT = "credit_our_fault"
    CORRECTION = "correction"
    CREDIT_APPLIED = "credit_applied"
    WASTE = "waste"  # carried by kolm
    OWN_KEY = "own_key"  # the provider's bill, by estimate
    DRAFT_SAVINGS = "draft_savings"


COUNTED = frozenset({LineKind.USAGE, LineKind.CREDIT_OUR_FAULT, LineKind.CORRECTION, LineKind.CREDIT_APPLIED})


@dataclass(frozen=True, slots=True, kw_only=True)
class BillLine:
    """`amount_microusd` is negative where it is taken off. `compile_id` and `reason` are a credit's, `reverses` the
    transaction that a correction takes back."""

    kind: LineKind
    label: str
    amount_microusd: int
    meter: str = ""
    step: str = ""
    sku: str = ""
    quantity: int | None = None
    unit: str = ""
    compile_id: UUID | None = None
    reason: str = ""
    reverses: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """The bill of a tenant for a time, or of a compile. `compile_id` is of a compile's bill."""

    tenant_id: UUID
    start: datetime | None
    end: datetime | None
    lines: tuple[BillLine, ...]
    saving: Saving
    compile_id: UUID | None = None

    def sum_of(self, kind: LineKind) -> int:
        return sum(line.amount_microusd for line in self.lines if line.kind == kind)

    @property
    def usage_microusd(self) -> int:
        return self.sum_of(LineKind.USAGE)

    @property
    def total_microusd(self) -> int:
        """The amount that is owed: use, less what was a failure of ours, less what grants paid."""
        return sum(line.amount_microusd for line in self.lines if line.kind in COUNTED)

    @property
    def total_cents(self) -> int:
        return to_cents(self.total_microusd)

    @property
    def waste_microusd(self) -> int:
        return self.sum_of(LineKind.WASTE)

    @property
    def credited_microusd(self) -> int:
        return -self.sum_of(LineKind.CREDIT_OUR_FAULT)

    @property
    def provider_microusd(self) -> int:
        return self.sum_of(LineKind.OWN_KEY)


def _lines(tenant_id: UUID, txs: QuerySet[LedgerTx]) -> QuerySet[LedgerLine]:
    return LedgerLine.objects.of_tenant(tenant_id).filter(tx__in=txs)


def usage_by_meter(tenant_id: UUID, txs: QuerySet[LedgerTx]) -> Iterator[BillLine]:
    used = _lines(tenant_id, txs.filter(kind__in=(Kind.CAPTURE, Kind.CHARGE))).filter(account__startswith=REVENUE)
    sums = {row["account"]: -row["n"] for row in used.values("account").annotate(n=Sum("amount_microusd"))}
    for meter in Meter:
        amount = sums.get(f"{REVENUE}{meter}", 0)
        if amount:
            yield BillLine(kind=LineKind.USAGE, label=METER_TITLES[meter], meter=meter, amount_microusd=amount)


def adjustments(tenant_id: UUID, txs: QuerySet[LedgerTx]) -> Iterator[BillLine]:
    """Failures of ours and reversals: a line each, with its compile and reason."""
    wanted = txs.filter(Q(kind=Kind.CREDIT_OUR_FAULT) | Q(kind=Kind.REVERSE, is_use=True)).order_by("booked_at", "id")
    for tx in wanted.annotate(
        used=Sum("lines__amount_microusd", filter=Q(lines__account=ACCRUED) | Q(lines__account__startswith=CREDIT))
    ):
        name = "" if tx.compile_id is None else f" {encode_id(Prefix.COMPILE, tx.compile_id)}"
        is_credit = tx.kind == Kind.CREDIT_OUR_FAULT
        yield BillLine(
            kind=LineKind.CREDIT_OUR_FAULT if is_credit else LineKind.CORRECTION,
            label=f"Credit: compile{name} failed by a fault of ours" if is_credit else f"Correction{name}",
            amount_microusd=tx.used or 0,
            compile_id=tx.compile_id,
            reason=tx.reason,
            reverses=tx.reverses,
        )


def grants_applied(tenant_id: UUID, txs: QuerySet[LedgerTx]) -> Iterator[BillLine]:
    paid = _lines(tenant_id, txs.filter(is_use=True)).filter(account__startswith=CREDIT)
    for row in paid.values("account").annotate(n=Sum("amount_microusd")).order_by("account"):
        if row["n"]:
            kind = row["account"].removeprefix(CREDIT)
            yield BillLine(
                kind=LineKind.CREDIT_APPLIED, label=f"Paid from {kind} credit", amount_microusd=-row["n"], sku=kind
            )


def waste_by_meter(tenant_id: UUID, txs: QuerySet[LedgerTx]) -> Iterator[BillLine]:
    facts = UsageFact.objects.of_tenant(tenant_id).filter(
        tx_id__in=txs.filter(lines__account=WASTE).values("id"), billing=Billing.WASTE
    )
    for row in facts.values("meter").annotate(n=Sum("amount_microusd")).order_by("meter"):
        title = METER_TITLES[Meter(row["meter"])]
        yield BillLine(
            kind=LineKind.WASTE, label=f"{title}, carried by kolm", meter=row["meter"], amount_microusd=row["n"]
        )


def by_step(facts: QuerySet[UsageFact], billing: Billing, kind: LineKind) -> Iterator[BillLine]:
    rows = facts.filter(billing=billing, amount_microusd__gt=0).values("step", "sku", "unit", "meter")
    for row in rows.annotate(quantity=Sum("quantity"), n=Sum("amount_microusd")).order_by("step", "sku"):
        yield BillLine(
            kind=kind,
            label=f"{row['step']}: {row['sku']}",
            amount_microusd=row["n"],
            meter=row["meter"],
            step=row["step"],
            sku=row["sku"],
            quantity=row["quantity"],
            unit=row["unit"],
        )


def own_key(facts: QuerySet[UsageFact]) -> Iterator[BillLine]:
    rows = facts.filter(provider_microusd__gt=0).values("sku", "unit")
    for row in rows.annotate(quantity=Sum("quantity"), n=Sum("provider_microusd")).order_by("sku"):
        yield BillLine(
            kind=LineKind.OWN_KEY,
            label=f"{row['sku']}: your provider will bill about this",
            amount_microusd=row["n"],
            meter=Meter.TEACHER,
            sku=row["sku"],
            quantity=row["quantity"],
            unit=row["unit"],
        )


def draft_line(saving: Saving) -> Iterator[BillLine]:
    if saving != Saving():
        yield BillLine(kind=LineKind.DRAFT_SAVINGS, label="Saved by drafts, net", amount_microusd=saving.net)
