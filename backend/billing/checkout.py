"""Buying a plan and managing what was bought: Stripe's pages take the payment and keep the card; we give addresses to
them and believe only what Stripe says afterwards."""

from uuid import UUID

from django.conf import settings
from django.db.models import F

from backend.billing import catalog
from backend.billing.models import Customer, Subscription, SubscriptionStatus
from backend.billing.stripe import subscriptions
from backend.billing.stripe.api import check_configured
from backend.billing.stripe.subscriptions import Order
from backend.domain.errors import Conflict, InvalidInput
from backend.domain.ids import Prefix, encode_id
from backend.domain.money.plans import plan
from backend.tenants import audit
from backend.tenants.actors import Actor
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from backend.usage.accounts import account_of

BILLS_PATH = "/app/bills/"


def start(tenant_id: UUID, name: str, actor: Actor) -> str:
    """The address of the page that sells the plan. Asks Stripe, so it is called outside of any transaction. Raises
    CustomerError (`payments_not_configured`), InvalidInput and Conflict."""
    check_configured()
    wanted = plan(name)
    if not wanted.is_sold:
        message = f"The {wanted.title} plan is not sold here; choose pro or team, or contact us."
        raise InvalidInput(message, code="plan_not_sold")
    entry = catalog.entry_of_plan(name)
    with tenant_scope(tenant_id):
        _check_none(tenant_id)
        month_end = account_of(tenant_id).period_end
    customer = customer_of(tenant_id)
    with tenant_scope(tenant_id):
        attempt = count_attempt(tenant_id)
        audit.note(tenant_id, actor=actor, action="checkout.started", data={"plan": name})
    order = Order(
        tenant=encode_id(Prefix.TENANT, tenant_id),
        customer=customer,
        plan=name,
        price_id=entry.price_id,
        metered_price_ids=tuple(row.price_id for row in catalog.meter_entries().values()),
        billing_from=month_end,
        success_url=f"{settings.KOLM_PUBLIC_URL}{BILLS_PATH}?checkout=done",
        cancel_url=f"{settings.KOLM_PUBLIC_URL}{BILLS_PATH}?checkout=canceled",
    )
    return subscriptions.start_checkout(order, key=f"checkout-{attempt}")


def open_portal(tenant_id: UUID, actor: Actor) -> str:
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


def customer_of(tenant_id: UUID) -> str:
    """The tenant's customer at Stripe, made when there is none. Two at once make one and a stray without a
    subscription, which costs nothing."""
    with tenant_scope(tenant_id):
        row, _ = Customer.objects.get_or_create(tenant_id=tenant_id)
        name = Tenant.objects.values_list("name", flat=True).get(id=tenant_id)
        if row.stripe_customer_id:
            return row.stripe_customer_id
        attempt = count_attempt(tenant_id)
    made = subscriptions.make_customer(tenant=encode_id(Prefix.TENANT, tenant_id), name=name, key=f"customer-{attempt}")
    with tenant_scope(tenant_id):
        Customer.objects.of_tenant(tenant_id).filter(stripe_customer_id="").update(stripe_customer_id=made)
        row.refresh_from_db()
    return row.stripe_customer_id


def _check_none(tenant_id: UUID) -> None:
    live = (SubscriptionStatus.ACTIVE, SubscriptionStatus.PAST_DUE)
    if Subscription.objects.of_tenant(tenant_id).filter(status__in=live).exists():
        message = "There is already a subscription; change it in the portal (POST /v1/billing/portal)."
        raise Conflict(message, code="already_subscribed")


def count_attempt(tenant_id: UUID) -> str:
    """A name for one attempt, made of our row: `<row>-<n>`."""
    Customer.objects.of_tenant(tenant_id).update(n_attempts=F("n_attempts") + 1)
    row = Customer.objects.of_tenant(tenant_id).get()
    return f"{row.id}-{row.n_attempts}"
