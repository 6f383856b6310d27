"""Counting what the draft cache holds and what it was worth: a handful of grouped queries, whatever the number of
drafts."""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import BigIntegerField, Count, F, Max, Q, QuerySet, Sum
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, Floor

from backend.domain.drafts.calibration import GRID_VERSION
from backend.domain.drafts.vocabulary import Arm, Certificate, DraftState, Saving, Strategy, VerdictKind
from backend.drafts.models import Calibration, Draft, Offer, Outcome, Scope, Source, Verdict
from backend.drafts.shapes import rate
from backend.drafts.tallies import BAND, Band, FamilyStats, Holdings, ScopeStats, Side, StrategyStats, Tally

# A slice is held back at random among those that have drafts near, before anything is decided about them: compared with
# the offered ones alone, it would stand beside a choice of the easy ones.
NOT_HELD_BACK = (Arm.OFFERED, Arm.PROBED, Arm.NOT_WORTH, Arm.SUSPENDED)
_MONEY = ("avoided", "verification", "embedding", "audit", "exploration")


def stats(tenant_id: UUID, *, family: str | None = None, since: datetime | None = None) -> list[FamilyStats]:
    """Return the figures by family, in the order of their names. `since` bounds look-ups and the comparison; what is
    stored and what the calibration knows is as it stands."""
    wanted = Q(tenant_id=tenant_id) & (Q() if family is None else Q(family=family))
    recent = wanted & (Q() if since is None else Q(created_at__gte=since))
    scopes = list(Scope.objects.filter(wanted).order_by("family", "created_at", "id"))
    holdings = _holdings(tenant_id, None if family is None else [scope.id for scope in scopes])
    offers = Offer.objects.filter(recent)
    tallies = _tallies(offers.filter(slice_position__gte=0))
    labels = _tallies(offers.filter(slice_position__lt=0))
    calibrations: dict[UUID, dict[str, Calibration]] = {}
    for row in Calibration.objects.filter(tenant_id=tenant_id, scope__in=[scope.id for scope in scopes]):
        calibrations.setdefault(row.scope_id, {})[row.strategy] = row
    sides = _sides(Outcome.objects.filter(recent))
    bands = _bands(tenant_id, [scope.id for scope in scopes], since)
    families = [
        _scope_stats(
            scope, holdings.get(scope.id, Holdings()), tallies, bands.get(scope.id, {}), calibrations.get(scope.id, {})
        )
        for scope in scopes
    ]
    names = sorted({scope.family for scope in scopes} | {name for name, *_ in (*tallies, *labels)} | set(sides))
    return [
        FamilyStats(
            family=name,
            holdings=sum((scope.holdings for scope in families if scope.scope.family == name), Holdings()),
            tally=_of_family(name, tallies),
            labels=_of_family(name, labels),
            scopes=tuple(scope for scope in families if scope.scope.family == name),
            held_back=sides.get(name, (None, None))[0],
            not_held_back=sides.get(name, (None, None))[1],
        )
        for name in names
    ]


def running_rate(tenant_id: UUID, family: str) -> dict[str, Any]:
    """Return a family's acceptance so far, as every receipt publishes it: drafts that the teacher was asked about and
    accepted, those taken because they answer the same prompt, the rate with its exact 95 % interval, the net saving."""
    scopes = Scope.objects.filter(tenant_id=tenant_id, family=family).values_list("id", flat=True)
    verdicts = Verdict.objects.filter(tenant_id=tenant_id, scope_id__in=list(scopes), kind=VerdictKind.VERDICT)
    is_repeat = Q(strategy=Strategy.REPEAT)
    counts = verdicts.aggregate(
        offered=Count("id", filter=~is_repeat),
        accepted=Count("id", filter=~is_repeat & Q(is_accepted=True)),
        repeated=Count("id", filter=is_repeat),
    )
    share = rate(counts["accepted"], counts["offered"])
    tally = _of_family(family, _tallies(Offer.objects.filter(tenant_id=tenant_id, family=family)))
    return counts | {
        "rate_ppm": share.rate_ppm,
        "low_ppm": share.low_ppm,
        "high_ppm": share.high_ppm,
        "net_microusd": tally.saving.net,
    }


_Key = tuple[str, UUID | None, str]  # family, scope, strategy


def _scope_stats(
    scope: Scope,
    holdings: Holdings,
    tallies: Mapping[_Key, Tally],
    bands: Mapping[str, tuple[Band, ...]],
    calibrations: Mapping[str, Calibration],
) -> ScopeStats:
    own = {strategy: tally for (_, scope_id, strategy), tally in tallies.items() if scope_id == scope.id}
    return ScopeStats(
        scope=scope,
        holdings=holdings,
        tally=sum(own.values(), Tally()),
        strategies=tuple(
            StrategyStats(
                strategy=name,
                tally=own.get(name, Tally()),
                verified=bands.get(name, ()),
                calibration=calibrations.get(name) or Calibration(log_posterior=b"", grid_version=GRID_VERSION),
            )
            for name in sorted({*own, *calibrations, *bands} - {""})
        ),
    )


def _of_family(name: str, tallies: Mapping[_Key, Tally]) -> Tally:
    return sum((tally for (family, *_), tally in tallies.items() if family == name), Tally())


