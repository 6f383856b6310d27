"""Stripe's copy of an invoice: held as a draft until Stripe has the last hour of usage, made final, compared, mirrored.

Stripe makes a draft at the end of each period and would make it final an hour later. We keep it a draft
(`auto_advance` off) until the period is closed here, every hour is pushed, and Stripe's hours are ours; then we grant
the credits that the ledger used and make it final. If Stripe and the ledger disagree, nothing is made final and an
incident says so.
"""

from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import F

from backend.billing import catalog, invoices, meters
from backend.billing.incidents import open_incident
from backend.billing.invoices import add_lines, book_fee, book_payment, emit_finalized, lines_of, plan_line
from backend.billing.models import BilledBy, Invoice, InvoiceStatus, LineKind, Subscription
from backend.billing.periods import lock_books
from backend.billing.stripe import invoices as stripe_invoices
from backend.billing.stripe import meters as stripe_meters
from backend.billing.stripe.invoices import RemoteInvoice, RemoteLine
from backend.domain.ids import Prefix, encode_id
from backend.domain.money.plans import most_monthly_cents
from backend.tenants.isolation import tenant_scope
from backend.usage.accounts import lock_account

PATIENCE = timedelta(hours=2)  # Stripe adds up what it was told some minutes later
GIVE_UP = timedelta(days=3)
_STATUS = {
    "open": InvoiceStatus.OPEN,
    "paid": InvoiceStatus.PAID,
    "void": InvoiceStatus.VOID,
    "uncollectible": InvoiceStatus.UNCOLLECTIBLE,
}


def sync_invoices(tenant_id: UUID, customer: str, *, now: datetime) -> bool:
    """Bring our invoices and Stripe's together, outside of any transaction. True when none is left to settle."""
    with tenant_scope(tenant_id):
        subscriptions = list(Subscription.objects.of_tenant(tenant_id))
        waiting = list(
            Invoice.objects.of_tenant(tenant_id)
            .filter(billed_by=BilledBy.STRIPE, stripe_settled_at=None, period_end__lte=now)
            .order_by("period_end")
        )
    remote = [row for sub in subscriptions for row in stripe_invoices.invoices_of(sub.stripe_subscription_id)]
    for row in remote:
        if row.status == "draft" and row.auto_advance:
            stripe_invoices.hold_draft(row.id, key=f"hold-{row.id}-{int(now.timestamp())}")
        elif row.reason != "subscription_cycle" and row.status != "draft":
            mirror_plan(tenant_id, row)
    by_end = {row.period_end: row for row in remote if row.reason == "subscription_cycle"}
    done = [_sync(invoice, by_end.get(invoice.period_end), customer, now) for invoice in waiting]
    for row in remote:
        sync_status(tenant_id, row)
    return all(done)


def _sync(invoice: Invoice, remote: RemoteInvoice | None, customer: str, now: datetime) -> bool:
    if remote is None:
        if now > invoice.period_end + GIVE_UP:
            open_incident("stripe_has_no_invoice", invoice.number, tenant_id=invoice.tenant_id)
        return False
    if remote.status == "draft":
        if not _has_every_hour(invoice, customer, now):
            return False
        remote = _finalize(invoice, remote, customer)
    return _mirror(invoice, remote, now)


def _has_every_hour(invoice: Invoice, customer: str, now: datetime) -> bool:
    """Return whether Stripe has every hour of the period as the ledger has it."""
    with tenant_scope(invoice.tenant_id):
        hours = meters.unpushed_totals(invoice.tenant_id)
        if hours.filter(hour__gte=invoice.period_start, hour__lt=invoice.period_end).exists():
            return False
    span = (invoice.period_start, invoice.period_end)
    differing = meters.differences(invoice.tenant_id, customer, *span)
    if differing and not meters.was_pushed_since(invoice.tenant_id, *span, now - PATIENCE):
        meters.report(invoice.tenant_id, differing)
    return not differing


def _finalize(invoice: Invoice, remote: RemoteInvoice, customer: str) -> RemoteInvoice:
    """Grant the credits that the ledger used, and make the draft final; both may have worked when they seemed not
    to."""
    with tenant_scope(invoice.tenant_id):
        Invoice.objects.of_tenant(invoice.tenant_id).filter(id=invoice.id).update(n_attempts=F("n_attempts") + 1)
        invoice.refresh_from_db()
    attempt = f"{invoice.id}-{invoice.n_attempts}"
    stripe_meters.grant_credit(
        customer=customer,
        cents=invoice.credit_cents,
        name=f"Credits of invoice {invoice.number}",
        invoice=encode_id(Prefix.INVOICE, invoice.id),
        key=f"credit-{attempt}",
    )
    now = stripe_invoices.invoice(remote.id)
    if now.status != "draft":
        return now
    stripe_invoices.finalize(remote.id, key=f"finalize-{attempt}")
    return stripe_invoices.invoice(remote.id)


