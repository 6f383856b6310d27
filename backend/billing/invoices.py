"""Closing a period: its invoice is made from the ledger, once, and what was accrued becomes a receivable in the same
transaction. Reading invoices is here too."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from backend.billing import usage_totals
from backend.billing.details import parties
from backend.billing.incidents import open_incident
from backend.billing.models import BilledBy, Invoice, InvoiceKind, InvoiceLine, InvoiceStatus, LineKind
from backend.billing.periods import Period, ended_periods, lock_books
from backend.billing.shapes import InvoiceDetailShape
from backend.domain.errors import NotFound
from backend.domain.ids import Prefix, decode_id, encode_id
from backend.domain.money.invoices import usage_sum
from backend.domain.money.ledger import (
    MICROUSD_PER_CENT,
    RECEIVABLE,
    REVENUE,
    Kind,
    Line,
    entry,
    invoice_lines,
    payment_lines,
)
from backend.domain.money.plans import plan, plan_then
from backend.rest.new_ids import new_uuid7
from backend.tenants.models import AuditEntry
from backend.usage import postings
from backend.usage.accounts import lock_account
from backend.usage.models import Account
from backend.webhooks.emit import emit

PLAN_REVENUE = f"{REVENUE}plan"
METER_TITLES = {
    "teacher": "Teacher calls",
    "gpu_compile": "Compiling",
    "serving": "Serving",
    "storage": "Storage",
    "platform": "Platform",
}


def list_of(tenant_id: UUID) -> QuerySet[Invoice]:
    """The tenant's invoices, newest first."""
    return Invoice.objects.of_tenant(tenant_id).order_by("-created_at", "-id")


def find_invoice(tenant_id: UUID, public_id: str) -> Invoice:
    """Raises NotFound, for another tenant's too."""
    row = Invoice.objects.of_tenant(tenant_id).filter(id=decode_id(Prefix.INVOICE, public_id)).first()
    if row is None:
        raise NotFound(f"There is no invoice {public_id[:60]!r}.")
    return row


def close_ended(tenant_id: UUID, *, now: datetime | None = None) -> list[Invoice]:
    """Close every period that has ended, in the caller's transaction. Doing it again changes nothing."""
    lock_books(tenant_id)
    account, at = lock_account(tenant_id)
    made = [_close(account, period, at) for period in ended_periods(tenant_id, account, now or at)]
    return [invoice for invoice in made if invoice is not None]


def _close(account: Account, period: Period, at: datetime) -> Invoice | None:
    """The period's invoice; None where there is nothing to say of it."""
    use = usage_totals.use_between(account.tenant_id, period.start, period.end)
    if use.carried > 0:
        # booked in a period whose invoice was made before: for a person to judge, since that invoice does not change
        subject = f"{period.start:%Y-%m-%dT%H}"
        open_incident("usage_after_invoice", subject, tenant_id=account.tenant_id, microusd=use.carried)
    summed = usage_sum(use.by_meter, left_to_pay=use.accrued + min(0, use.carried))
    by_kolm = period.billed_by == BilledBy.KOLM
    name = period.subscription.plan if period.subscription else plan_at(account, period.end)
    fee = _fee(name, period)
    if by_kolm and not summed.lines and not fee and not summed.billed_microusd:
        return None
    invoice = Invoice(
        id=new_uuid7(),
        tenant_id=account.tenant_id,
        number=_number(account.tenant_id),
        plan=name,
        period_start=period.start,
        period_end=period.end,
        status=InvoiceStatus.OPEN,
        usage_microusd=use.gross,
        grants_microusd=use.grants,
        our_fault_microusd=use.our_fault,
        subtotal_cents=summed.subtotal_cents + fee,
        credit_cents=summed.credit_cents,
        total_cents=summed.invoiced_cents + fee,
        rounding_microusd=summed.rounding_microusd,
        billed_by=period.billed_by,
        parties=parties(account.tenant_id),
    )
    if by_kolm and invoice.total_cents == 0:
        invoice.status = InvoiceStatus.PAID
    invoice.save(force_insert=True)
    drafts = [
        LineDraft(LineKind.USAGE, METER_TITLES[row.meter], row.amount_microusd, row.amount_cents, row.meter)
        for row in summed.lines
    ]
    if fee:
        drafts.append(plan_line(invoice.plan, fee))
    add_lines(invoice, drafts)
    lines = invoice_lines(summed.billed_microusd, summed.invoiced_cents)
    postings.post(account, Kind.INVOICE, f"invoice:{invoice.id}", lines, at=at, actor="kolm")
    book_fee(account, invoice, fee, at)
    if by_kolm:
        emit_finalized(invoice)
    return invoice


