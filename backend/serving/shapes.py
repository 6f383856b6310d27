"""Answers about deployments, in notices too: the deployment, its figures, its history."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from django.conf import settings
from django.utils import timezone
from rest_framework import serializers as s

from backend.domain.ids import Prefix, encode_id
from backend.domain.serving.deployments import DRAIN_S, N_BUCKETS, DeploymentState, quantile_us
from backend.domain.serving.drift import Drift
from backend.rest.shapes import Constant, PublicId, Shape, Time
from backend.serving.models import Deployment, DeploymentHour, DeploymentRevision

# What a change may change, and the history keeps of each revision.
SETTINGS = (
    "artifact",
    "previous_artifact",
    "canary",
    "idle_minutes",
    "pinned",
    "max_concurrent",
    "shadow",
    "drift",
    "tags",
)
NO_DRIFT = SimpleNamespace(n=0, agreement_ppm=None, floor_ppm=None, log_e=0.0, needed=1.0, is_regression=False)
Hours = Sequence[DeploymentHour]


class DeploymentBaseShape(Shape[Deployment]):
    id = s.CharField(source="base_id")
    sha256 = s.CharField(source="base_sha256")


class CanaryShape(Shape[Deployment]):
    artifact = PublicId(Prefix.ARTIFACT, source="canary_artifact_id")
    share_ppm = s.IntegerField(source="canary_share_ppm")


class ShadowShape(Shape[Deployment]):
    share_ppm = s.IntegerField(source="shadow_share_ppm")
    microusd_per_day = s.IntegerField(source="shadow_microusd_per_day")


class DriftShape(Shape[Deployment]):
    margin_ppm = s.IntegerField(source="drift_margin_ppm")
    rollback = s.BooleanField(source="drift_rollback")


class EvidenceShape(Shape[Any]):  # of a Drift, or NO_DRIFT
    n_compared = s.IntegerField(source="n")
    agreement_ppm = s.IntegerField(allow_null=True)
    floor_ppm = s.IntegerField(allow_null=True)
    evidence_ppm = s.IntegerField(help_text="1,000,000: a regression.")
    regression = s.BooleanField(source="is_regression")

    def get_evidence_ppm(self, row: Drift) -> int:
        return round(1_000_000 * min(1.0, max(0.0, row.log_e / row.needed)))


class DriftDetailShape(DriftShape, EvidenceShape):
    pass


class DeploymentShape(Shape[Deployment]):
    id = PublicId(Prefix.DEPLOYMENT)
    object = Constant("deployment")
    name = s.CharField()
    state = s.ChoiceField(["active", "draining", "stopped"])
    base = DeploymentBaseShape(source="*")
    task_type = s.CharField()
    artifact = PublicId(Prefix.ARTIFACT, source="artifact_id")
    previous_artifact = PublicId(Prefix.ARTIFACT, source="previous_artifact_id", allow_null=True)
    canary = CanaryShape(allow_null=True)
    idle_minutes = s.IntegerField()
    pinned = s.BooleanField(source="is_pinned")
    max_concurrent = s.IntegerField()
    shadow = ShadowShape(source="*")
    drift = DriftShape(source="*")
    tags = s.DictField(child=s.CharField(), help_text="Cost tags: what it answers is on the bill under them.")
    version = s.IntegerField()
    created_at = Time()
    updated_at = Time()
    url = s.CharField()

    def get_state(self, row: Deployment) -> DeploymentState:
        if row.draining_since is None:
            return DeploymentState.ACTIVE
        is_over = row.draining_since + timedelta(seconds=DRAIN_S) < timezone.now()
        return DeploymentState.STOPPED if is_over else DeploymentState.DRAINING

    def get_canary(self, row: Deployment) -> Deployment | None:
        return None if row.canary_artifact_id is None else row

    def get_url(self, row: Deployment) -> str:
        return f"{settings.KOLM_PUBLIC_URL}/v1/deployments/{encode_id(Prefix.DEPLOYMENT, row.id)}"


class Total(s.IntegerField):
    """The sum over hours of the column of its name."""

    def get_attribute(self, instance: Hours) -> int:  # type: ignore[override]
        return sum(getattr(hour, str(self.field_name)) for hour in instance)


class Quantile(s.IntegerField):
    """A quantile of the merged histograms of hours, microseconds; null without an entry."""

    def __init__(self, histogram: str, q: float) -> None:
        super().__init__(allow_null=True)
        self._histogram, self._q = histogram, q

    def get_attribute(self, instance: Hours) -> int | None:  # type: ignore[override]
        total = [0] * N_BUCKETS
        for hour in instance:
            for at, count in enumerate(getattr(hour, self._histogram)[:N_BUCKETS]):
                total[at] += count
        return quantile_us(total, self._q)


class DeploymentFiguresShape(Shape[Hours]):
    artifact = PublicId(Prefix.ARTIFACT)
    n_requests = Total()
    n_failed = Total()
    n_canceled = Total()
    n_rule = Total(help_text="Requests that a rule of the artifact answered: no model, no token charged.")
    prompt_tokens = Total()
    cached_tokens = Total()
    completion_tokens = Total()
    drafted_tokens = Total()
    accepted_tokens = Total()
    amount_microusd = Total()
    acceptance_ppm = s.IntegerField(allow_null=True)
    first_token_p50_us = Quantile("first_token", 0.5)
    first_token_p99_us = Quantile("first_token", 0.99)
    total_p50_us = Quantile("total", 0.5)
    total_p99_us = Quantile("total", 0.99)
    n_shadow = Total()
    shadow_agreement_ppm = s.IntegerField(allow_null=True)
    shadow_microusd = Total()

    def get_artifact(self, row: Hours) -> UUID | None:
        return row[0].artifact_id if row else None

    def get_acceptance_ppm(self, row: Hours) -> int | None:
        n_drafted = sum(hour.drafted_tokens for hour in row)
        return sum(hour.accepted_tokens for hour in row) * 1_000_000 // n_drafted if n_drafted else None

    def get_shadow_agreement_ppm(self, row: Hours) -> int | None:
        n_shadow = sum(hour.n_shadow for hour in row)
        return sum(hour.shadow_agreement_ppm for hour in row) // n_shadow if n_shadow else None


class DeploymentHourShape(DeploymentFiguresShape):
    first = ("hour",)

    hour = Time()

    def get_hour(self, row: Hours) -> datetime:
        return row[0].hour


class RevisionActorShape(Shape[DeploymentRevision]):
    kind = s.CharField(source="actor_kind")
    id = s.CharField(source="actor_id", allow_blank=True)


class RevisionShape(Shape[DeploymentRevision]):
    version = s.IntegerField()
    action = s.CharField()
    actor = RevisionActorShape(source="*")
    data = s.JSONField()
    created_at = Time()


class DeploymentDetailShape(DeploymentShape):  # by `reading.detail`
    drift = DriftDetailShape()
    last_24h = DeploymentFiguresShape(many=True)
    ran = s.ListField(child=s.JSONField(), help_text="The engines that answered, as they say of themselves.")
    history = RevisionShape(many=True)


def settings_of(row: Deployment) -> dict[str, Any]:
    shape = DeploymentShape.of(row)
    return {name: shape[name] for name in SETTINGS}
