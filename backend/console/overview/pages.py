"""The first page: what runs, what it costs, what the gates said, what wants attention; for an empty team, how to
begin. And the way from a pasted id to its page."""

from datetime import UTC, date, datetime, timedelta
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.conf import settings
from django.db.models import F, Sum
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone

from backend.compiles.models import Compile, StepRun, TeacherKey
from backend.console import charts
from backend.console.access import ConsoleRequest, TeamSession, page
from backend.console.id_search import address_of, is_public_id
from backend.console.shell import IS_LOCAL
from backend.console.templatetags.kolm import money
from backend.domain.ids import Prefix, encode_id
from backend.domain.lifecycle import STEPS, TERMINAL, CompileStatus, StepStatus
from backend.domain.roles import Permission
from backend.tenants.models import ApiKey, Member
from backend.usage.accounts import account_of
from backend.usage.models import Account, Budget, DraftSaving
from backend.usage.reports import month_forecast, usage_by
from backend.webhooks.models import EndpointStatus, WebhookEndpoint

OPEN = tuple(status for status in CompileStatus if status not in TERMINAL)
N_RUNNING, N_GATES, N_DAYS = 20, 6, 30
EXAMPLE = "examples/refund-router.yaml"


@page(Permission.VIEW)
def overview(request: ConsoleRequest) -> HttpResponse:
    session = request.team_session
    context = running_part(session) | {
        "ended": _last_ended(session),
        "hooks": _failing_webhooks(session),
        "may_compile": session.may(Permission.COMPILE),
        "may_keys": session.may(Permission.KEYS),
        "may_webhooks": session.may(Permission.WEBHOOKS),
        "may_team": session.may(Permission.TEAM),
    }
    if session.may(Permission.BILLS_READ):
        context |= _money(session.tenant_id)
    if not any(row.status == CompileStatus.SUCCEEDED for row in context["ended"]):
        context["first_steps"] = _first_steps(session)
    return render(request, "console/overview/overview.html", context)


@page(Permission.VIEW)
def overview_running(request: ConsoleRequest) -> HttpResponse:
    """The live part, fetched anew while something runs."""
    return render(request, "console/overview/_running.html", running_part(request.team_session))


@page(Permission.VIEW)
def search(request: ConsoleRequest) -> HttpResponse:
    """An id leads to its page; anything else is looked for among the names of compiles."""
    asked = request.GET.get("q", "").strip()[:100]
    if not is_public_id(asked):
        return redirect(f"{reverse('console:compiles')}?{urlencode({'q': asked})}" if asked else "console:compiles")
    prefix = asked.partition("_")[0]
    for known, name in (
        (Prefix.INVOICE, "invoice"),
        (Prefix.WEBHOOK_ENDPOINT, "webhook"),
        (Prefix.WEBHOOK_DELIVERY, "webhook_delivery"),
    ):
        if prefix == known:
            return redirect(f"console:{name}", asked)
    return redirect(address_of(request.team_session.tenant_id, asked))


# --- compiles ---------------------------------------------------------------------------------------------------


def running_part(session: TeamSession) -> dict[str, Any]:
    columns = ("id", "tenant_id", "name", "status", "spent_microusd", "budget_microusd", "created_at", "started_at")
    mine = Compile.objects.of_tenant(session.tenant_id)
    rows = list(mine.filter(status__in=OPEN).only(*columns).order_by("-created_at", "-id")[:N_RUNNING])
    steps = StepRun.objects.of_tenant(session.tenant_id).filter(compile_id__in=[row.id for row in rows])
    at: dict[UUID, dict[str, Any]] = {}
    for step in steps.order_by("position").values("compile_id", "name", "position", "status", "done", "total"):
        if step["status"] in (StepStatus.RUNNING, StepStatus.SUCCEEDED):
            at[step["compile_id"]] = step
    return {"running": [_running_line(row, at.get(row.id)) for row in rows], "n_steps": len(STEPS)}


def _running_line(row: Compile, step: dict[str, Any] | None) -> dict[str, Any]:
    n_done = 0
    if step is not None:
        n_done = step["position"] + (step["status"] == StepStatus.SUCCEEDED)
    within = step["done"] / step["total"] if step and step["total"] and step["status"] == StepStatus.RUNNING else 0
    return {
        "row": row,
        "id": encode_id(Prefix.COMPILE, row.id),
        "step": step["name"] if step else "",
        "detail": f"{step['done']:,} of {step['total']:,}" if step and within else "",
        "progress": round((n_done + min(1.0, within)) * 100 / len(STEPS)),
    }


