"""Stripe's pages for cards, invoices and giving up a plan."""

from uuid import UUID

from django.conf import settings

from backend.billing.checkout import BILLS_PATH, count_attempt
from backend.billing.models import Customer
from backend.billing.stripe import subscriptions
from backend.billing.stripe.api import check_configured
from backend.domain.errors import Conflict
from backend.tenants import audit
from backend.tenants.actors import Actor
from backend.tenants.isolation import tenant_scope


def open(tenant_id: UUID, actor: Actor) -> str:
    """The address of Stripe's page for cards, invoices and giving up a plan. Raises Conflict before anything was
    bought."""
    check_configured()
    with tenant_scope(tenant_id):
        row = Customer.objects.of_tenant(tenant_id).exclude(stripe_customer_id="").first()
        if row is None:
            message = "There is nothing to manage yet: buy a plan first (POST /v1/billing/checkout)."
            raise Conflict(message, code="no_subscription")
        attempt = count_attempt(tenant_id)
        audit.note(tenant_id, actor=actor, action="billing_portal.opened")
    return subscriptions.open_portal(
        customer=row.stripe_customer_id, return_url=f"{settings.KOLM_PUBLIC_URL}{BILLS_PATH}", key=f"portal-{attempt}"
    )
