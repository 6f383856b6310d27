"""The public shapes of usage, accounts and bills. A budget's is in `budgets`, which sends it with its notices."""

from dataclasses import asdict
from typing import Any

from rest_framework import serializers as s

from backend.domain.ids import Prefix, encode_id
from backend.rest.times import rfc3339
from backend.usage.ledger import UsageTotal
from backend.usage.models import Account
from backend.usage.postings import account_headroom
from backend.usage.reports import COUNTED, Bill, BillLine, UsageRow


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


def account_shape(row: Account) -> dict[str, Any]:
    return {
        "object": "account",
        "plan": row.plan,
        "cap_microusd": row.cap_microusd,
        "spent_microusd": row.spent_microusd,
        "held_microusd": row.held_microusd,
        "credit_microusd": row.credit_microusd,
        "available_microusd": None if row.cap_microusd is None else max(0, account_headroom(row)),
        "period_start": rfc3339(row.period_start),
        "period_end": rfc3339(row.period_end),
        "currency": "usd",
    }


def usage_row_shape(row: UsageRow) -> dict[str, Any]:
    return {"object": "usage", **asdict(row)}


def bill_shape(bill: Bill) -> dict[str, Any]:
    return {
        "object": "bill",
        "compile": None if bill.compile_id is None else encode_id(Prefix.COMPILE, bill.compile_id),
        "period_start": rfc3339(bill.start),
        "period_end": rfc3339(bill.end),
        "lines": [_line_shape(line) for line in bill.lines],
        "usage_microusd": bill.usage_microusd,
        "credited_microusd": bill.credited_microusd,
        "total_microusd": bill.total_microusd,
        "total_cents": bill.total_cents,
        "waste_microusd": bill.waste_microusd,
        "provider_microusd": bill.provider_microusd,
        "draft_savings": {
            "avoided_microusd": bill.saving.avoided,
            "verification_microusd": bill.saving.verification,
            "net_microusd": bill.saving.net,
        },
        "currency": "usd",
    }


def _line_shape(line: BillLine) -> dict[str, Any]:
    fields = asdict(line)
    compile_id = fields.pop("compile_id")
    fields["kind"] = line.kind.value
    fields["compile"] = None if compile_id is None else encode_id(Prefix.COMPILE, compile_id)
    return {**fields, "counted": line.kind in COUNTED}
