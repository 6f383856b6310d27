"""A family's acceptance so far: what every receipt publishes."""

from typing import Any
from uuid import UUID

from django.db.models import Count, Q, Sum

from backend.domain.drafts.judge_controls import exact_interval
from backend.domain.drafts.vocabulary import Strategy, VerdictKind
from backend.drafts.models import Offer, Scope, Verdict


def running_rate(tenant_id: UUID, family: str) -> dict[str, Any]:
    """Over all look-ups of the family: drafts that the teacher was asked about and accepted, the rate with its exact
    95 % interval (ppm), those taken because they answer the same prompt, the net saving in micro-USD."""
    scopes = Scope.objects.filter(tenant_id=tenant_id, family=family).values_list("id", flat=True)
    verdicts = Verdict.objects.filter(tenant_id=tenant_id, scope_id__in=list(scopes), kind=VerdictKind.VERDICT)
    is_repeat = Q(strategy=Strategy.REPEAT)
    counts = verdicts.aggregate(
        offered=Count("id", filter=~is_repeat),
        accepted=Count("id", filter=~is_repeat & Q(is_accepted=True)),
        repeated=Count("id", filter=is_repeat),
    )
    n, k = counts["offered"], counts["accepted"]
    low, high = exact_interval(k, n)
    return counts | {
        "rate_ppm": round(k / n * 1_000_000) if n else None,
        "low_ppm": round(low * 1_000_000) if n else None,
        "high_ppm": round(high * 1_000_000) if n else None,
        "net_microusd": _net(tenant_id, family),
    }


def _net(tenant_id: UUID, family: str) -> int:
    sums = Offer.objects.filter(tenant_id=tenant_id, family=family).aggregate(
        avoided=Sum("avoided_microusd"),
        verification=Sum("verification_microusd"),
        embedding=Sum("embedding_microusd"),
        audit=Sum("audit_microusd"),
        exploration=Sum("exploration_microusd"),
    )
    spent = sum(value or 0 for name, value in sums.items() if name != "avoided")
    return (sums["avoided"] or 0) - spent
