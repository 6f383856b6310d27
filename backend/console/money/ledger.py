"""The ledger of a month, transaction by transaction with its lines: what a bill can be checked with, to the
micro-dollar."""

from typing import Any
from uuid import UUID

from django.db.models import Q, Sum
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from backend.console.access import ConsoleRequest, page
from backend.console.money.periods import Month, month, months_since
from backend.console.rows_and_forms import page_of
from backend.domain.ids import Prefix, encode_id
from backend.domain.money.ledger import Kind
from backend.domain.roles import Permission
from backend.usage.accounts import account_of
from backend.usage.models import LedgerLine, LedgerTx


@require_GET
@page(Permission.BILLS_READ)
def ledger(request: ConsoleRequest) -> HttpResponse:
    """A page of transactions, newest first, and the month's sums by account."""
    tenant_id = request.team_session.tenant_id
    shown = month(request.GET.get("month"))
    kind = request.GET.get("kind", "")
    txs = _txs(tenant_id, shown)
    if kind in set(Kind):
        txs = txs.filter(kind=kind)
    shown_page = page_of(txs.order_by("-booked_at", "-id").prefetch_related("lines"), request.GET.get("page"), size=20)
    sums = _sums(tenant_id, shown)
    context = {
        "month": shown,
        "months": months_since(account_of(tenant_id).created_at),
        "kinds": [each.value for each in Kind],
        "kind": kind,
        "page_obj": shown_page,
        "rows": [_row(tx) for tx in shown_page.object_list],
        "sums": sums,
        "total_microusd": sum(amount for _, amount in sums),
    }
    return render(request, "console/bills/ledger.html", context)


def _txs(tenant_id: UUID, shown: Month) -> Any:
    return LedgerTx.objects.of_tenant(tenant_id).filter(period_start__gte=shown.start, period_start__lt=shown.end)


def _sums(tenant_id: UUID, shown: Month) -> list[tuple[str, int]]:
    """Return the sums by account; together they are 0, as every transaction is."""
    within = Q(tx__period_start__gte=shown.start, tx__period_start__lt=shown.end)
    rows = LedgerLine.objects.of_tenant(tenant_id).filter(within).values("account")
    return [(row["account"], row["n"]) for row in rows.annotate(n=Sum("amount_microusd")).order_by("account")]


def _row(tx: LedgerTx) -> dict[str, Any]:
    lines = sorted(tx.lines.all(), key=lambda line: (-line.amount_microusd, line.account))
    return {
        "tx": tx,
        "compile_id": "" if tx.compile_id is None else encode_id(Prefix.COMPILE, tx.compile_id),
        "lines": [(line.account, line.amount_microusd) for line in lines],
    }
