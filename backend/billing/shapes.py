"""The public shape of plans and invoices. Money is micro-USD; an invoice's sums are whole cents of it."""

from typing import Any

from rest_framework import serializers as s

from backend.billing.models import Invoice, InvoiceKind, InvoiceLine, InvoiceStatus, LineKind
from backend.domain.ids import Prefix, encode_id
from backend.domain.money.ledger import MICROUSD_PER_CENT
from backend.domain.money.plans import Plan
from backend.rest.times import rfc3339


class PlanShape(s.Serializer[object]):
    object = s.ChoiceField(["plan"])
    name = s.CharField()
    title = s.CharField()
    monthly_microusd = s.IntegerField(allow_null=True, help_text="null: agreed by contract.")
    currency = s.CharField()
    is_current = s.BooleanField(help_text="Whether your team is on it.")
    is_sold_here = s.BooleanField(help_text="Whether POST /v1/billing/checkout sells it on this deployment.")
    spend_cap_microusd = s.IntegerField(allow_null=True, help_text="The monthly cap it begins with.")
    spend_cap_max_microusd = s.IntegerField(allow_null=True, help_text="The highest cap; null: as you like.")
    concurrent_compiles = s.IntegerField(allow_null=True, help_text="null: no limit, here and below.")
    seats = s.IntegerField(allow_null=True)
    api_keys = s.IntegerField(allow_null=True)
    webhook_endpoints = s.IntegerField(allow_null=True)
    retention_days = s.IntegerField()
    sso = s.BooleanField()
    audit_log = s.BooleanField()


def plan_shape(plan: Plan, *, current: str, sells: bool) -> dict[str, Any]:
    monthly = plan.monthly_cents
    return {
        "object": "plan",
        "name": plan.name.value,
        "title": plan.title,
        "monthly_microusd": None if monthly is None else monthly * MICROUSD_PER_CENT,
        "currency": "usd",
        "is_current": plan.name == current,
        "is_sold_here": sells and plan.is_sold,
        "spend_cap_microusd": plan.cap_default_microusd,
        "spend_cap_max_microusd": plan.cap_max_microusd,
        "concurrent_compiles": plan.concurrent_compiles,
        "seats": plan.seats,
        "api_keys": plan.api_keys,
        "webhook_endpoints": plan.webhook_endpoints,
        "retention_days": plan.retention_days,
        "sso": plan.sso,
        "audit_log": plan.audit_log,
    }


class InvoiceLineShape(s.Serializer[object]):
    kind = s.ChoiceField([k.value for k in LineKind])
    meter = s.CharField(allow_null=True)
    description = s.CharField()
    amount_microusd = s.IntegerField(help_text="As the ledger has it.")
    invoiced_microusd = s.IntegerField(help_text="Rounded to whole cents, half to even.")


class InvoiceShape(s.Serializer[object]):
    object = s.ChoiceField(["invoice"])
    id = s.CharField()
    number = s.CharField()
    kind = s.ChoiceField([k.value for k in InvoiceKind], help_text="usage: a period; plan: a plan's price in advance.")
    status = s.ChoiceField([k.value for k in InvoiceStatus])
    plan = s.CharField()
    period_start = s.DateTimeField(help_text="Included.")
    period_end = s.DateTimeField(help_text="Excluded.")
    currency = s.CharField()
    usage_microusd = s.IntegerField(help_text="Usage at list price, before credits.")
    grants_microusd = s.IntegerField(help_text="What your credits paid of it.")
    our_fault_microusd = s.IntegerField(help_text="What was taken back for failures of ours.")
    subtotal_microusd = s.IntegerField()
    credit_microusd = s.IntegerField(help_text="Grants and our failures together, in whole cents.")
    tax_microusd = s.IntegerField()
    total_microusd = s.IntegerField(help_text="subtotal - credit + tax")
    rounding_microusd = s.IntegerField(help_text="What whole cents came to more than the ledger.")
    billed_by = s.ChoiceField(["kolm", "stripe"])
    hosted_url = s.CharField(allow_null=True)
    pdf_url = s.CharField(allow_null=True)
    created_at = s.DateTimeField()
    paid_at = s.DateTimeField(allow_null=True)


class InvoiceDetailShape(InvoiceShape):
    lines = InvoiceLineShape(many=True)


def invoice_shape(row: Invoice, lines: list[InvoiceLine] | None = None) -> dict[str, Any]:
    """Return an invoice's public shape; without `lines` that of a list."""
    shape = {
        "object": "invoice",
        "id": encode_id(Prefix.INVOICE, row.id),
        "number": row.number,
        "kind": row.kind,
        "status": row.status,
        "plan": row.plan,
        "period_start": rfc3339(row.period_start),
        "period_end": rfc3339(row.period_end),
        "currency": row.currency,
        "usage_microusd": row.usage_microusd,
        "grants_microusd": row.grants_microusd,
        "our_fault_microusd": row.our_fault_microusd,
        "subtotal_microusd": row.subtotal_cents * MICROUSD_PER_CENT,
        "credit_microusd": row.credit_cents * MICROUSD_PER_CENT,
        "tax_microusd": row.tax_cents * MICROUSD_PER_CENT,
        "total_microusd": row.total_cents * MICROUSD_PER_CENT,
        "rounding_microusd": row.rounding_microusd,
        "billed_by": row.billed_by,
        "hosted_url": row.hosted_url or None,
        "pdf_url": row.pdf_url or None,
        "created_at": rfc3339(row.created_at),
        "paid_at": rfc3339(row.paid_at),
    }
    return shape if lines is None else shape | {"lines": [_line_shape(line) for line in lines]}


def _line_shape(line: InvoiceLine) -> dict[str, Any]:
    return {
        "kind": line.kind,
        "meter": line.meter or None,
        "description": line.description,
        "amount_microusd": line.amount_microusd,
        "invoiced_microusd": line.amount_cents * MICROUSD_PER_CENT,
    }
