"""Usage and bills: the month's bill by compile and deployment, what it was used on, its forecast, the facts as a file.
The figures are those of `backend.usage`, the same as the API's and the invoice's."""

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote
from uuid import UUID

from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from backend.billing.models import Invoice
from backend.compiles.models import Compile
from backend.console.access import ConsoleRequest, page
from backend.console.charts import bars, columns
from backend.console.money.groups import grouped_bill
from backend.console.money.periods import Month, month, months_since
from backend.console.templatetags.kolm import money
from backend.domain.cost_tags import NAME_PATTERN, tag_problems
from backend.domain.ids import Prefix, decode_id, encode_id
from backend.domain.money.ledger import ACCRUED
from backend.domain.money.plans import plan
from backend.domain.roles import Permission
from backend.serving.models import Deployment
from backend.tenants.models import ApiKey
from backend.usage.accounts import account_of
from backend.usage.api import csv_response
from backend.usage.models import Account
from backend.usage.reports import (
    TAG,
    Bill,
    Group,
    LineKind,
    TagFilter,
    UsageRow,
    month_forecast,
    period_bill,
    tag_names,
    usage_by,
)

SHOWN_ROWS = 50  # of the drill-down; the file has all
SHOWN_BARS = 10
SHOWN_INVOICES = 12
GROUPS = {
    Group.STEP: "Step",
    Group.SKU: "Price",
    Group.COMPILE: "Compile",
    Group.DEPLOYMENT: "Deployment",
    Group.API_KEY: "API key",
    Group.DAY: "Day",
}
OF_NONE = {
    Group.COMPILE: "outside of compiles",
    Group.DEPLOYMENT: "outside of deployments",
    Group.API_KEY: "by people and kolm itself",
}
SHOWN_TAGS = 10  # as groups beside the others; any other is reached by its address


@require_GET
@page(Permission.BILLS_READ)
def bills(request: ConsoleRequest) -> HttpResponse:
    tenant_id = request.team_session.tenant_id
    account = account_of(tenant_id)
    shown = month(request.GET.get("month"))
    group, tag = _group(request.GET.get("by")), _tag(request.GET.get("tag"))
    bill = period_bill(tenant_id, shown.start, shown.end)
    days = usage_by(tenant_id, Group.DAY, shown.start, shown.end)
    used = {row.key: [row.charged_microusd, row.waste_microusd] for row in days}
    by_day = [(day[5:], used.get(day, [0, 0])) for day in shown.days]
    rows = usage_by(tenant_id, group, shown.start, shown.end, tag=tag)
    is_present = shown.start <= account.period_start < shown.end
    context = {
        "account": account,
        "plan": plan(account.plan),
        "room_microusd": _room(account),
        "committed_microusd": account.spent_microusd + account.held_microusd,
        "month": shown,
        "months": months_since(account.created_at),
        "is_present": is_present,
        "forecast": month_forecast(tenant_id) if is_present else None,
        "bill": bill,
        "grouped": grouped_bill(tenant_id, shown, bill),
        **_sections(bill),
        "days": columns(by_day, _NAMES, title="Spend by day", write=money),
        "has_usage": bool(days),
        **_drill_down(tenant_id, group, rows),
        **_tags(tenant_id, shown, group, tag),
        "invoices": _invoices(tenant_id),
        "usage_path": f"/v1/usage?group_by={group}&from={shown.start:%Y-%m-%d}&to={shown.end:%Y-%m-%d}"
        + (f"&tag={quote(f'{tag.name}:{tag.value}')}" if tag else ""),
        "may_write": request.team_session.may(Permission.BILLS_WRITE),
    }
    return render(request, "console/bills/bills.html", context)


@require_GET
@page(Permission.BILLS_READ, atomic=False)
def usage_csv(request: ConsoleRequest) -> StreamingHttpResponse:
    """Every fact of a month, streamed: reports opens a transaction for each chunk. Not atomic for that reason."""
    shown, tag = month(request.GET.get("month")), _tag(request.GET.get("tag"))
    return csv_response(request, request.team_session.tenant_id, shown.start, shown.end, tag=tag)