@dataclass(frozen=True, slots=True)
class LineDraft:
    kind: LineKind
    description: str
    amount_microusd: int
    amount_cents: int
    meter: str = ""


def plan_line(name: str, cents: int, description: str = "") -> LineDraft:
    title = description or f"{plan(name).title} plan"
    return LineDraft(LineKind.PLAN, title[:200], cents * MICROUSD_PER_CENT, cents)


def add_lines(invoice: Invoice, drafts: list[LineDraft]) -> None:
    position = InvoiceLine.objects.filter(tenant_id=invoice.tenant_id, invoice=invoice).count()
    InvoiceLine.objects.bulk_create(
        InvoiceLine(
            tenant_id=invoice.tenant_id,
            invoice=invoice,
            position=position + i,
            kind=draft.kind,
            meter=draft.meter,
            description=draft.description,
            amount_microusd=draft.amount_microusd,
            amount_cents=draft.amount_cents,
            rounding_microusd=draft.amount_cents * MICROUSD_PER_CENT - draft.amount_microusd,
        )
        for i, draft in enumerate(drafts)
    )


def book_fee(account: Account, invoice: Invoice, cents: int, at: datetime) -> None:
    """A plan's price becomes a receivable: it is no use of anything."""
    amount = cents * MICROUSD_PER_CENT
    lines = entry(Line(account=RECEIVABLE, amount_microusd=amount), Line(account=PLAN_REVENUE, amount_microusd=-amount))
    postings.post(account, Kind.INVOICE, f"invoice:{invoice.id}:plan", lines, at=at, actor="kolm")


def book_payment(invoice: Invoice, *, paid_at: datetime, actor: str) -> bool:
    """Mark an open invoice as paid and book it, without its tax, which was never ours. False when it is not open."""
    lock_books(invoice.tenant_id)
    account, at = lock_account(invoice.tenant_id)
    invoice.refresh_from_db()
    if invoice.status != InvoiceStatus.OPEN:
        return False
    invoice.status, invoice.paid_at = InvoiceStatus.PAID, paid_at
    invoice.save(update_fields=["status", "paid_at"])
    lines = payment_lines((invoice.total_cents - invoice.tax_cents) * MICROUSD_PER_CENT)
    postings.post(account, Kind.PAYMENT, f"payment:{invoice.id}", lines, at=at, actor=actor)
    return True


def emit_finalized(invoice: Invoice) -> None:
    """The event of an invoice that does not change any more."""
    emit(invoice.tenant_id, "invoice.finalized", {"object": InvoiceDetailShape.of(invoice)})


def lines_of(invoice: Invoice) -> list[InvoiceLine]:
    return list(InvoiceLine.objects.filter(tenant_id=invoice.tenant_id, invoice=invoice).order_by("position"))


def plan_at(account: Account, moment: datetime) -> str:
    """The plan in force just before then: the audit log has every change."""
    later = AuditEntry.objects.of_tenant(account.tenant_id).filter(action="plan.changed", created_at__gte=moment)
    change = later.order_by("seq").first()
    return str(change.data["from"]) if change else account.plan


def _fee(name: str, period: Period) -> int:
    """Cents of the plan in arrears, where no subscription took it in advance."""
    if period.billed_by == BilledBy.STRIPE or not period.is_whole_month:
        return 0
    return plan_then(name, period.start).monthly_cents or 0


def _number(tenant_id: UUID) -> str:
    """KOLM-, six characters of the tenant's id, and a count without gaps; under the books' lock."""
    n = Invoice.objects.of_tenant(tenant_id).count() + 1
    return f"KOLM-{encode_id(Prefix.TENANT, tenant_id)[-6:].upper()}-{n:04d}"


def new_plan_invoice(tenant_id: UUID, **fields: Any) -> Invoice:
    """The row of what Stripe took when a plan began; under the books' lock."""
    return Invoice.objects.create(
        id=new_uuid7(),
        tenant_id=tenant_id,
        kind=InvoiceKind.PLAN,
        number=_number(tenant_id),
        parties=parties(tenant_id),
        **fields,
    )