def _holdings(tenant_id: UUID, scope_ids: list[UUID] | None) -> dict[UUID, Holdings]:
    within = {"tenant_id": tenant_id} | ({} if scope_ids is None else {"scope_id__in": scope_ids})
    live = Q(state=DraftState.LIVE)
    product = live & Q(is_kept=False)
    rows = Draft.objects.filter(**within).values("scope_id")
    counted = rows.annotate(
        n_drafts=Count("id", filter=product),
        n_kept=Count("id", filter=live & Q(is_kept=True)),
        n_quarantined=Count("id", filter=Q(state=DraftState.QUARANTINED)),
        n_bytes=Sum("n_bytes"),
        tokens=Sum("n_tokens", filter=product, default=0),
        cost=Sum("cost_microusd", filter=product, default=0),
        newest=Max("created_at"),
    ).order_by()
    sources = dict(Source.objects.filter(**within).values_list("scope_id").annotate(n=Count("id")).order_by())
    return {
        row["scope_id"]: Holdings(
            n_drafts=row["n_drafts"],
            n_kept=row["n_kept"],
            n_quarantined=row["n_quarantined"],
            n_sources=sources.get(row["scope_id"], 0),
            n_bytes=row["n_bytes"],
            n_tokens=row["tokens"],
            cost_microusd=row["cost"],
            newest_at=row["newest"],
        )
        for row in counted
    }


def _tallies(offers: QuerySet[Offer]) -> dict[_Key, Tally]:
    sums: dict[str, Any] = {f"sum_{name}": Sum(name) for name in ("n_shown", "n_accepted", "n_reused")}
    sums |= {f"sum_{name}": Sum(f"{name}_microusd") for name in _MONEY}
    sums |= {
        f"tokens_{name}": Sum(Cast(KeyTextTransform(name.value, "kept_tokens"), BigIntegerField()), default=0)
        for name in Certificate
    }
    rows = offers.values("family", "scope_id", "strategy", "arm").annotate(n=Count("id"), **sums).order_by()
    tallies: dict[_Key, Tally] = {}
    for row in rows:
        key = (row["family"], row["scope_id"], row["strategy"])
        tallies[key] = tallies.get(key, Tally()) + _tally(row)
    return tallies


def _tally(row: Mapping[str, Any]) -> Tally:
    return Tally(
        arms=Counter({row["arm"]: row["n"]}),
        n_shown=row["sum_n_shown"],
        n_accepted=row["sum_n_accepted"],
        n_reused=row["sum_n_reused"],
        kept_tokens=Counter({name.value: row[f"tokens_{name}"] for name in Certificate if row[f"tokens_{name}"]}),
        saving=Saving(
            avoided=row["sum_avoided"],
            verification=row["sum_verification"],
            embedding=row["sum_embedding"],
            audits=row["sum_audit"],
            exploration=row["sum_exploration"],
        ),
    )


def _bands(tenant_id: UUID, scope_ids: list[UUID], since: datetime | None) -> dict[UUID, dict[str, tuple[Band, ...]]]:
    verdicts = Verdict.objects.filter(tenant_id=tenant_id, scope_id__in=scope_ids, kind=VerdictKind.VERDICT)
    if since is not None:
        verdicts = verdicts.filter(created_at__gte=since)
    rows = (
        verdicts.annotate(band=Floor(F("distance") / BAND))
        .values("scope_id", "strategy", "band")
        .annotate(n=Count("id"), accepted=Count("id", filter=Q(is_accepted=True)))
        .order_by("band")
    )
    bands: dict[UUID, dict[str, tuple[Band, ...]]] = {}
    for row in rows:
        band = Band(distance=row["band"] * BAND, n_shown=row["n"], n_accepted=row["accepted"])
        of_scope = bands.setdefault(row["scope_id"], {})
        of_scope[row["strategy"]] = (*of_scope.get(row["strategy"], ()), band)
    return bands


def _sides(outcomes: QuerySet[Outcome]) -> dict[str, tuple[Side | None, Side | None]]:
    """Return for each family the held-back slices, then the others; None where it has not both."""
    has_score = Q(mean_score__isnull=False)
    rows = (
        outcomes.filter(arm__in=[Arm.HELD_BACK, *NOT_HELD_BACK])
        .values("family", "arm")
        .annotate(
            n=Count("id"),
            candidates=Sum("n_candidates"),
            cost=Sum("cost_microusd"),
            scored=Sum("n_candidates", filter=has_score, default=0),
            scores=Sum(F("mean_score") * F("n_candidates"), filter=has_score, default=0.0),
        )
        .order_by()
    )
    sides: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        sides.setdefault(row["family"], []).append(row)
    return {family: _both(of_family) for family, of_family in sides.items()}


def _both(rows: list[Mapping[str, Any]]) -> tuple[Side | None, Side | None]:
    held_back = [row for row in rows if row["arm"] == Arm.HELD_BACK]
    others = [row for row in rows if row["arm"] != Arm.HELD_BACK]
    return (_side(held_back), _side(others)) if held_back and others else (None, None)


def _side(outcomes: list[Mapping[str, Any]]) -> Side:
    n_candidates, n_scored = sum(row["candidates"] for row in outcomes), sum(row["scored"] for row in outcomes)
    return Side(
        n_slices=sum(row["n"] for row in outcomes),
        n_candidates=n_candidates,
        cost_per_candidate_microusd=sum(row["cost"] for row in outcomes) / n_candidates if n_candidates else None,
        mean_score=sum(row["scores"] for row in outcomes) / n_scored if n_scored else None,
    )
