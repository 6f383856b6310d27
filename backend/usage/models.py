"""Usage facts: what was used, at which price, for whom. Append-only; the database refuses UPDATE and DELETE."""

from enum import StrEnum

from django.db import models

from backend.tenants.scope import TenantOwned


class Billing(StrEnum):
    """Who carries the cost: the customer, or kolm (a repeated call after a crash, a failure of ours)."""

    CHARGE = "charge"
    WASTE = "waste"


class UsageFact(TenantOwned):
    """One quantity at one dated price. `source_key` is unique per tenant, so a fact that is recorded twice is one
    fact."""

    compile_id = models.UUIDField(null=True)
    step = models.CharField(max_length=32, blank=True)
    sku = models.CharField(max_length=200)
    quantity = models.BigIntegerField()
    unit = models.CharField(max_length=32)
    price_version = models.CharField(max_length=64)
    amount_microusd = models.BigIntegerField()
    billing = models.CharField(max_length=8, choices=[(b.value, b.value) for b in Billing])
    is_estimated = models.BooleanField(default=False)
    source_key = models.CharField(max_length=200)
    occurred_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant_id", "source_key"], name="usage_fact_once")]
        indexes = [models.Index(fields=["tenant_id", "compile_id", "step"], name="usage_by_compile")]
