"""All compiles of the team: filtered, searched, walked page by page; up to eight of them go to the comparison."""

from datetime import date, timedelta
from typing import Any

from django.db.models import BigIntegerField, QuerySet
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone

from backend.compiles.models import Compile
from backend.console.access import ConsoleRequest, page
from backend.console.compiles.rows import page_of
from backend.console.id_search import address_of, is_public_id
from backend.domain.ids import Prefix, encode_id
from backend.domain.lifecycle import TERMINAL, CompileStatus
from backend.domain.roles import Permission

PAGE_SIZE = 50
MAX_TEXT = 100
_ON_THE_PAGE = (
    *("id", "tenant_id", "name", "family", "status", "arm", "failed_step", "k_score_ppm"),
    *("spent_microusd", "budget_microusd", "created_at", "started_at", "ended_at", "last_progress_at"),
)


@page(Permission.VIEW)
def compiles(request: ConsoleRequest) -> HttpResponse:
    """The list. A pasted id in `q` leads to what it is the id of."""
    asked = {name: request.GET.get(name, "").strip()[:MAX_TEXT] for name in ("q", "status", "family", "from", "to")}
    if is_public_id(asked["q"]):
        return redirect(address_of(request.team_session.tenant_id, asked["q"]))
    mine = Compile.objects.of_tenant(request.team_session.tenant_id)
    rows, cursor = page_of(
        _columns(_filter(mine, asked)), request.GET.get("cursor", ""), prefix=Prefix.COMPILE, size=PAGE_SIZE
    )
    context = {
        "rows": [_line(row) for row in rows],
        "cursor": cursor,
        "asked": asked,
        "is_filtered": any(asked.values()),
        "statuses": [status.value for status in CompileStatus],
        "families": list(mine.order_by("family").values_list("family", flat=True).distinct()[:100]),
        "has_open": any(CompileStatus(row.status) not in TERMINAL for row in rows),
        "query": request.GET.urlencode(),
        "may_compile": request.team_session.may(Permission.COMPILE),
    }
    is_refresh = bool(request.htmx) and request.htmx.target == "rows"
    return render(request, "console/compiles/_rows.html" if is_refresh else "console/compiles/list.html", context)


def _columns(rows: QuerySet[Compile]) -> QuerySet[Compile]:
    """Read only what a line shows; specs and evaluations may be large and stay where they are."""
    total = KeyTextTransform("expected_microusd", KeyTextTransform("total", "estimate"))
    return rows.only(*_ON_THE_PAGE).annotate(expected=Cast(total, BigIntegerField()))


def _filter(rows: QuerySet[Compile], asked: dict[str, str]) -> QuerySet[Compile]:
    if asked["q"]:
        rows = rows.filter(name__icontains=asked["q"])
    if asked["status"] in set(CompileStatus):
        rows = rows.filter(status=asked["status"])
    if asked["family"]:
        rows = rows.filter(family=asked["family"])
    if (since := _day(asked["from"])) is not None:
        rows = rows.filter(created_at__date__gte=since)
    if (until := _day(asked["to"])) is not None:
        rows = rows.filter(created_at__date__lte=until)
    return rows


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def _line(row: Any) -> dict[str, Any]:
    took: timedelta | None = None
    if row.started_at is not None:
        took = (row.ended_at or timezone.now()) - row.started_at
    return {"row": row, "id": encode_id(Prefix.COMPILE, row.id), "expected": row.expected, "took": took}
