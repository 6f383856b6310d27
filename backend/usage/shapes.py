"""Answers about usage, accounts and bills. A budget's is in `budgets`, which sends it with its notices."""

from typing import Any

from rest_framework import serializers as s

from backend.domain.drafts.vocabulary import Saving
from backend.domain.ids import Prefix, encode_id
from backend.domain.money.forecast import Forecast
from backend.domain.money.plans import CURRENCY
from backend.rest.shapes import Constant, PublicId, Shape, Time
from backend.usage.bill_groups import BillGroup, GroupKind, GroupPart
from backend.usage.ledger import UsageTotal
from backend.usage.models import Account
from backend.usage.postings import account_headroom
from backend.usage.reports import COUNTED, Bill, BillLine, LineKind, UsageRow


class Currency(s.CharField):
    def get_attribute(self, instance: Any) -> str:
        return CURRENCY


class UsageTotalShape(Shape[UsageTotal]):
    object = Constant("usage_total")
    step = s.CharField()
    sku = s.CharField()
    unit = s.CharField()
    billing = s.CharField(help_text="charge: on your bill; waste: carried by kolm.")
    quantity = s.IntegerField()
    amount_microusd = s.IntegerField()


class AccountShape(Shape[Account]):
    object = Constant("account")
    plan = s.CharField()
    cap_microusd = s.IntegerField(allow_null=True, help_text="The most this period may cost; null: no cap.")
    spent_microusd = s.IntegerField(help_text="This period's use, less what grants paid and what was credited.")
    held_microusd = s.IntegerField(help_text="Set aside for compiles that have not ended.")
    credit_microusd = s.IntegerField(help_text="What is left of grants.")
    available_microusd = s.IntegerField(allow_null=True, help_text="What may still be held or spent; null: no cap.")
    period_start = Time()
    period_end = Time()
    currency = Currency()

    def get_available_microusd(self, row: Account) -> int | None:
        return None if row.cap_microusd is None else max(0, account_headroom(row))


class UsageRowShape(Shape[UsageRow]):
    object = Constant("usage")
    key = s.CharField(help_text='The day, step, sku or id; "" for what belongs to none.')
    n_facts = s.IntegerField()
    charged_microusd = s.IntegerField()
    waste_microusd = s.IntegerField(help_text="Carried by kolm.")
    provider_microusd = s.IntegerField(help_text="What your teacher's provider bills you, by estimate.")


class UsageShape(Shape[Any]):
    object = Constant("usage_report")
    group_by = s.CharField()
    period_start = Time()
    period_end = Time()
    data = s.ListField(child=UsageRowShape())
    charged_microusd = s.IntegerField()
    waste_microusd = s.IntegerField()
    provider_microusd = s.IntegerField()


class BillLineShape(Shape[BillLine]):
    first = ("kind", "label", "amount_microusd", "meter", "step", "sku", "quantity", "unit", "reason")

    kind = s.ChoiceField([kind.value for kind in LineKind])
    label = s.CharField()
    amount_microusd = s.IntegerField(help_text="Negative where it is taken off.")
    meter = s.CharField()
    step = s.CharField()
    sku = s.CharField()
    quantity = s.IntegerField(allow_null=True)
    unit = s.CharField()
    compile = PublicId(Prefix.COMPILE, source="compile_id", allow_null=True)
    reason = s.CharField()
    counted = s.BooleanField(help_text="Whether the line is part of the total; the others inform.")

    def get_counted(self, row: BillLine) -> bool:
        return row.kind in COUNTED


class ForecastShape(Shape[Forecast]):
    object = Constant("forecast")
    known = s.BooleanField(source="is_known", help_text="false: too early to say; `why` has the reason.")
    so_far_microusd = s.IntegerField(help_text="Used in this period until now, before grants and credits.")
    expected_microusd = s.IntegerField(allow_null=True, help_text="Used by its end, if its other days are like these.")
    low_microusd = s.IntegerField(allow_null=True, help_text="Eight months in ten end between low and high.")
    high_microusd = s.IntegerField(allow_null=True)
    n_whole_days = s.IntegerField(help_text="Days that are over; the forecast is their mean.")
    n_days = s.IntegerField(help_text="Days of the period, from the account's first one on.")
    why = s.CharField()
    currency = Currency()


class SavingsShape(Shape[Saving]):
    avoided_microusd = s.IntegerField(source="avoided", help_text="Output that drafts stood in for, at its price.")
    verification_microusd = s.IntegerField(
        source="verification", help_text="What asking, looking up and auditing drafts cost."
    )
    net_microusd = s.IntegerField(source="net")


class BillShape(Shape[Bill]):
    object = Constant("bill")
    compile = PublicId(Prefix.COMPILE, source="compile_id", allow_null=True)
    period_start = Time(source="start", allow_null=True)
    period_end = Time(source="end", allow_null=True)
    lines = s.ListField(child=BillLineShape())
    usage_microusd = s.IntegerField()
    credited_microusd = s.IntegerField(help_text="Booked back by itself because the failure was ours.")
    total_microusd = s.IntegerField(help_text="The sum of the counted lines.")
    total_cents = s.IntegerField(help_text="Rounded half to even, as an invoice has it.")
    waste_microusd = s.IntegerField(help_text="Carried by kolm, not in the total.")
    provider_microusd = s.IntegerField(help_text="Your teacher's provider bills about this; not in the total.")
    draft_savings = SavingsShape(source="saving")
    currency = Currency()


class BillGroupPartShape(Shape[GroupPart]):
    kind = s.ChoiceField([kind.value for kind in LineKind])
    title = s.CharField()
    amount_microusd = s.IntegerField(help_text="Negative where it was taken back.")
    step = s.CharField()
    sku = s.CharField()
    quantity = s.IntegerField(allow_null=True)
    unit = s.CharField()
    reason = s.CharField()


class BillGroupShape(Shape[BillGroup]):
    kind = s.ChoiceField([kind.value for kind in GroupKind])
    id = s.CharField(allow_null=True, help_text="The compile's or the deployment's; null: neither.")
    name = s.CharField(help_text='As it was booked; "" where bills did not keep names yet.')
    subtotal_microusd = s.IntegerField()
    parts = s.ListField(child=BillGroupPartShape())

    def get_id(self, row: BillGroup) -> str | None:
        prefix = Prefix.COMPILE if row.kind is GroupKind.COMPILE else Prefix.DEPLOYMENT
        return None if row.id is None else encode_id(prefix, row.id)


class BillGroupsShape(Shape[Any]):  # {"bill": Bill, "groups": [BillGroup]}
    object = Constant("bill_groups")
    period_start = Time(source="bill.start")
    period_end = Time(source="bill.end")
    groups = s.ListField(child=BillGroupShape())
    credit_applied_microusd = s.IntegerField(help_text="What credit paid: negative.")
    total_microusd = s.IntegerField(source="bill.total_microusd", help_text="The groups' sum less paid credit.")
    currency = Currency()

    def get_credit_applied_microusd(self, row: Any) -> int:
        return int(row["bill"].sum_of(LineKind.CREDIT_APPLIED))
