"""An invoice as it stands on paper: the row, its lines, and what the money was for, as one value. The same row gives
the same document for ever: the parties are those that the invoice kept, the groups those of facts that never change.
"""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from backend.billing.details import parties
from backend.billing.invoices import lines_of
from backend.billing.models import BilledBy, Invoice, InvoiceKind
from backend.domain.errors import Conflict
from backend.domain.ids import Prefix, encode_id
from backend.domain.money.plans import plan
from backend.usage.bill_groups import BillGroup, GroupKind, groups_of, invoiced_txs

MOST_GROUPS = 200  # on paper; the CSV has all
_KINDS = {
    GroupKind.COMPILE: "Compile",
    GroupKind.DEPLOYMENT: "Deployment",
    GroupKind.OTHER: "Outside of compiles and deployments",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentGroup:
    """`amount_microusd` is before credit that was given, and after what was taken back."""

    title: str
    amount_microusd: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InvoiceDocument:
    number: str
    issued_at: datetime
    period_start: datetime
    period_end: datetime
    plan_title: str
    currency: str
    seller: tuple[str, ...]  # lines
    customer: tuple[str, ...]
    note: str
    lines: tuple[tuple[str, int], ...]  # description, cents
    subtotal_cents: int
    credit_cents: int
    tax_cents: int
    total_cents: int
    groups: tuple[DocumentGroup, ...]

    @property
    def used_microusd(self) -> int:
        return sum(group.amount_microusd for group in self.groups)


def document_of(invoice: Invoice) -> InvoiceDocument:
    """Raises Conflict (`invoice_not_final`) while Stripe has not settled it: its tax is not known before."""
    if invoice.billed_by == BilledBy.STRIPE and invoice.stripe_settled_at is None:
        message = "This invoice is not final yet: its tax is Stripe's to work out. Try again in a few hours."
        raise Conflict(message, code="invoice_not_final")
    named = invoice.parties or parties(invoice.tenant_id)
    return InvoiceDocument(
        number=invoice.number,
        issued_at=invoice.created_at,
        period_start=invoice.period_start,
        period_end=invoice.period_end,
        plan_title=plan(invoice.plan).title,
        currency=invoice.currency.upper(),
        seller=_party(named["seller"]),
        customer=_party(named["customer"]),
        note=named["seller"].get("note", ""),
        lines=tuple((line.description, line.amount_cents) for line in lines_of(invoice)),
        subtotal_cents=invoice.subtotal_cents,
        credit_cents=invoice.credit_cents,
        tax_cents=invoice.tax_cents,
        total_cents=invoice.total_cents,
        groups=() if invoice.kind == InvoiceKind.PLAN else _groups(invoice),
    )


def _party(named: dict[str, str]) -> tuple[str, ...]:
    lines = [named.get("name", ""), *named.get("address", "").split("\n"), named.get("country", "")]
    vat = named.get("vat_id")
    lines += [f"VAT ID {vat}" if vat else "", named.get("email", "")]
    return tuple(line for line in lines if line.strip())


def _groups(invoice: Invoice) -> tuple[DocumentGroup, ...]:
    groups = groups_of(invoice.tenant_id, invoiced_txs(invoice.tenant_id, invoice.period_start, invoice.period_end))
    shown, rest = groups[:MOST_GROUPS], groups[MOST_GROUPS:]
    rows = [DocumentGroup(title=_title(group), amount_microusd=group.subtotal_microusd) for group in shown]
    if rest:
        left = sum(group.subtotal_microusd for group in rest)
        rows.append(DocumentGroup(title=f"{len(rest)} more compiles and deployments", amount_microusd=left))
    return tuple(rows)


def _title(group: BillGroup) -> str:
    if group.id is None:
        return _KINDS[group.kind]
    return f"{_KINDS[group.kind]} {group.name}".rstrip() + f" ({_public_id(group.kind, group.id)})"


def _public_id(kind: GroupKind, id: UUID) -> str:
    return encode_id(Prefix.COMPILE if kind is GroupKind.COMPILE else Prefix.DEPLOYMENT, id)
