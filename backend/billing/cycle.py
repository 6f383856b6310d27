"""One look at a tenant's books: close what has ended, tell Stripe the hours, bring the invoices together.

A turn may be lost, doubled or cut anywhere: each part looks at what is there and does what is missing. Two turns of one
tenant do not run side by side (a session's advisory lock), so that an older total never comes after a newer one.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from uuid import UUID

from django.db import connection
from django.utils import timezone

from backend.billing import activation, invoices, meters, schedule, settlement
from backend.billing.models import BillingTurn, Customer, Subscription
from backend.billing.stripe.api import StripeUnavailable, is_configured
from backend.tenants.isolation import tenant_scope
from backend.usage.models import Account

log = logging.getLogger("kolm.billing")


def run_cycle(tenant_id: UUID, *, now: datetime | None = None) -> bool:
    """Do what is to be done; False where another turn is at it. Not called in a transaction."""
    with _alone(tenant_id) as is_alone:
        if not is_alone:
            return False
        at = now or timezone.now()
        is_settled = True
        with tenant_scope(tenant_id):
            if not Account.objects.of_tenant(tenant_id).exists():  # the tenant was erased
                BillingTurn.objects.filter(tenant_id=tenant_id).delete()
                return True
            activation.lapse(tenant_id, at)
            invoices.close_ended(tenant_id, now=now)
            customer = _customer_at_stripe(tenant_id)
        if customer and is_configured():
            try:
                is_settled = _with_stripe(tenant_id, customer, at)
            except StripeUnavailable as away:
                log.warning("billing of %s waits: %s", tenant_id, away)
                is_settled = False
        schedule.set_next(tenant_id, at, is_settled=is_settled, is_metered=bool(customer))
        return True


def _with_stripe(tenant_id: UUID, customer: str, at: datetime) -> bool:
    with tenant_scope(tenant_id):
        # once a day, and as long as something is unpushed, every hour that Stripe still takes
        is_whole = at.hour == 0 or meters.unpushed_totals(tenant_id).exists()
        meters.refresh(tenant_id, now=at, since=at - meters.TAKEN if is_whole else None)
    meters.push(tenant_id, customer, now=at)
    return settlement.sync_invoices(tenant_id, customer, now=at)


def _customer_at_stripe(tenant_id: UUID) -> str:
    """The tenant's customer, if it ever had a subscription."""
    if not Subscription.objects.of_tenant(tenant_id).exists():
        return ""
    return Customer.objects.of_tenant(tenant_id).values_list("stripe_customer_id", flat=True).first() or ""


@contextmanager
def _alone(tenant_id: UUID) -> Iterator[bool]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(hashtextextended('billing turn:' || %s, 0))", [str(tenant_id)])
        is_alone = bool(cursor.fetchone()[0])
    try:
        yield is_alone
    finally:
        if is_alone:
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT pg_advisory_unlock(hashtextextended('billing turn:' || %s, 0))", [str(tenant_id)]
                )
