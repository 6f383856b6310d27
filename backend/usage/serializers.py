"""Requests about accounts, budgets and usage."""

from typing import Any

from rest_framework import serializers as s

from backend.domain.cost_tags import NAME_PATTERN, VALUE_PATTERN
from backend.rest.strict import StrictSerializer
from backend.usage.models import BudgetScope
from backend.usage.reports import TAG, Group

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


class GroupField(s.RegexField):
    """One of the groups, or `tag:NAME`."""

    def __init__(self, **options: Any) -> None:
        groups = "|".join(group.value for group in Group)
        names = ", ".join(group.value for group in Group)
        wrong = f"Group by one of {names}, or by a cost tag as in tag:team."
        super().__init__(
            rf"^(?:{groups}|{TAG}{NAME_PATTERN[1:-1]})\Z", help_text=wrong, error_messages={"invalid": wrong}, **options
        )


class TaggedSpanQuery(SpanQuery):
    tag = s.RegexField(
        rf"^{NAME_PATTERN[1:-1]}:(?:{VALUE_PATTERN[1:-1]})?\Z",
        required=False,
        help_text="Usage with this cost tag alone, as in team:search; of what has no such tag: team:",
        error_messages={"invalid": "Write a tag as name:value, such as team:search."},
    )


class UsageQuery(TaggedSpanQuery):
    group_by = GroupField(default=Group.DAY.value)
