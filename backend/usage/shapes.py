"""The public shape of usage totals."""

from dataclasses import asdict
from typing import Any

from rest_framework import serializers as s

from backend.usage.ledger import UsageTotal


class UsageTotalShape(s.Serializer[object]):
    object = s.ChoiceField(["usage_total"])
    step = s.CharField()
    sku = s.CharField()
    unit = s.CharField()
    billing = s.CharField(help_text="charge: on your bill; waste: carried by kolm.")
    quantity = s.IntegerField()
    amount_microusd = s.IntegerField()


def usage_total_shape(total: UsageTotal) -> dict[str, Any]:
    return {"object": "usage_total", **asdict(total)}
