"""Deployments as the JSON that the API answers and webhooks tell of."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from backend.domain.ids import Prefix, encode_id
from backend.domain.serving.deployments import DRAIN_S, DeploymentState
from backend.rest.times import rfc3339
from backend.serving.models import Deployment, DeploymentRevision


def deployment_shape(row: Deployment) -> dict[str, Any]:
    public_id = encode_id(Prefix.DEPLOYMENT, row.id)
    return {
        "id": public_id,
        "object": "deployment",
        "name": row.name,
        "state": _state(row).value,
        "base": {"id": row.base_id, "sha256": row.base_sha256},
        "task_type": row.task_type,
        **settings_shape(row),
        "version": row.version,
        "created_at": rfc3339(row.created_at),
        "updated_at": rfc3339(row.updated_at),
        "url": f"{settings.KOLM_PUBLIC_URL}/v1/deployments/{public_id}",
    }


def settings_shape(row: Deployment) -> dict[str, Any]:
    """Return the settings that a change may change, which the history keeps of each revision."""
    canary = None
    if row.canary_artifact_id is not None:
        canary = {"artifact": _art(row.canary_artifact_id), "share_ppm": row.canary_share_ppm}
    return {
        "artifact": _art(row.artifact_id),
        "previous_artifact": _art(row.previous_artifact_id),
        "canary": canary,
        "idle_minutes": row.idle_minutes,
        "pinned": row.is_pinned,
        "max_concurrent": row.max_concurrent,
        "shadow": {"share_ppm": row.shadow_share_ppm, "microusd_per_day": row.shadow_microusd_per_day},
        "drift": {"margin_ppm": row.drift_margin_ppm, "rollback": row.drift_rollback},
    }


def revision_shape(row: DeploymentRevision) -> dict[str, Any]:
    return {
        "version": row.version,
        "action": row.action,
        "actor": {"kind": row.actor_kind, "id": row.actor_id},
        "data": row.data,
        "created_at": rfc3339(row.created_at),
    }


def _state(row: Deployment) -> DeploymentState:
    if row.draining_since is None:
        return DeploymentState.ACTIVE
    is_over = row.draining_since + timedelta(seconds=DRAIN_S) < timezone.now()
    return DeploymentState.STOPPED if is_over else DeploymentState.DRAINING


def _art(artifact_id: UUID | None) -> str | None:
    return None if artifact_id is None else encode_id(Prefix.ARTIFACT, artifact_id)
