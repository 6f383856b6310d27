"""The draft cache's page: what is kept, what it was worth, whether it can be trusted, and deleting it."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from django.conf import settings
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils.safestring import SafeString
from django.views.decorators.http import require_GET, require_POST

from backend.compiles.draft_savings import DraftSavings, savings_by_family
from backend.compiles.draft_words import is_built_in, per_cent
from backend.console.access import ConsoleRequest, page
from backend.console.charts import columns, intervals
from backend.console.compiles.draft_rows import figure_words
from backend.console.drafts.figures import DAYS, SavedDay, bands_of, kinship_rates, saved_days, suspensions_of
from backend.console.drafts.newest import newest_verdicts
from backend.console.templatetags.kolm import count, money, pct
from backend.domain.errors import InvalidInput, NotFound
from backend.domain.roles import Permission
from backend.drafts.purging import purge_family
from backend.drafts.shapes import FamilyStatsShape, Rate, acceptance
from backend.drafts.statistics import stats
from backend.drafts.tallies import FamilyStats


@require_GET
@page(Permission.VIEW)
def drafts(request: ConsoleRequest) -> HttpResponse:
    """All families, or with `?family=` one of them in detail."""
    tenant_id = request.team_session.tenant_id
    family = request.GET.get("family")
    families = stats(tenant_id, family=family)
    if family is not None and not families:
        raise NotFound(f"There are no drafts of a family {family[:60]!r}.")
    bands, days = bands_of(families), saved_days(tenant_id, family)
    savings = savings_by_family(tenant_id, family=family)
    total = sum(savings.values(), DraftSavings())
    scope_ids = [scope.scope.id for row in families for scope in row.scopes]
    context: dict[str, Any] = {
        "family": family,
        "families": [_row(row, savings.get(row.family, DraftSavings())) for row in families],
        "total": _total(families),
        "savings": total,
        "figure": figure_words(total),
        "share": per_cent(total.net_share_ppm),
        "has_exact_judge": any(is_built_in(scope.scope.teacher) for row in families for scope in row.scopes),
        "newest": newest_verdicts(tenant_id, scope_ids),
        "days": days,
        "n_days": DAYS,
        "acceptance": _acceptance_chart(
            [(f"from {band.distance:.2f}", acceptance([band])) for band in bands], title="Acceptance by distance"
        ),
        "kinship": _acceptance_chart(kinship_rates(tenant_id, scope_ids), title="Acceptance by kinship"),
        "savings_chart": _savings_chart(days),
        "limit_bytes": settings.KOLM_DRAFT_BYTES_PER_TENANT,
        "ttl_days": settings.KOLM_DRAFT_TTL_DAYS,
        "may_release": request.team_session.may(Permission.RELEASE),
        "stats_path": f"/v1/drafts/stats?family={quote(family or '')}",
        "shape": FamilyStatsShape.of(families[0]) if family is not None else None,
    }
    return render(request, "console/drafts/list.html", context)


@require_POST
@page(Permission.RELEASE)
def purge(request: ConsoleRequest) -> HttpResponse:
    """All that is kept of one family; its name typed again is the confirmation."""
    session = request.team_session
    family, confirmed = request.POST.get("family", ""), request.POST.get("confirm", "")
    if not family or family != confirmed:
        raise InvalidInput("Type the family’s exact name to purge it; nothing was deleted.")
    gone = purge_family(session.tenant_id, family, actor=session.actor)
    messages.success(
        request, f"{gone.n_drafts:,} drafts of {family} are deleted, and the key that their texts were sealed with."
    )
    return redirect("console:drafts")


def _row(family: FamilyStats, savings: DraftSavings) -> dict[str, Any]:
    return {
        "name": family.family,
        "held": family.holdings,
        "savings": savings,
        "share": per_cent(savings.net_share_ppm),
        "suspensions": suspensions_of(family),
    }


def _total(families: list[FamilyStats]) -> dict[str, int]:
    return {
        "n_drafts": sum(row.holdings.n_drafts for row in families),
        "n_kept": sum(row.holdings.n_kept for row in families),
        "n_quarantined": sum(row.holdings.n_quarantined for row in families),
        "n_bytes": sum(row.holdings.n_bytes for row in families),
    }


def _savings_chart(days: Sequence[SavedDay]) -> SafeString:
    """Draw what the cache avoided, split into what verifying it cost and what remained. A day that lost money has no
    remainder."""
    rows = [(f"{row.day:%m-%d}", [max(0, row.net), row.costs]) for row in days]
    net = sum(row.net for row in days)
    desc = f"{money(net)} net of {money(sum(row.avoided for row in days))} avoided"
    return columns(rows, ["Net saving", "Verification and audits"], title="Savings by day", desc=desc, write=money)


def _acceptance_chart(rates: Sequence[tuple[str, Rate]], *, title: str) -> SafeString | None:
    """Draw rates, each with its exact interval; None where no verifier was asked."""
    rows = [
        (
            f"{name}, {count(rate.k)} of {count(rate.n)}",
            (rate.low_ppm or 0) / 1e6,
            rate.rate_ppm / 1e6,
            (rate.high_ppm or 0) / 1e6,
        )
        for name, rate in rates
        if rate.rate_ppm is not None
    ]
    return intervals(rows, title=title, write=pct) if rows else None