def _last_ended(session: TeamSession) -> list[Compile]:
    """The last that ended, with what the gate said."""
    columns = ("id", "tenant_id", "name", "status", "spent_microusd", "k_score_ppm", "gate", "failure_code", "ended_at")
    mine = Compile.objects.of_tenant(session.tenant_id).filter(status__in=TERMINAL)
    rows = list(mine.only(*columns).order_by(F("ended_at").desc(nulls_last=True), "-id")[:N_GATES])
    for row in rows:
        row.public_id = encode_id(Prefix.COMPILE, row.id)  # type: ignore[attr-defined]
    return rows


# --- money ------------------------------------------------------------------------------------------------------


def _money(tenant_id: UUID) -> dict[str, Any]:
    account = account_of(tenant_id)
    budget = Budget.objects.of_tenant(tenant_id).filter(api_key_id=None).first()
    savings = DraftSaving.objects.of_tenant(tenant_id).filter(
        occurred_at__gte=account.period_start, occurred_at__lt=account.period_end
    )
    sums = savings.aggregate(
        avoided=Sum("avoided_microusd"), verification=Sum("verification_microusd"), net=Sum("net_microusd")
    )
    money = {"account": account, "limit": _limit(account, budget), "savings": sums}
    return money | {"forecast": month_forecast(tenant_id)} | _spend_by_day(tenant_id)


def _limit(account: Account, budget: Budget | None) -> dict[str, Any] | None:
    """The nearer of the account's cap and the team's own budget: what is used of it, and how that looks."""
    limits = [("spend cap", account.cap_microusd, account.spent_microusd + account.held_microusd)]
    if budget is not None and budget.period_start == account.period_start:
        limits.append(("budget", budget.cap_microusd, budget.spent_microusd + budget.held_microusd))
    known = [(name, cap, used) for name, cap, used in limits if cap]
    if not known:
        return None
    name, cap, used = max(known, key=lambda limit: limit[2] / limit[1])
    share = min(1.0, max(0.0, used / cap))
    tone = "bad" if share >= 1 else "warn" if share >= 0.8 else ""
    return {"name": name, "cap": cap, "used": max(0, used), "share": share, "percent": int(share * 100), "tone": tone}


def _spend_by_day(tenant_id: UUID) -> dict[str, Any]:
    """The last 30 days of UTC, days without use among them."""
    now = timezone.now().astimezone(UTC)
    today = now.date()
    first = today - timedelta(days=N_DAYS - 1)
    rows = usage_by(tenant_id, "day", datetime(first.year, first.month, first.day, tzinfo=UTC), now)
    by_day = {date.fromisoformat(row.key): row.charged_microusd for row in rows}
    values = [by_day.get(first + timedelta(days=i), 0) for i in range(N_DAYS)]
    summary = f"{money(sum(values))} in {N_DAYS} days, {money(values[-1])} today"
    picture = charts.sparkline(values, title="Spend per day", desc=summary, write=money)
    return {"spark": picture, "spend_30d": sum(values), "n_days": N_DAYS}


# --- what wants attention, and how to begin ---------------------------------------------------------------------


def _failing_webhooks(session: TeamSession) -> list[dict[str, Any]]:
    rows = WebhookEndpoint.objects.of_tenant(session.tenant_id).filter(deleted_at=None).exclude(failing_since=None)
    return [
        {
            "id": encode_id(Prefix.WEBHOOK_ENDPOINT, row.id),
            "url": row.url,
            "since": row.failing_since,
            "is_off": row.status == EndpointStatus.DISABLED,
        }
        for row in rows.order_by("failing_since")[:5]
    ]


def _first_steps(session: TeamSession) -> dict[str, Any]:
    """Return what is shown until the first compile has succeeded. The curl line is against this deployment; the line
    before it needs the clone, so it is for the stack on this machine alone."""
    tenant_id = session.tenant_id
    url = settings.KOLM_PUBLIC_URL
    return {
        "has_key": ApiKey.objects.of_tenant(tenant_id).filter(revoked_at=None).exists(),
        "has_compile": Compile.objects.of_tenant(tenant_id).exists(),
        "has_teacher": TeacherKey.objects.of_tenant(tenant_id).exists(),
        "has_team": Member.objects.of_tenant(tenant_id).count() > 1,
        "spec_line": f".venv/bin/kolm check {EXAMPLE} --json > spec.json" if IS_LOCAL else "",
        "curl_line": f'curl -s {url}/v1/compiles -H "Authorization: Bearer $KOLM_API_KEY"'
        ' -H "Idempotency-Key: $(uuidgen)" -H "Content-Type: application/json" -d @spec.json',
    }
