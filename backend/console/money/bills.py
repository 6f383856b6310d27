"""Usage and bills: the month's bill line by line, what it was used on, the facts as a file, and one invoice. The
figures are those of `backend.usage.reports`, the same as the API's and the invoice's."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from backend.billing.models import Invoice, InvoiceLine
from backend.compiles.models import Compile
from backend.console.access import ConsoleRequest, page
from backend.console.charts import bars, columns
from backend.console.money.periods import month, months_since
from backend.console.rows_and_forms import own_row
from backend.console.templatetags.kolm import money
from backend.domain.ids import Prefix, decode_id, encode_id
from backend.domain.money.ledger import ACCRUED
from backend.domain.money.plans import plan
from backend.domain.roles import Permission
from backend.tenants.models import ApiKey
from backend.usage.accounts import account_of
from backend.usage.api import csv_response
from backend.usage.models import Account
from backend.usage.reports import Bill, Group, LineKind, UsageRow, period_bill, usage_by

SHOWN_ROWS = 50  # of the drill-down; the file has all
SHOWN_BARS = 10
SHOWN_INVOICES = 12
GROUPS = {
    Group.STEP: "Step",
    Group.SKU: "Price",
    Group.COMPILE: "Compile",
    Group.API_KEY: "API key",
    Group.DAY: "Day",
}
OF_NONE = {Group.COMPILE: "outside of compiles", Group.API_KEY: "by people and kolm itself"}


@require_GET
@page(Permission.BILLS_READ)
def bills(request: ConsoleRequest) -> HttpResponse:
    tenant_id = request.team_session.tenant_id
    account = account_of(tenant_id)
    shown = month(request.GET.get("month"))
    group = _group(request.GET.get("by"))
    bill = period_bill(tenant_id, shown.start, shown.end)
    days = usage_by(tenant_id, Group.DAY, shown.start, shown.end)
    used = {row.key: [row.charged_microusd, row.waste_microusd] for row in days}
    by_day = [(day[5:], used.get(day, [0, 0])) for day in shown.days]
    rows = days if group is Group.DAY else usage_by(tenant_id, group, shown.start, shown.end)
    context = {
        "account": account,
        "plan": plan(account.plan),
        "room_microusd": _room(account),
        "committed_microusd": account.spent_microusd + account.held_microusd,
        "month": shown,
        "months": months_since(account.created_at),
        "is_present": shown.start <= account.period_start < shown.end,
        "bill": bill,
        **_sections(bill),
        "days": columns(by_day, _NAMES, title="Spend by day", write=money),
        "has_usage": bool(days),
        **_drill_down(tenant_id, group, rows),
        "invoices": _invoices(tenant_id),
        "usage_path": f"/v1/usage?group_by={group.value}&from={shown.start:%Y-%m-%d}&to={shown.end:%Y-%m-%d}",
        "may_write": request.team_session.may(Permission.BILLS_WRITE),
    }
    return render(request, "console/bills/bills.html", context)


@require_GET
@page(Permission.BILLS_READ, atomic=False)
def usage_csv(request: ConsoleRequest) -> StreamingHttpResponse:
    """Every fact of a month, streamed: reports opens a transaction for each chunk. Not atomic for that reason."""
    shown = month(request.GET.get("month"))
    return csv_response(request, request.team_session.tenant_id, shown.start, shown.end)


@require_GET
@page(Permission.BILLS_READ)
def invoice(request: ConsoleRequest, invoice: str) -> HttpResponse:
    """One invoice, for reading and for printing."""
    row = own_row(Invoice, request.team_session.tenant_id, Prefix.INVOICE, invoice)
    context = {
        "row": row,
        "public_id": invoice,
        "plan": plan(row.plan),
        "lines": InvoiceLine.objects.of_tenant(row.tenant_id).filter(invoice_id=row.id).order_by("position"),
        "month": f"{row.period_start:%Y-%m}",
        "path": f"/v1/invoices/{invoice}",
    }
    return render(request, "console/bills/invoice.html", context)


_NAMES = ["Charged", "Paid by kolm"]


def _group(text: str | None) -> Group:
    return Group(text) if text in set(Group) else Group.STEP


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


def _drill_down(tenant_id: UUID, group: Group, rows: Sequence[UsageRow]) -> dict[str, Any]:
    shown = rows if group is Group.DAY else rows[:SHOWN_ROWS]
    names = _names(tenant_id, group, [row.key for row in shown if row.key])
    labelled = [(row, names.get(row.key) or row.key or OF_NONE.get(group, "–")) for row in shown]
    charged = [(label, row.charged_microusd) for row, label in labelled if row.charged_microusd][:SHOWN_BARS]
    return {
        "group": group,
        "groups": [(each.value, title) for each, title in GROUPS.items()],
        "rows": labelled,
        "n_more": len(rows) - len(shown),
        "bars": None
        if group is Group.DAY or not charged
        else bars(charged, title=f"Charged by {GROUPS[group].lower()}", write=money, head="US dollars"),
    }


def _names(tenant_id: UUID, group: Group, keys: Sequence[str]) -> dict[str, str]:
    """Return what people call the compiles or API keys behind these public ids."""
    if group is Group.COMPILE:
        ids = {decode_id(Prefix.COMPILE, key): key for key in keys}
        rows = Compile.objects.of_tenant(tenant_id).filter(id__in=ids)
    elif group is Group.API_KEY:
        ids = {decode_id(Prefix.API_KEY, key): key for key in keys}
        rows = ApiKey.objects.of_tenant(tenant_id).filter(id__in=ids)
    else:
        return {}
    return {ids[id]: name for id, name in rows.values_list("id", "name")}


def _invoices(tenant_id: UUID) -> list[tuple[str, Invoice]]:
    rows = Invoice.objects.of_tenant(tenant_id).order_by("-created_at", "-id")[:SHOWN_INVOICES]
    return [(encode_id(Prefix.INVOICE, row.id), row) for row in rows]
