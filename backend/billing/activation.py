"""The plan that a subscription gives, decided from the subscription as Stripe has it now, never from an event's body.

A plan becomes active only when the price's id is that plan's in our catalog, its amount and currency are those of our
plan table, it is bought once a month and once, and the plan that was ordered is the plan of that price. Anything else
is an incident and changes no plan.
"""

from datetime import datetime
from uuid import UUID

from backend.billing import catalog
from backend.billing.incidents import open_incident
from backend.billing.models import Customer, Subscription, SubscriptionStatus
from backend.billing.periods import lock_books, open_since, whole_hour_after
from backend.billing.stripe.subscriptions import RemoteSubscription
from backend.domain.errors import NotFound
from backend.domain.ids import Prefix, decode_id
from backend.domain.money.plans import CURRENCY, PlanName, plan
from backend.tenants.actors import Actor
from backend.tenants.isolation import tenant_scope
from backend.usage.accounts import account_row, set_plan

STRIPE = Actor(kind="system", label="Stripe")
_STATUS = {
    "active": SubscriptionStatus.ACTIVE,
    "past_due": SubscriptionStatus.PAST_DUE,
    "unpaid": SubscriptionStatus.PAST_DUE,
    "canceled": SubscriptionStatus.ENDED,
    "incomplete_expired": SubscriptionStatus.ENDED,
}


def apply(remote: RemoteSubscription) -> UUID | None:
    """Bring our row and the tenant's plan up to the subscription. Returns the tenant, None where it is nobody's."""
    tenant_id = _tenant_of(remote)
    if tenant_id is None:
        return None
    with tenant_scope(tenant_id):
        lock_books(tenant_id)
        fault = fault_of(remote)
        if fault:
            kind, detail = "payment_fits_no_plan", {"fault": fault, "amount": remote.unit_amount}
            open_incident(kind, remote.id, tenant_id=tenant_id, price=remote.price_id, **detail)
        status = _STATUS.get(remote.status)
        row = _row(tenant_id, remote, SubscriptionStatus.REFUSED if fault else status)
        if row is None:
            return tenant_id
        if status == SubscriptionStatus.ENDED:
            _fall_back(tenant_id)
        elif status == SubscriptionStatus.ACTIVE and not fault and account_row(tenant_id).plan != row.plan:
            set_plan(tenant_id, row.plan, actor=STRIPE)
    return tenant_id


def fault_of(remote: RemoteSubscription) -> str:
    """Return what does not agree with our plan table; "" where all does.

    Kept apart from the rest so that every combination can be tried.
    """
    name = catalog.plan_of_price(remote.price_id) if remote.price_id else None
    if name is None:
        return "the price is none of ours"
    sold = plan(name)
    if not sold.is_sold or remote.unit_amount != sold.monthly_cents:
        return "the amount is not the plan's"
    if remote.currency != CURRENCY:
        return "the currency is not ours"
    if remote.interval != "1 month" or remote.quantity != 1:
        return "it is not one plan a month"
    if remote.plan != name:
        return "another plan was ordered"
    if remote.metered_price_ids != {entry.price_id for entry in catalog.meter_entries().values()}:
        return "the meters are not all there"
    return ""


def lapse(tenant_id: UUID, now: datetime) -> None:
    """Return to free where a payment failed and the paid period is over, in the tenant's scope."""
    lapsed = Subscription.objects.of_tenant(tenant_id).filter(status=SubscriptionStatus.PAST_DUE, lapses_at__lte=now)
    if lapsed.exists():
        _fall_back(tenant_id)


def _fall_back(tenant_id: UUID) -> None:
    """A plan that was bought ends; one that was agreed by contract does not end with a card."""
    live = Subscription.objects.of_tenant(tenant_id).filter(status=SubscriptionStatus.ACTIVE)
    if not live.exists() and plan(account_row(tenant_id).plan).is_sold:
        set_plan(tenant_id, PlanName.FREE, actor=STRIPE)


def _row(tenant_id: UUID, remote: RemoteSubscription, status: SubscriptionStatus | None) -> Subscription | None:
    rows = Subscription.objects.of_tenant(tenant_id)
    row = rows.filter(stripe_subscription_id=remote.id).first()
    if row is None:
        if status is None:  # not paid yet: nothing to keep
            return None
        others = rows.filter(status__in=(SubscriptionStatus.ACTIVE, SubscriptionStatus.PAST_DUE))
        if status != SubscriptionStatus.ENDED and others.exists():
            open_incident("second_subscription", remote.id, tenant_id=tenant_id)
        # never into a period that has its invoice already: its usage would be billed twice
        begin = max(whole_hour_after(remote.start), open_since(tenant_id))
        row = Subscription(tenant_id=tenant_id, stripe_subscription_id=remote.id, metered_from=begin)
    row.plan = catalog.plan_of_price(remote.price_id) or ""
    row.status = status or row.status
    row.price_id = remote.price_id
    row.period_start, row.period_end = remote.period_start, remote.period_end
    row.is_ending = remote.is_ending
    if row.status != SubscriptionStatus.PAST_DUE:
        row.lapses_at = None
    elif row.lapses_at is None:  # Stripe begins further periods while it goes on asking for the money
        row.lapses_at = remote.period_end
    if remote.ended_at is not None and row.metered_until is None:
        row.metered_until = max(row.metered_from, whole_hour_after(remote.ended_at))
    row.save()
    return row


def _tenant_of(remote: RemoteSubscription) -> UUID | None:
    """Return whose it is: the tenant that it names, if that tenant is this customer."""
    try:
        tenant_id = decode_id(Prefix.TENANT, remote.tenant)
    except NotFound:
        open_incident("subscription_of_nobody", remote.id)
        return None
    with tenant_scope(tenant_id):
        known = Customer.objects.of_tenant(tenant_id).filter(stripe_customer_id=remote.customer).exists()
    if not known:
        open_incident("subscription_of_nobody", remote.id)
        return None
    return tenant_id
