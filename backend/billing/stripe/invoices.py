"""Invoices at Stripe, as our own values."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from backend.billing.stripe.api import ask, id_of, time_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLine:
    price_id: str
    amount: int
    quantity: int
    description: str
    period_start: datetime
    period_end: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteInvoice:
    """An invoice as Stripe has it now, in cents. `credits` is what billing credits took off."""

    id: str
    customer: str
    subscription: str
    status: str
    reason: str
    currency: str
    auto_advance: bool
    lines: tuple[RemoteLine, ...]
    subtotal: int
    credits: int
    tax: int
    total: int
    period_end: datetime
    hosted_url: str
    pdf_url: str
    paid_at: datetime | None


def invoice(id: str) -> RemoteInvoice:
    return _invoice(ask(lambda api: api.v1.invoices.retrieve(id)))


def invoices_of(subscription_id: str) -> list[RemoteInvoice]:
    """The subscription's invoices, newest first, at most 100."""
    params: Any = {"subscription": subscription_id, "limit": 100}
    return [_invoice(row) for row in ask(lambda api: api.v1.invoices.list(params)).data]


def hold_draft(id: str, *, key: str) -> RemoteInvoice:
    """Keep a draft from becoming final by itself: it waits for the last hours of usage."""
    return _invoice(ask(lambda api: api.v1.invoices.update(id, {"auto_advance": False}, {"idempotency_key": key})))


def finalize(id: str, *, key: str) -> RemoteInvoice:
    """Make a draft final; Stripe collects it from there on."""
    got = ask(lambda api: api.v1.invoices.finalize_invoice(id, {"auto_advance": True}, {"idempotency_key": key}))
    return _invoice(got)


def _invoice(row: Any) -> RemoteInvoice:
    parent = row.parent.subscription_details if row.parent else None
    paid_at = row.status_transitions.paid_at if row.status_transitions else None
    credits = row.total_pretax_credit_amounts or []
    return RemoteInvoice(
        id=str(row.id),
        customer=id_of(row.customer),
        subscription=id_of(parent.subscription) if parent else "",
        status=str(row.status),
        reason=str(row.billing_reason),
        currency=str(row.currency),
        auto_advance=bool(row.auto_advance),
        lines=tuple(_line(line) for line in _all_lines(row)),
        subtotal=int(row.subtotal),
        credits=sum(part.amount for part in credits if part.type == "credit_balance_transaction"),
        tax=sum(part.amount for part in row.total_taxes or []),
        total=int(row.total),
        period_end=time_of(row.period_end),
        hosted_url=str(row.hosted_invoice_url or ""),
        pdf_url=str(row.invoice_pdf or ""),
        paid_at=time_of(paid_at) if paid_at else None,
    )


def _all_lines(row: Any) -> list[Any]:
    if not row.lines.has_more:
        return list(row.lines.data)
    return list(ask(lambda api: api.v1.invoices.line_items.list(str(row.id), {"limit": 100})).data)


def _line(line: Any) -> RemoteLine:
    details = line.pricing.price_details if line.pricing else None
    return RemoteLine(
        price_id=id_of(details.price) if details else "",
        amount=int(line.amount),
        quantity=int(line.quantity or 0),
        description=str(line.description or ""),
        period_start=time_of(line.period.start),
        period_end=time_of(line.period.end),
    )
