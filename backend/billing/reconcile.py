"""Comparing our books with Stripe's. What differs becomes an incident; nothing is mended here."""

from datetime import datetime, timedelta
from uuid import UUID

from django.utils import timezone

from backend.billing import meters, settlement, usage_totals
from backend.billing.incidents import open_incident, open_ones
from backend.billing.models import BilledBy, BillingTurn, Customer, Incident, Invoice, InvoiceKind, Subscription
from backend.billing.stripe import invoices
from backend.billing.stripe.api import is_configured
from backend.tenants.isolation import tenant_scope

SETTLED = timedelta(hours=2)  # hours that are younger may still be on their way
FULL = timedelta(days=34)


def reconcile(*, now: datetime | None = None) -> list[Incident]:
    """Look at every tenant's books. Returns the incidents that are open afterwards, oldest first."""
    at = now or timezone.now()
    for tenant_id in BillingTurn.objects.order_by("tenant_id").values_list("tenant_id", flat=True):
        reconcile_tenant(tenant_id, now=at)
    return open_ones()


def reconcile_tenant(tenant_id: UUID, *, now: datetime) -> None:
    """Invoices against the ledger they were made from; pushed hours against the ledger and Stripe; invoices against
    Stripe's copies."""
    with tenant_scope(tenant_id):
        _invoices_against_ledger(tenant_id)
        customer = Customer.objects.of_tenant(tenant_id).exclude(stripe_customer_id="").first()
        subscriptions = list(Subscription.objects.of_tenant(tenant_id))
        if subscriptions:
            _pushes_against_ledger(tenant_id, now)
        spans = meters.billed_hours(tenant_id, now - SETTLED)
    if customer is None or not subscriptions or not is_configured():
        return
    for start, end in spans:
        start = max(start, (now - FULL).replace(minute=0, second=0, microsecond=0))
        if start < end:
            differing = meters.differences(tenant_id, customer.stripe_customer_id, start, end)
            meters.report(tenant_id, differing)
    for row in subscriptions:
        _copies(tenant_id, row.stripe_subscription_id)


def _invoices_against_ledger(tenant_id: UUID) -> None:
    for invoice in Invoice.objects.of_tenant(tenant_id).filter(kind=InvoiceKind.USAGE):
        use = usage_totals.use_between(tenant_id, invoice.period_start, invoice.period_end)
        if use.gross != invoice.usage_microusd:
            figures = {"ledger": use.gross, "invoice": invoice.usage_microusd}
            open_incident("invoice_differs_from_ledger", invoice.number, tenant_id=tenant_id, **figures)


def _pushes_against_ledger(tenant_id: UUID, now: datetime) -> None:
    """Hours that Stripe was not told of in time, or told something else than the ledger has."""
    for start, end in meters.billed_hours(tenant_id, now - SETTLED):
        start = max(start, (now - FULL).replace(minute=0, second=0, microsecond=0))
        totals = usage_totals.hourly_totals(tenant_id, start, end) if start < end else {}
        pushed = meters.pushed_totals(tenant_id, start, end)
        for place in sorted({*totals, *pushed}):
            if totals.get(place, 0) != pushed.get(place, 0):
                meter, hour = place
                figures = {"ledger": totals.get(place, 0), "pushed": pushed.get(place, 0)}
                open_incident("hour_not_pushed", f"{meter} {hour:%Y-%m-%dT%H}", tenant_id=tenant_id, **figures)


def _copies(tenant_id: UUID, subscription_id: str) -> None:
    """Every final invoice at Stripe has one of ours, to the cent."""
    for remote in invoices.invoices_of(subscription_id):
        if remote.status == "draft":
            continue
        with tenant_scope(tenant_id):
            ours = Invoice.objects.of_tenant(tenant_id).filter(stripe_invoice_id=remote.id).first()
        if ours is None:
            open_incident("invoice_unknown_here", remote.id, tenant_id=tenant_id, total=remote.total)
        elif ours.total_cents != remote.total:
            figures = {"ours": ours.total_cents, "stripe": remote.total}
            open_incident("invoice_totals_differ", f"{ours.number} {remote.id}", tenant_id=tenant_id, **figures)
        elif ours.kind == InvoiceKind.USAGE and ours.billed_by == BilledBy.STRIPE:
            faults = settlement.faults_of(ours, remote)
            if faults:
                open_incident("invoices_differ", f"{ours.number} {remote.id}", tenant_id=tenant_id, faults=faults)
