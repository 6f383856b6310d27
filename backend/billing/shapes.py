"""Answers about plans and invoices. Money is micro-USD; an invoice's sums are whole cents of it."""

from typing import Any

from rest_framework import serializers as s

from backend.billing.models import BillingDetails, Invoice, InvoiceKind, InvoiceLine, InvoiceStatus, LineKind
from backend.domain.ids import Prefix
from backend.domain.money.ledger import MICROUSD_PER_CENT
from backend.rest.shapes import Constant, PublicId, Shape, TextOrNull, Time
from backend.usage.shapes import Currency


class Cents(s.IntegerField):
    """Cents of the row, micro-USD in the answer."""

    def to_representation(self, value: int) -> int:  # type: ignore[override]
        return value * MICROUSD_PER_CENT


class PlanShape(Shape[dict[str, Any]]):  # asdict(plan) and the two booleans
    object = Constant("plan")
    name = s.CharField()
    title = s.CharField()
    monthly_microusd = Cents(source="monthly_cents", allow_null=True, help_text="null: agreed by contract.")
    currency = Currency()
    is_current = s.BooleanField(help_text="Whether your team is on it.")
    is_sold_here = s.BooleanField(help_text="Whether POST /v1/billing/checkout sells it on this installation.")
    spend_cap_microusd = s.IntegerField(
        source="cap_default_microusd", allow_null=True, help_text="The monthly cap it begins with."
    )
    spend_cap_max_microusd = s.IntegerField(
        source="cap_max_microusd", allow_null=True, help_text="The highest cap; null: as you like."
    )
    concurrent_compiles = s.IntegerField(allow_null=True, help_text="null: no limit, here and below.")
    seats = s.IntegerField(allow_null=True)
    api_keys = s.IntegerField(allow_null=True)
    webhook_endpoints = s.IntegerField(allow_null=True)
    retention_days = s.IntegerField()
    sso = s.BooleanField()
    audit_log = s.BooleanField()


class InvoiceLineShape(Shape[InvoiceLine]):
    kind = s.ChoiceField([k.value for k in LineKind])
    meter = TextOrNull()
    description = s.CharField()
    amount_microusd = s.IntegerField(help_text="As the ledger has it.")
    invoiced_microusd = Cents(source="amount_cents", help_text="Rounded to whole cents, half to even.")


class InvoiceShape(Shape[Invoice]):
    object = Constant("invoice")
    id = PublicId(Prefix.INVOICE)
    number = s.CharField()
    kind = s.ChoiceField([k.value for k in InvoiceKind], help_text="usage: a period; plan: a plan's price in advance.")
    status = s.ChoiceField([k.value for k in InvoiceStatus])
    plan = s.CharField()
    period_start = Time(help_text="Included.")
    period_end = Time(help_text="Excluded.")
    currency = s.CharField()
    usage_microusd = s.IntegerField(help_text="Usage at list price, before credits.")
    grants_microusd = s.IntegerField(help_text="What your credits paid of it.")
    our_fault_microusd = s.IntegerField(help_text="What was taken back for failures of ours.")
    subtotal_microusd = Cents(source="subtotal_cents")
    credit_microusd = Cents(source="credit_cents", help_text="Grants and our failures together, in whole cents.")
    tax_microusd = Cents(source="tax_cents")
    total_microusd = Cents(source="total_cents", help_text="subtotal - credit + tax")
    rounding_microusd = s.IntegerField(help_text="What whole cents came to more than the ledger.")
    billed_by = s.ChoiceField(["kolm", "stripe"])
    hosted_url = TextOrNull()
    pdf_url = TextOrNull()
    created_at = Time()
    paid_at = Time(allow_null=True)


class InvoiceDetailShape(InvoiceShape):
    lines = InvoiceLineShape(many=True)

    def get_lines(self, row: Invoice) -> list[InvoiceLine]:
        return list(InvoiceLine.objects.of_tenant(row.tenant_id).filter(invoice=row).order_by("position"))


class BillingDetailsShape(Shape[BillingDetails]):
    object = Constant("billing_details")
    name = s.CharField(help_text='Whom invoices are made out to; "": your team\'s name.')
    address = s.CharField(help_text="Lines, with \\n between them.")
    vat_id = s.CharField()


class AddressShape(Shape[Any]):  # of Stripe's pages
    object = s.CharField()
    url = s.CharField(help_text="Open it in a browser; it is good for a day at most.")
