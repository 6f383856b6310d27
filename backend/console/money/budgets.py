"""Budgets and the spend cap: made, changed and deleted, with how far each is used up."""

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_POST

from backend.console.access import ConsoleRequest, page
from backend.console.rows_and_forms import microusd, own_row
from backend.domain.errors import InvalidInput
from backend.domain.ids import Prefix, decode_id, encode_id
from backend.domain.money.plans import plan
from backend.domain.roles import Permission
from backend.tenants.models import ApiKey
from backend.usage import budgets as book
from backend.usage.accounts import account_of, set_cap
from backend.usage.models import Account, Budget, BudgetNotice, BudgetScope


@require_GET
@page(Permission.BILLS_READ)
def budgets(request: ConsoleRequest) -> HttpResponse:
    tenant_id = request.team_session.tenant_id
    account = account_of(tenant_id)
    rows = [_current(row, account) for row in Budget.objects.of_tenant(tenant_id).order_by("created_at", "id")]
    keys = ApiKey.objects.of_tenant(tenant_id).filter(revoked_at=None).order_by("name", "id")
    names = {key.id: key.name for key in keys}
    notified, last = _notified_thresholds(tenant_id, account), BudgetNotice.objects.of_tenant(tenant_id)
    context = {
        "account": account,
        "plan": plan(account.plan),
        "rows": [_row(row, names, notified) for row in rows],
        "keys": [(encode_id(Prefix.API_KEY, key.id), key.name) for key in keys if key.id not in _with_budget(rows)],
        "has_tenant_budget": any(row.api_key_id is None for row in rows),
        "example": {"scope": "tenant", "cap_microusd": 25_000_000},
        "wanted_key": request.GET.get("api_key", ""),
        "thresholds": book.THRESHOLDS,
        "recipients": book.recipients(tenant_id),
        "last_notice": last.order_by("-created_at", "-id").first(),
        "may_write": request.team_session.may(Permission.BILLS_WRITE),
    }
    return render(request, "console/bills/budgets.html", context)


@require_POST
@page(Permission.BILLS_WRITE)
def create(request: ConsoleRequest) -> HttpResponse:
    session, form = request.team_session, request.POST
    whose = form.get("whose", "")
    book.create(
        session.tenant_id,
        scope=BudgetScope.TENANT if whose == "tenant" else BudgetScope.API_KEY,
        api_key_id=None if whose == "tenant" else decode_id(Prefix.API_KEY, whose),
        cap_microusd=microusd(form.get("usd", ""), field="A budget"),
        is_hard=form.get("stop", "hard") == "hard",
        actor=session.actor,
    )
    messages.success(request, "The budget is set; it counts this month from its first day.")
    return redirect("console:budgets")


@require_POST
@page(Permission.BILLS_WRITE)
def change(request: ConsoleRequest, budget: str) -> HttpResponse:
    session, form = request.team_session, request.POST
    row = own_row(Budget, session.tenant_id, Prefix.BUDGET, budget)
    cap = microusd(form.get("usd", ""), field="A budget")
    book.change(row, actor=session.actor, cap_microusd=cap, is_hard=form.get("stop", "hard") == "hard")
    messages.success(request, "The budget is changed.")
    return redirect("console:budgets")


@require_POST
@page(Permission.BILLS_WRITE)
def delete(request: ConsoleRequest, budget: str) -> HttpResponse:
    session = request.team_session
    book.delete(own_row(Budget, session.tenant_id, Prefix.BUDGET, budget), actor=session.actor)
    messages.success(request, "The budget is deleted.")
    return redirect("console:budgets")


@require_POST
@page(Permission.BILLS_WRITE)
def cap(request: ConsoleRequest) -> HttpResponse:
    """The account's spend cap, within what the plan allows; "none" takes it away."""
    text = request.POST.get("usd", "").strip()
    if not text:
        raise InvalidInput("Enter an amount a month, or “none”.")
    session = request.team_session
    set_cap(
        session.tenant_id,
        None if text == "none" else microusd(text, field="A spend cap"),
        actor=session.actor,
    )
    messages.success(request, "The spend cap is changed.")
    return redirect("console:budgets")


def _current(row: Budget, account: Account) -> Budget:
    """Return a budget as it is in this period: a budget's row moves on with its next booking."""
    if row.period_start != account.period_start:
        row.period_start, row.spent_microusd = account.period_start, 0
    return row


def _row(row: Budget, names: dict[UUID, str], notified: dict[UUID, list[int]]) -> dict[str, Any]:
    return {
        "public_id": encode_id(Prefix.BUDGET, row.id),
        "budget": row,
        "whose": "the whole team" if row.api_key_id is None else names.get(row.api_key_id, "a key that was revoked"),
        "used_microusd": row.spent_microusd + row.held_microusd,
        "usd": f"{row.cap_microusd / 1e6:.2f}" if row.cap_microusd % 10_000 == 0 else f"{row.cap_microusd / 1e6:.6f}",
        "notices": notified.get(row.id, []),
    }


def _notified_thresholds(tenant_id: UUID, account: Account) -> dict[UUID, list[int]]:
    """Return the thresholds that were notified of in this period, by budget."""
    notified: dict[UUID, list[int]] = {}
    rows = BudgetNotice.objects.of_tenant(tenant_id).filter(period_start=account.period_start).order_by("percent")
    for budget_id, percent in rows.values_list("budget_id", "percent"):
        notified.setdefault(budget_id, []).append(percent)
    return notified


def _with_budget(rows: list[Budget]) -> set[UUID | None]:
    return {row.api_key_id for row in rows}
