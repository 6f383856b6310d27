"""The figures behind the draft cache's charts: savings by day, acceptance by distance and by kinship, why a family is
suspended."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Count, Q, Sum
from django.db.models.functions import TruncDate
from django.utils import timezone

from backend.domain.drafts.vocabulary import Strategy, VerdictKind
from backend.domain.number_words import percent
from backend.drafts.models import Offer, Verdict
from backend.drafts.shapes import BadDraftsShape, Rate, rate
from backend.drafts.tallies import Band, FamilyStats

DAYS = 30
_KINSHIPS = {"slice": "the same slice", "label": "another slice of the label", "other": "other slices"}
_COSTS = ("verification", "embedding", "audit", "exploration")


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedDay:
    """One UTC day's account, micro-USD. `costs` is verification, embedding, audits and exploration together."""

    day: date
    avoided: int
    costs: int

    @property
    def net(self) -> int:
        return self.avoided - self.costs


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspension:
    teacher: str
    strategy: str
    since: Any
    reason: str


def saved_days(tenant_id: UUID, family: str | None = None) -> list[SavedDay]:
    """The last thirty days, each; none where no look-up was made."""
    rows = Offer.objects.of_tenant(tenant_id).filter(created_at__gte=timezone.now() - timedelta(days=DAYS))
    if family is not None:
        rows = rows.filter(family=family)
    sums = {name: Sum(f"{name}_microusd") for name in ("avoided", *_COSTS)}
    by_day = rows.annotate(day=TruncDate("created_at")).values("day").annotate(**sums).order_by("day")
    known = {
        row["day"]: SavedDay(day=row["day"], avoided=row["avoided"], costs=sum(row[name] for name in _COSTS))
        for row in by_day
    }
    today = timezone.now().date()
    every = [today - timedelta(days=n) for n in reversed(range(DAYS))]
    return [known.get(day) or SavedDay(day=day, avoided=0, costs=0) for day in every] if known else []


def bands_of(families: Sequence[FamilyStats]) -> list[Band]:
    """Verdicts by distance over families, scopes and strategies that ask; nearest first."""
    bands: dict[float, Band] = {}
    for family in families:
        for scope in family.scopes:
            for band in scope.verified:
                key = round(band.distance, 6)
                before = bands.get(key, Band(distance=key, n_shown=0, n_accepted=0))
                bands[key] = Band(
                    distance=key,
                    n_shown=before.n_shown + band.n_shown,
                    n_accepted=before.n_accepted + band.n_accepted,
                )
    return [bands[key] for key in sorted(bands)]


def kinship_rates(tenant_id: UUID, scope_ids: Sequence[UUID], *, column: str = "kinship") -> list[tuple[str, Rate]]:
    """Return how many drafts the teacher accepted of each kinship; nothing where verdicts do not have it."""
    if not scope_ids or column not in {field.name for field in Verdict._meta.fields}:
        return []
    asked = Verdict.objects.filter(tenant_id=tenant_id, scope_id__in=scope_ids, kind=VerdictKind.VERDICT)
    counted = (
        asked.exclude(strategy=Strategy.REPEAT)
        .values_list(column)
        .annotate(n=Count("id"), k=Count("id", filter=Q(is_accepted=True)))
        .order_by(column)
    )
    return [(_KINSHIPS.get(value, str(value)), rate(k, n)) for value, n, k in counted]


def suspensions_of(family: FamilyStats) -> list[Suspension]:
    """Return which strategies of the family generate afresh, and the measurement that made them."""
    return [
        Suspension(
            teacher=scope.scope.teacher,
            strategy=one.strategy,
            since=one.calibration.suspended_at,
            reason=_reason(BadDraftsShape.of(one)),
        )
        for scope in family.scopes
        for one in scope.strategies
        if one.calibration.suspended_at is not None
    ]


def _reason(bad: dict[str, Any]) -> str:
    low, bound, votes = bad["low_ppm"] or 0, bad["bound_ppm"], bad["other_label"]
    allowed = "the spec’s draft_cache.max_bad_rate" if bound is None else f"the {percent(bound)} that the spec allows"
    evidence = []
    if bad["n_audited"]:
        evidence.append(
            f"The audit asked the teacher again about {bad['n_audited']} accepted drafts; {bad['n_refused']} were "
            "refused twice."
        )
    if votes["n"]:
        evidence.append(
            f"Of {votes['n']} drafts that were picked, {votes['n_other']} got another label than their slice's; of "
            f"{votes['n_fresh']} fresh picks, {votes['n_fresh_other']}."
        )
    return (
        f"{' '.join(evidence)} At least {percent(low)} are bad, above {allowed}. "
        "The teacher writes all candidates of the family anew until its drafts are purged."
    )
