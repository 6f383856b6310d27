"""The tables of billing: what was sold and invoiced, and what was pushed to Stripe.

Invoices are ours: made from the ledger, never changed but for what happens to them afterwards (paid, voided). Stripe
has a mirror of them. Four tables hold no tenant's content and are read by processes that serve all tenants: the catalog
of Stripe's ids, the events that Stripe sent, who is to be looked at when, and incidents (their figures are sealed).
"""

from enum import StrEnum
from typing import Any, ClassVar

from django.db import models
from django.db.models.functions import Now

from backend.domain.money.plans import PlanName
from backend.tenants.isolation import TenantOwned
from backend.tenants.sealing import SealedField

INCIDENT = b"billing.incident"  # what a sealed detail is bound to, beside its tenant


def _choices(values: type[StrEnum]) -> list[tuple[str, str]]:
    return [(v.value, v.value) for v in values]


class Customer(TenantOwned):
    """A tenant as a customer of Stripe. `n_attempts` counts what was asked for this row: part of idempotency keys."""

    stripe_customer_id = models.CharField(max_length=255, blank=True)
    n_attempts = models.IntegerField(default=0)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["tenant_id"], name="stripe_customer_once")]


class BillingDetails(TenantOwned):
    """The customer that invoices of a tenant are made out to. An invoice keeps them as they were when it was made."""

    name = models.CharField(max_length=200, blank=True)
    address = models.CharField(max_length=500, blank=True)  # lines
    vat_id = models.CharField(max_length=40, blank=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["tenant_id"], name="billing_details_once")]


class SubscriptionStatus(StrEnum):
    """`past_due`: a payment failed; the plan ends with the period. `refused`: it is not what our plans sell."""

    ACTIVE = "active"
    PAST_DUE = "past_due"
    ENDED = "ended"
    REFUSED = "refused"


class Subscription(TenantOwned):
    """A subscription as Stripe had it when it was last fetched. Stripe bills the usage of [metered_from,
    metered_until): whole hours, so that no hour is billed by Stripe and by us."""

    stripe_subscription_id = models.CharField(max_length=255)
    plan = models.CharField(max_length=16, choices=_choices(PlanName), blank=True)
    status = models.CharField(max_length=16, choices=_choices(SubscriptionStatus))
    price_id = models.CharField(max_length=255, blank=True)
    period_start = models.DateTimeField()
    period_end = models.DateTimeField()
    is_ending = models.BooleanField(default=False)
    lapses_at = models.DateTimeField(null=True)  # the end of the period that was not paid
    metered_from = models.DateTimeField()
    metered_until = models.DateTimeField(null=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["tenant_id", "stripe_subscription_id"], name="subscription_once")
        ]


class InvoiceStatus(StrEnum):
    OPEN = "open"
    PAID = "paid"
    VOID = "void"
    UNCOLLECTIBLE = "uncollectible"


class InvoiceKind(StrEnum):
    """`usage`: a closed period. `plan`: what Stripe took in advance when a plan began; it has no usage."""

    USAGE = "usage"
    PLAN = "plan"


class BilledBy(StrEnum):
    KOLM = "kolm"
    STRIPE = "stripe"


class Invoice(TenantOwned):
    """An invoice. Of kind usage: one half-open period [period_start, period_end) of a tenant, each beginning where the
    last one ended."""

    kind = models.CharField(max_length=8, choices=_choices(InvoiceKind), default=InvoiceKind.USAGE.value)
    number = models.CharField(max_length=40)
    plan = models.CharField(max_length=16, choices=_choices(PlanName))
    period_start = models.DateTimeField()
    period_end = models.DateTimeField()
    status = models.CharField(max_length=16, choices=_choices(InvoiceStatus))
    currency = models.CharField(max_length=3, default="usd")
    usage_microusd = models.BigIntegerField(default=0)  # gross
    grants_microusd = models.BigIntegerField(default=0)
    our_fault_microusd = models.BigIntegerField(default=0)  # taken back for failures of ours
    subtotal_cents = models.BigIntegerField(default=0)
    credit_cents = models.BigIntegerField(default=0)
    tax_cents = models.BigIntegerField(default=0)
    total_cents = models.BigIntegerField(default=0)
    rounding_microusd = models.BigIntegerField(default=0)
    billed_by = models.CharField(max_length=8, choices=_choices(BilledBy), default=BilledBy.KOLM.value)
    stripe_invoice_id = models.CharField(max_length=255, blank=True)
    n_attempts = models.IntegerField(default=0)
    stripe_settled_at = models.DateTimeField(null=True)  # Stripe's copy was compared with this one and is final
    hosted_url = models.TextField(blank=True)
    pdf_url = models.TextField(blank=True)
    parties = models.JSONField(default=dict, db_default={})  # seller and customer as they were; {}: made before
    created_at = models.DateTimeField(db_default=Now())
    paid_at = models.DateTimeField(null=True)

    class Meta:
        _usage: Any = models.Q(kind=InvoiceKind.USAGE.value)
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["tenant_id", "number"], name="invoice_number_once"),
            models.UniqueConstraint(fields=["tenant_id", "period_start"], condition=_usage, name="period_begins_once"),
            models.UniqueConstraint(fields=["tenant_id", "period_end"], condition=_usage, name="period_ends_once"),
            models.UniqueConstraint(
                fields=["tenant_id", "stripe_invoice_id"],
                condition=~models.Q(stripe_invoice_id=""),
                name="stripe_invoice_once",
            ),
            models.CheckConstraint(condition=models.Q(period_start__lt=models.F("period_end")), name="period_is_one"),
            models.CheckConstraint(
                condition=models.Q(
                    total_cents=models.F("subtotal_cents") - models.F("credit_cents") + models.F("tax_cents")
                ),
                name="invoice_adds_up",
            ),
        ]
        indexes: ClassVar = [models.Index(fields=["tenant_id", "created_at", "id"], name="invoice_by_time")]


