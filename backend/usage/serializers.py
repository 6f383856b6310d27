"""Requests about accounts, budgets and usage."""

from typing import Any

from rest_framework import serializers as s

from backend.rest.strict import StrictSerializer
from backend.usage.models import BudgetScope
from backend.usage.reports import Group

MOST_MICROUSD = 1_000_000_000_000_000  # a thousand million dollars: a slip of the hand, not a cap


class AccountChange(StrictSerializer):
    cap_microusd = s.IntegerField(
        min_value=0, max_value=MOST_MICROUSD, allow_null=True, help_text="The monthly spend cap; null for none."
    )


class NewBudget(StrictSerializer):
    scope = s.ChoiceField([scope.value for scope in BudgetScope])
    api_key = s.CharField(default=None, allow_null=True, help_text="The key's id, with scope api_key.")
    cap_microusd = s.IntegerField(min_value=1, max_value=MOST_MICROUSD)
    hard_stop = s.BooleanField(default=True, help_text="false: notify only.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if (attrs["scope"] == BudgetScope.API_KEY) != (attrs["api_key"] is not None):
            raise s.ValidationError({"api_key": "Give the key's id with scope api_key, and only with it."})
        return attrs


class BudgetChange(StrictSerializer):
    cap_microusd = s.IntegerField(min_value=1, max_value=MOST_MICROUSD, required=False)
    hard_stop = s.BooleanField(required=False)


class SpanQuery(StrictSerializer):
    def get_fields(self) -> dict[str, s.Field[Any, Any, Any, Any]]:
        """Return the fields; `from` is a word of Python's own."""
        help_text = "A day (2026-11-01) or a time with its zone"
        return super().get_fields() | {
            "from": s.CharField(required=False, help_text=f"{help_text}; the start of this period if not given."),
            "to": s.CharField(required=False, help_text=f"{help_text}, excluded; now if not given."),
        }


class UsageQuery(SpanQuery):
    group_by = s.ChoiceField([group.value for group in Group], default=Group.DAY.value)
