"""The requests and answers of money's addresses."""

from typing import Any

from rest_framework import serializers as s

from backend.rest.strict import StrictSerializer
from backend.usage.models import BudgetScope
from backend.usage.reports import Group, LineKind

MOST_MICROUSD = 1_000_000_000_000_000  # a thousand million dollars: a slip of the hand, not a cap


class AccountShape(s.Serializer[Any]):
    object = s.ChoiceField(["account"])
    plan = s.CharField()
    cap_microusd = s.IntegerField(allow_null=True, help_text="The most this period may cost; null: no cap.")
    spent_microusd = s.IntegerField(help_text="This period's use, less what grants paid and what was credited.")
    held_microusd = s.IntegerField(help_text="Set aside for compiles that have not ended.")
    credit_microusd = s.IntegerField(help_text="What is left of grants.")
    available_microusd = s.IntegerField(allow_null=True, help_text="What may still be held or spent; null: no cap.")
    period_start = s.DateTimeField()
    period_end = s.DateTimeField()
    currency = s.CharField()


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


class BudgetShape(s.Serializer[Any]):
    id = s.CharField()
    object = s.ChoiceField(["budget"])
    scope = s.CharField()
    api_key = s.CharField(allow_null=True)
    cap_microusd = s.IntegerField()
    hard_stop = s.BooleanField(help_text="Whether what would not fit is refused; else it only notifies.")
    spent_microusd = s.IntegerField(help_text="This month's use, whoever paid.")
    held_microusd = s.IntegerField()
    period_start = s.DateTimeField()
    period_end = s.DateTimeField()
    created_at = s.DateTimeField()


class BudgetDeletion(s.Serializer[Any]):
    id = s.CharField()
    object = s.ChoiceField(["budget_deletion"])


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


class UsageRowShape(s.Serializer[Any]):
    object = s.ChoiceField(["usage"])
    key = s.CharField(help_text='The day, step, sku or id; "" for what belongs to none.')
    n_facts = s.IntegerField()
    charged_microusd = s.IntegerField()
    waste_microusd = s.IntegerField(help_text="Carried by kolm.")
    provider_microusd = s.IntegerField(help_text="What your teacher's provider bills you, by estimate.")


class UsageShape(s.Serializer[Any]):
    object = s.ChoiceField(["usage_report"])
    group_by = s.CharField()
    period_start = s.DateTimeField()
    period_end = s.DateTimeField()
    data = s.ListField(child=UsageRowShape())
    charged_microusd = s.IntegerField()
    waste_microusd = s.IntegerField()
    provider_microusd = s.IntegerField()


class BillLineShape(s.Serializer[Any]):
    kind = s.ChoiceField([kind.value for kind in LineKind])
    label = s.CharField()
    amount_microusd = s.IntegerField(help_text="Negative where it is taken off.")
    meter = s.CharField()
    step = s.CharField()
    sku = s.CharField()
    quantity = s.IntegerField(allow_null=True)
    unit = s.CharField()
    compile = s.CharField(allow_null=True)
    reason = s.CharField()
    counted = s.BooleanField(help_text="Whether the line is part of the total; the others inform.")


class SavingsShape(s.Serializer[Any]):
    avoided_microusd = s.IntegerField(help_text="Output that drafts stood in for, at its price.")
    verification_microusd = s.IntegerField(help_text="What asking, looking up and auditing drafts cost.")
    net_microusd = s.IntegerField()


class BillShape(s.Serializer[Any]):
    object = s.ChoiceField(["bill"])
    compile = s.CharField(allow_null=True)
    period_start = s.DateTimeField(allow_null=True)
    period_end = s.DateTimeField(allow_null=True)
    lines = s.ListField(child=BillLineShape())
    usage_microusd = s.IntegerField()
    credited_microusd = s.IntegerField(help_text="Booked back by itself because the failure was ours.")
    total_microusd = s.IntegerField(help_text="The sum of the counted lines.")
    total_cents = s.IntegerField(help_text="Rounded half to even, as an invoice has it.")
    waste_microusd = s.IntegerField(help_text="Carried by kolm, not in the total.")
    provider_microusd = s.IntegerField(help_text="Your teacher's provider bills about this; not in the total.")
    draft_savings = SavingsShape()
    currency = s.CharField()