class LineKind(StrEnum):
    PLAN = "plan"
    USAGE = "usage"


class InvoiceLine(TenantOwned):
    """Append-only. `amount_cents` is the micro-USD of the line rounded half to even; what rounding gave or took is
    beside it."""

    invoice = models.ForeignKey(Invoice, on_delete=models.CASCADE, related_name="lines")
    position = models.SmallIntegerField()
    kind = models.CharField(max_length=8, choices=_choices(LineKind))
    meter = models.CharField(max_length=16, blank=True)
    description = models.CharField(max_length=200)
    amount_microusd = models.BigIntegerField()
    amount_cents = models.BigIntegerField()
    rounding_microusd = models.BigIntegerField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["tenant_id", "invoice", "position"], name="invoice_line_once"),
            models.CheckConstraint(
                condition=models.Q(rounding_microusd=models.F("amount_cents") * 10_000 - models.F("amount_microusd")),
                name="invoice_line_adds_up",
            ),
        ]


class StripePush(TenantOwned):
    """The total of one meter in one hour: `total` in our ledger now, `pushed_total` as Stripe last took it. A push says
    the total, not the difference, so it may be repeated for ever."""

    meter = models.CharField(max_length=16)
    hour = models.DateTimeField()
    total = models.BigIntegerField()
    pushed_total = models.BigIntegerField(null=True)
    pushed_at = models.DateTimeField(null=True)
    n_attempts = models.IntegerField(default=0)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["tenant_id", "meter", "hour"], name="stripe_push_once")
        ]


# --- shared: ids, names and times ------------------------------------------------------------------------------


class CatalogEntry(models.Model):
    """A price that `manage.py stripe_setup` made at Stripe, or found there: of a plan, or of a meter."""

    lookup_key = models.CharField(max_length=64, primary_key=True)  # plan:pro, meter:teacher
    product_id = models.CharField(max_length=255)
    price_id = models.CharField(max_length=255, unique=True)
    meter_id = models.CharField(max_length=255, blank=True)


class EventStatus(StrEnum):
    RECEIVED = "received"
    PROCESSED = "processed"
    FAILED = "failed"


class StripeEvent(models.Model):
    """One event that Stripe sent with its signature: what it is about, never what it says of money. The object is
    fetched when the event is processed."""

    event_id = models.CharField(max_length=255, primary_key=True)
    type = models.CharField(max_length=100)
    object_type = models.CharField(max_length=64)
    object_id = models.CharField(max_length=255)
    status = models.CharField(max_length=16, choices=_choices(EventStatus), default=EventStatus.RECEIVED.value)
    n_attempts = models.IntegerField(default=0)
    n_deliveries = models.IntegerField(default=1)
    fault = models.CharField(max_length=100, blank=True)
    received_at = models.DateTimeField(db_default=Now())
    due_at = models.DateTimeField(db_default=Now())
    processed_at = models.DateTimeField(null=True)

    class Meta:
        indexes: ClassVar = [
            models.Index(
                fields=["due_at"], condition=models.Q(status=EventStatus.RECEIVED.value), name="stripe_event_due"
            )
        ]


class BillingTurn(models.Model):
    """The moment at which a tenant's books are looked at next. A row is made with the tenant (by a trigger)."""

    tenant_id = models.UUIDField(primary_key=True)
    due_at = models.DateTimeField(db_default=Now())
    hinted_at = models.DateTimeField(null=True)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["due_at"], name="billing_turn_due")]


class Incident(models.Model):
    """Two books that disagree, or a payment that fits no plan. Opened once, mended by a person, never by a program.
    `detail` is sealed for the tenant; without a tenant it is empty."""

    key = models.CharField(max_length=255, unique=True)
    kind = models.CharField(max_length=40)
    tenant_id = models.UUIDField(null=True)
    subject = models.CharField(max_length=255)
    detail = SealedField(default=b"", purpose=INCIDENT)
    n_seen = models.IntegerField(default=1)
    opened_at = models.DateTimeField(db_default=Now())
    seen_at = models.DateTimeField(db_default=Now())
    resolved_at = models.DateTimeField(null=True)
