"""The record of deployments, for the API and for pages: the numbers of a span, by artifact and by hour, the history,
and where the comparison with the teacher stands."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Sum
from django.utils import timezone

from backend.artifacts.models import Artifact
from backend.domain.serving.drift import Drift, DriftRule, drift
from backend.serving.models import Deployment, DeploymentHour, DeploymentRevision
from backend.serving.shapes import (
    NO_DRIFT,
    DeploymentFiguresShape,
    DeploymentShape,
    DriftShape,
    EvidenceShape,
    RevisionShape,
)

SPAN = timedelta(hours=24)  # of the numbers in a deployment's own answer
ALPHA_PPM = 10_000  # of healthy revisions, how many are ever told as a regression: 1 %
MAX_HISTORY = 100


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
    artifact_ids = dict.fromkeys(hour.artifact_id for hour in hours)
    by_artifact = [[hour for hour in hours if hour.artifact_id == id] for id in artifact_ids]
    return DeploymentShape.of(row) | {
        "last_24h": [DeploymentFiguresShape.of(of_artifact) for of_artifact in by_artifact],
        "ran": ran,
        "drift": DriftShape.of(row) | EvidenceShape.of(drift_of(row) or NO_DRIFT),
        "history": [RevisionShape.of(revision) for revision in history[:MAX_HISTORY]],
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
