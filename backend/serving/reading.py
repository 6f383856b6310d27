"""The record of deployments, for the API and for pages: the numbers of a span, by artifact and by hour, the history,
and where the comparison with the teacher stands."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Sum
from django.utils import timezone

from backend.artifacts.models import Artifact
from backend.domain.ids import Prefix, encode_id
from backend.domain.serving.deployments import N_BUCKETS, quantile_us
from backend.domain.serving.drift import Drift, DriftRule, drift
from backend.rest.times import rfc3339
from backend.serving.models import Deployment, DeploymentHour, DeploymentRevision
from backend.serving.shapes import deployment_shape, revision_shape

SPAN = timedelta(hours=24)  # of the numbers in a deployment's own answer
ALPHA_PPM = 10_000  # of healthy revisions, how many are ever told as a regression: 1 %
MAX_HISTORY = 100
_COUNTS = (
    "n_requests",
    "n_failed",
    "n_canceled",
    "n_rule",
    "prompt_tokens",
    "cached_tokens",
    "completion_tokens",
    "drafted_tokens",
    "accepted_tokens",
    "amount_microusd",
)


def list_deployments(tenant_id: UUID) -> list[Deployment]:
    """All of a tenant's, newest first."""
    return list(Deployment.objects.of_tenant(tenant_id).order_by("-created_at", "-id"))


def detail(row: Deployment, *, now: datetime | None = None) -> dict[str, Any]:
    """The deployment with what it did in the last day, by artifact, what ran, and its history."""
    until = timezone.now() if now is None else now
    hours = hours_of(row, until - SPAN, until)
    ran: list[dict[str, Any]] = []
    for hour in hours:
        ran += [about for about in hour.ran if about not in ran]
    history = DeploymentRevision.objects.of_tenant(row.tenant_id).filter(deployment_id=row.id).order_by("-version")
    return deployment_shape(row) | {
        "last_24h": [{"artifact": art, **figures} for art, figures in _by_artifact(hours).items()],
        "ran": ran,
        "drift": deployment_shape(row)["drift"] | drift_shape(drift_of(row)),
        "history": [revision_shape(each) for each in history[:MAX_HISTORY]],
    }


def hours_of(row: Deployment, start: datetime, end: datetime) -> list[DeploymentHour]:
    """The counters of a span, oldest first: what charts are drawn from."""
    rows = DeploymentHour.objects.of_tenant(row.tenant_id).filter(deployment_id=row.id)
    first = start.replace(minute=0, second=0, microsecond=0)
    return list(rows.filter(hour__gte=first, hour__lt=end).order_by("hour", "artifact_id"))


def hours_of_all(
    rows: Sequence[Deployment], start: datetime, end: datetime
) -> list[tuple[Deployment, list[DeploymentHour]]]:
    """The counters of many deployments of one tenant, by one query."""
    if not rows:
        return []
    of_all = DeploymentHour.objects.of_tenant(rows[0].tenant_id).filter(
        deployment_id__in=[row.id for row in rows],
        hour__gte=start.replace(minute=0, second=0, microsecond=0),
        hour__lt=end,
    )
    hours = list(of_all)
    return [(row, [hour for hour in hours if hour.deployment_id == row.id]) for row in rows]


def hourly(row: Deployment, start: datetime, end: datetime) -> list[dict[str, Any]]:
    """One entry an hour and artifact: counts, times, and how often and how well it agreed with the teacher."""
    return [
        {"hour": rfc3339(hour.hour), "artifact": encode_id(Prefix.ARTIFACT, hour.artifact_id), **figures_of([hour])}
        for hour in hours_of(row, start, end)
    ]


def figures_of(hours: Sequence[DeploymentHour]) -> dict[str, Any]:
    """Sums over hours; rates and quantiles from the sums."""
    sums = {name: sum(getattr(hour, name) for hour in hours) for name in _COUNTS}
    first = merge_histograms([hour.first_token for hour in hours])
    total = merge_histograms([hour.total for hour in hours])
    n_shadow = sum(hour.n_shadow for hour in hours)
    agreement = sum(hour.shadow_agreement_ppm for hour in hours)
    return sums | {
        "acceptance_ppm": _share(sums["accepted_tokens"], sums["drafted_tokens"]),
        "first_token_p50_us": quantile_us(first, 0.5),
        "first_token_p99_us": quantile_us(first, 0.99),
        "total_p50_us": quantile_us(total, 0.5),
        "total_p99_us": quantile_us(total, 0.99),
        "n_shadow": n_shadow,
        "shadow_agreement_ppm": agreement // n_shadow if n_shadow else None,
        "shadow_microusd": sum(hour.shadow_microusd for hour in hours),
    }


def drift_of(row: Deployment) -> Drift | None:
    """The evidence about the primary artifact since it answers; None where its held-out accuracy is not known."""
    artifact = Artifact.objects.of_tenant(row.tenant_id).filter(id=row.artifact_id).first()
    heldout = (artifact.evaluation or {}).get("accuracy_ppm") if artifact is not None else None
    if not isinstance(heldout, int):
        return None
    rows = DeploymentHour.objects.of_tenant(row.tenant_id).filter(
        deployment_id=row.id,
        artifact_id=row.artifact_id,
        hour__gte=row.answering_since.replace(minute=0, second=0, microsecond=0),
    )
    sums = rows.aggregate(n=Sum("n_shadow"), agreement=Sum("shadow_agreement_ppm"))
    rule = DriftRule(heldout_ppm=heldout, margin_ppm=row.drift_margin_ppm, alpha_ppm=ALPHA_PPM)
    return drift(int(sums["n"] or 0), int(sums["agreement"] or 0), rule)


def drift_shape(drift: Drift | None) -> dict[str, Any]:
    """`evidence_ppm` is how far the evidence has come towards what a regression needs."""
    if drift is None:
        return {"n_compared": 0, "agreement_ppm": None, "floor_ppm": None, "evidence_ppm": 0, "regression": False}
    return {
        "n_compared": drift.n,
        "agreement_ppm": drift.agreement_ppm,
        "floor_ppm": drift.floor_ppm,
        "evidence_ppm": round(1_000_000 * min(1.0, max(0.0, drift.log_e / drift.needed))),
        "regression": drift.is_regression,
    }


def merge_histograms(histograms: Sequence[Sequence[int]]) -> list[int]:
    total = [0] * N_BUCKETS
    for counts in histograms:
        for at, count in enumerate(counts[:N_BUCKETS]):
            total[at] += count
    return total


def _by_artifact(hours: Sequence[DeploymentHour]) -> dict[str, dict[str, Any]]:
    ids = dict.fromkeys(hour.artifact_id for hour in hours)
    return {
        encode_id(Prefix.ARTIFACT, id): figures_of([hour for hour in hours if hour.artifact_id == id]) for id in ids
    }


def _share(part: int, whole: int) -> int | None:
    return part * 1_000_000 // whole if whole else None
