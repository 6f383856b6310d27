"""The ledger of a month, booking by booking in plain words, and behind each its lines: what a bill can be checked with,
to the micro-dollar."""

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
from backend.domain.money.ledger import CREDIT, HELD, RECEIVABLE, Kind, Line, sum_usage
from backend.domain.roles import Permission
from backend.usage.accounts import account_of
from backend.usage.models import LedgerLine, LedgerTx, UsageFact

TITLES = {
    Kind.GRANT: "Credit given",
    Kind.HOLD: "Set aside, before the work begins",
    Kind.CAPTURE: "Used, from what was set aside",
    Kind.RELEASE: "Set aside before and given back",
    Kind.CHARGE: "Used",
    Kind.CREDIT_OUR_FAULT: "Credit for a failure of ours",
    Kind.INVOICE: "Invoiced",
    Kind.PAYMENT: "Paid",
    Kind.REFUND: "Refunded",
    Kind.EXPIRE: "Credit expired",
    Kind.REVERSE: "Correction: a booking taken back",
}


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
        "kinds": [(each.value, TITLES[each]) for each in Kind],
        "kind": kind,
        "page_obj": shown_page,
        "rows": _rows(tenant_id, list(shown_page.object_list)),
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


def _rows(tenant_id: UUID, txs: list[LedgerTx]) -> list[dict[str, Any]]:
    facts = UsageFact.objects.of_tenant(tenant_id).filter(tx_id__in=[tx.id for tx in txs]).exclude(subject="")
    subjects = dict(facts.values_list("tx_id", "subject"))
    return [_row(tx, subjects.get(tx.id, "")) for tx in txs]


def _row(tx: LedgerTx, subject: str) -> dict[str, Any]:
    lines = sorted(tx.lines.all(), key=lambda line: (-line.amount_microusd, line.account))
    return {
        "tx": tx,
        "title": TITLES[Kind(tx.kind)],
        "subject": subject,
        "amount": _amount(tx, [Line(account=line.account, amount_microusd=line.amount_microusd) for line in lines]),
        "compile_id": "" if tx.compile_id is None else encode_id(Prefix.COMPILE, tx.compile_id),
        "lines": [(line.account, line.amount_microusd) for line in lines],
    }


def _amount(tx: LedgerTx, lines: list[Line]) -> int:
    """Return what a booking is about, in micro-USD: what it used (or took back), set aside, gave, invoiced."""
    if tx.is_use:
        return sum_usage(lines)
    for account in (HELD, RECEIVABLE):
        moved = sum(line.amount_microusd for line in lines if line.account == account)
        if moved:
            return moved
    return -sum(line.amount_microusd for line in lines if line.account.startswith(CREDIT))