def _mirror(invoice: Invoice, remote: RemoteInvoice, now: datetime) -> bool:
    """Compare usage line by line, then take over what only Stripe knows: the plan's price in advance, tax."""
    faults = faults_of(invoice, remote)
    if faults:
        subject = f"{invoice.number} {remote.id}"
        open_incident("invoices_differ", subject, tenant_id=invoice.tenant_id, faults=faults)
        return False
    with tenant_scope(invoice.tenant_id):
        lock_books(invoice.tenant_id)
        invoice.refresh_from_db()
        if invoice.stripe_settled_at is not None:
            return True
        fee = sum(line.amount for line in _plan_lines(remote))
        add_lines(invoice, [plan_line(invoice.plan, line.amount, line.description) for line in _plan_lines(remote)])
        invoice.subtotal_cents += fee
        invoice.tax_cents = remote.tax
        invoice.total_cents = invoice.subtotal_cents - invoice.credit_cents + remote.tax
        invoice.stripe_invoice_id, invoice.stripe_settled_at = remote.id, now
        invoice.hosted_url, invoice.pdf_url = remote.hosted_url, remote.pdf_url
        invoice.save()
        account, at = lock_account(invoice.tenant_id)
        book_fee(account, invoice, fee, at)
        emit_finalized(invoice)
    return True


def faults_of(invoice: Invoice, remote: RemoteInvoice) -> list[str]:
    """Return where the two disagree; nothing where they are the same to the cent."""
    meter_of = {entry.price_id: meter.value for meter, entry in catalog.meter_entries().items()}
    with tenant_scope(invoice.tenant_id):
        ours = {line.meter: line.amount_cents for line in lines_of(invoice) if line.kind == LineKind.USAGE}
    theirs: dict[str, int] = {}
    for line in remote.lines:
        if line.price_id in meter_of:
            meter = meter_of[line.price_id]
            theirs[meter] = theirs.get(meter, 0) + line.amount
    faults = [
        f"{meter}: {ours.get(meter, 0)} cents here, {theirs.get(meter, 0)} at Stripe"
        for meter in sorted({*ours, *theirs})
        if ours.get(meter, 0) != theirs.get(meter, 0)
    ]
    if remote.credits != invoice.credit_cents:
        faults.append(f"credits: {invoice.credit_cents} cents here, {remote.credits} at Stripe")
    for line in _plan_lines(remote):
        faults += _plan_fault(line)
    fee = sum(line.amount for line in _plan_lines(remote))
    expected = sum(ours.values()) + fee - invoice.credit_cents + remote.tax
    if not faults and remote.total != expected:
        faults.append(f"total: {expected} cents here, {remote.total} at Stripe")
    return faults


def _plan_lines(remote: RemoteInvoice) -> list[RemoteLine]:
    metered = {entry.price_id for entry in catalog.meter_entries().values()}
    return [line for line in remote.lines if line.price_id not in metered]


def _plan_fault(line: RemoteLine) -> list[str]:
    name = catalog.plan_of_price(line.price_id)
    if name is None:
        return [f"a line of {line.amount} cents for none of our prices"]
    most = most_monthly_cents(name)
    return [] if -most <= line.amount <= most else [f"{name}: {line.amount} cents of at most {most}"]


def mirror_plan(tenant_id: UUID, remote: RemoteInvoice) -> None:
    """Our copy of what Stripe took when a plan began (part of a month, in advance)."""
    with tenant_scope(tenant_id):
        lock_books(tenant_id)
        if Invoice.objects.of_tenant(tenant_id).filter(stripe_invoice_id=remote.id).exists():
            return
        lines = _plan_lines(remote)
        faults = [fault for line in lines for fault in _plan_fault(line)]
        fee = sum(line.amount for line in lines)
        if faults or not lines or remote.subtotal != fee or remote.status not in _STATUS:
            open_incident("invoices_differ", remote.id, tenant_id=tenant_id, faults=faults, total=remote.total)
            return
        row = invoices.new_plan_invoice(
            tenant_id,
            plan=catalog.plan_of_price(lines[0].price_id),
            period_start=min(line.period_start for line in lines),
            period_end=max(line.period_end for line in lines),
            status=InvoiceStatus.OPEN,
            subtotal_cents=fee,
            credit_cents=fee + remote.tax - remote.total,
            tax_cents=remote.tax,
            total_cents=remote.total,
            billed_by=BilledBy.STRIPE,
            stripe_invoice_id=remote.id,
            stripe_settled_at=remote.paid_at or remote.period_end,
            hosted_url=remote.hosted_url,
            pdf_url=remote.pdf_url,
        )
        add_lines(row, [plan_line(row.plan, line.amount, line.description) for line in lines])
        account, at = lock_account(tenant_id)
        book_fee(account, row, remote.total - remote.tax, at)
        emit_finalized(row)


def sync_status(tenant_id: UUID, remote: RemoteInvoice) -> None:
    """Take over what became of an invoice after it was final."""
    with tenant_scope(tenant_id):
        row = Invoice.objects.of_tenant(tenant_id).filter(stripe_invoice_id=remote.id).first()
        status = _STATUS.get(remote.status)
        if row is None or status is None or row.status == status:
            return
        if status == InvoiceStatus.PAID and row.status == InvoiceStatus.OPEN:
            book_payment(row, paid_at=remote.paid_at or row.created_at, actor="Stripe")
        else:
            row.status = status
            row.save(update_fields=["status"])
