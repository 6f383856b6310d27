"""The models of a key: the tenant's deployments that answer, and its artifacts, as `model` may name them."""

from datetime import datetime
from typing import Any
from uuid import UUID

from backend.artifacts.models import Artifact
from backend.domain.ids import Prefix, encode_id
from backend.domain.serving.deployments import answering
from backend.serving.gateway.admission import check_key, no_model
from backend.serving.models import Deployment
from backend.tenants.api_keys.authentication import Caller
from backend.tenants.isolation import tenant_scope

MOST_ARTIFACTS = 1_000


def models_of(caller: Caller) -> list[dict[str, Any]]:
    """Return deployments by name, then artifacts, the newest first. What would be refused is not among them: a drained
    deployment, a revoked artifact and what it answers for, an artifact that no server runs."""
    with tenant_scope(caller.tenant_id):
        check_key(caller)
        deployments = list(Deployment.objects.of_tenant(caller.tenant_id).filter(draining_since=None).order_by("name"))
        usable = Artifact.objects.of_tenant(caller.tenant_id).filter(revoked_at=None)
        deployed = {row.id: row for row in usable.filter(id__in=[row.artifact_id for row in deployments])}
        artifacts = [row for row in usable.order_by("-created_at")[:MOST_ARTIFACTS] if _is_served(row)]
    return [
        *(_deployment(row, deployed[row.artifact_id]) for row in deployments if row.artifact_id in deployed),
        *(_artifact(row) for row in artifacts),
    ]


def model_of(caller: Caller, model: str) -> dict[str, Any]:
    """Return one of them, by what may stand in `model`: a deployment's name or id, or an artifact's id. Raises
    NotFound."""
    for row in models_of(caller):
        if model in (row["id"], row["kolm"].get("deployment")):
            return row
    raise no_model(model)


def _is_served(row: Artifact) -> bool:
    return answering(row.manifest).student is not None


def _deployment(row: Deployment, artifact: Artifact) -> dict[str, Any]:
    deployment = {"deployment": encode_id(Prefix.DEPLOYMENT, row.id)}
    return _model(row.name, row.created_at, deployment | _about(artifact))


def _artifact(row: Artifact) -> dict[str, Any]:
    return _model(_artifact_id(row.id), row.created_at, _about(row))


def _about(row: Artifact) -> dict[str, str]:
    what = answering(row.manifest)
    return {"artifact": _artifact_id(row.id), "task_type": what.task_type, "student": str(what.student or "")}


def _artifact_id(id: UUID) -> str:
    return encode_id(Prefix.ARTIFACT, id)


def _model(name: str, created_at: datetime, about: dict[str, str]) -> dict[str, Any]:
    created = int(created_at.timestamp())
    return {"id": name, "object": "model", "created": created, "owned_by": "you", "kolm": about}