_NAMED: dict[Group, tuple[Prefix, type[Any]]] = {
    Group.COMPILE: (Prefix.COMPILE, Compile),
    Group.DEPLOYMENT: (Prefix.DEPLOYMENT, Deployment),
    Group.API_KEY: (Prefix.API_KEY, ApiKey),
}
_NAMES = ["Charged", "Paid by kolm"]


def _group(text: str | None) -> str:
    """One of the groups, or a tag's; by step where it is none."""
    name = (text or "").removeprefix(TAG)
    if text != name and re.fullmatch(NAME_PATTERN[1:-1], name):
        return f"{TAG}{name}"
    return Group(text) if text in set(Group) else Group.STEP


def _tag(text: str | None) -> TagFilter | None:
    """The filter of `team:search`; nothing where it is none."""
    tag = TagFilter.read(text)
    return tag if tag is not None and not any(tag_problems({tag.name: tag.value or "none"}, "")) else None


def _tags(tenant_id: UUID, shown: Month, group: str, tag: TagFilter | None) -> dict[str, Any]:
    names = tag_names(tenant_id, shown.start, shown.end)
    grouped = group.removeprefix(TAG) if group.startswith(TAG) else ""
    first = names[:SHOWN_TAGS]
    if grouped and grouped not in first:
        first = [*first, grouped]
    return {
        "tag_groups": [(f"{TAG}{name}", name) for name in first],
        "grouped_tag": grouped,
        "tag": tag,
        "tag_query": quote(f"{tag.name}:{tag.value}") if tag else "",
    }


def _room(account: Account) -> int | None:
    """Return what may still be spent or held; None without a cap."""
    if account.cap_microusd is None:
        return None
    return max(0, account.cap_microusd + account.credit_microusd - account.held_microusd - account.spent_microusd)


def _sections(bill: Bill) -> dict[str, Any]:
    """The bill's lines: what counts towards the total, and what is told beside it."""
    owed = (LineKind.USAGE, LineKind.CREDIT_OUR_FAULT, LineKind.CORRECTION, LineKind.CREDIT_APPLIED)
    named = [
        (line, "" if line.compile_id is None else encode_id(Prefix.COMPILE, line.compile_id)) for line in bill.lines
    ]
    return {
        "owed": [pair for pair in named if pair[0].kind in owed],
        "waste": [line for line, _ in named if line.kind is LineKind.WASTE],
        "own_key": [line for line, _ in named if line.kind is LineKind.OWN_KEY],
        "saving": bill.saving,
        "accrued": ACCRUED,
    }


def _drill_down(tenant_id: UUID, group: str, rows: Sequence[UsageRow]) -> dict[str, Any]:
    shown = rows if group == Group.DAY else rows[:SHOWN_ROWS]
    none = f"without {group.removeprefix(TAG)}" if group.startswith(TAG) else OF_NONE.get(Group(group), "–")
    title = group.removeprefix(TAG) if group.startswith(TAG) else GROUPS[Group(group)]
    names = _names(tenant_id, group, [row.key for row in shown if row.key])
    labelled = [(row, names.get(row.key) or row.key or none) for row in shown]
    charged = [(label, row.charged_microusd) for row, label in labelled if row.charged_microusd][:SHOWN_BARS]
    return {
        "group": group,
        "groups": [(each.value, words) for each, words in GROUPS.items()],
        "rows": labelled,
        "n_more": len(rows) - len(shown),
        "bars": None
        if group == Group.DAY or not charged
        else bars(charged, title=f"Charged by {title.lower()}", write=money, head="US dollars"),
        "group_title": title,
    }


def _names(tenant_id: UUID, group: str, keys: Sequence[str]) -> dict[str, str]:
    """Return what people call the compiles or API keys behind these public ids."""
    if group not in _NAMED:
        return {}
    prefix, model = _NAMED[Group(group)]
    ids = {decode_id(prefix, key): key for key in keys}
    rows = model.objects.of_tenant(tenant_id).filter(id__in=ids)
    return {ids[id]: name for id, name in rows.values_list("id", "name")}


def _invoices(tenant_id: UUID) -> list[tuple[str, Invoice]]:
    rows = Invoice.objects.of_tenant(tenant_id).order_by("-created_at", "-id")[:SHOWN_INVOICES]
    return [(encode_id(Prefix.INVOICE, row.id), row) for row in rows]
