"""Taking an artifact out of use. Its bytes stay: whoever has them can still verify them, and an audit may ask for
them."""

from uuid import UUID

from django.utils import timezone

from backend.artifacts.models import Artifact, RevokedDigest
from backend.artifacts.shapes import ArtifactNotice
from backend.domain.errors import Conflict, NotFound
from backend.domain.ids import Prefix, encode_id
from backend.domain.webhooks.events import EventType
from backend.tenants import audit
from backend.tenants.actors import Actor
from backend.tenants.isolation import tenant_scope
from backend.webhooks.emit import emit


def revoke(tenant_id: UUID, artifact_id: UUID, *, reason: str, actor: Actor) -> Artifact:
    """Revoke an artifact: from here on it is not run any more. Revoking again changes nothing, the reason neither.
    Raises NotFound."""
    with tenant_scope(tenant_id):
        row = Artifact.objects.of_tenant(tenant_id).select_for_update().filter(id=artifact_id).first()
        if row is None:
            raise NotFound("There is no such artifact.")
        if row.revoked_at is not None:
            return row
        row.revoked_at, row.revoked_reason = timezone.now(), reason
        row.save(update_fields=["revoked_at", "revoked_reason"])
        RevokedDigest.objects.get_or_create(sha256=row.sha256, defaults={"revoked_at": row.revoked_at})
        public_id = encode_id(Prefix.ARTIFACT, row.id)
        audit.note(tenant_id, actor=actor, action="artifact.revoked", target=public_id, data={"reason": reason})
        emit(tenant_id, EventType.ARTIFACT_REVOKED, {"object": ArtifactNotice.of(row)})
        return row


def check_usable(row: Artifact) -> None:
    """Raises Conflict for a revoked artifact."""
    if row.revoked_at is None:
        return
    why = f" ({row.revoked_reason})" if row.revoked_reason else ""
    raise Conflict(
        f"This artifact was revoked{why}; use another version. Its bytes stay at /download?revoked=true.",
        code="artifact_revoked",
    )
