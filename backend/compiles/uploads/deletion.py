"""Deletion of uploads as a customer asks for it: the row, and its blob at once, however lately it came.

A sweep leaves a blob that was stored within the last minutes, because whoever stored the same may not have committed
yet; a wrong file is noticed within these minutes, though. So storing and deleting take turns, a tenant at a time.
"""

from uuid import UUID

from django.db import connection

from backend.blobs import delete_blob
from backend.compiles.models import Compile, Upload
from backend.domain.errors import Conflict, NotFound
from backend.domain.ids import Prefix, encode_id
from backend.domain.lifecycle import TERMINAL
from backend.tenants import audit
from backend.tenants.actors import Actor


def find(tenant_id: UUID, upload_id: UUID) -> Upload:
    """Raises NotFound."""
    row = Upload.objects.of_tenant(tenant_id).filter(id=upload_id).first()
    if row is None:
        raise NotFound("There is no such upload.")
    return row


def delete(tenant_id: UUID, upload_id: UUID, *, actor: Actor) -> Upload:
    """Delete an upload with its rows, in the caller's transaction; another upload of the same rows keeps them. Compiles
    that have ended keep what they made of it. Raises NotFound, Conflict while a compile may still read it, and
    Unavailable where blobs cannot be deleted just now."""
    take_turn(tenant_id)
    row = find(tenant_id, upload_id)
    public_id = encode_id(Prefix.UPLOAD, row.id)
    if public_id in specs_under_way(tenant_id):
        raise Conflict(
            "A compile that is under way reads this upload; cancel it, or wait until it has ended.",
            code="upload_in_use",
        )
    Upload.objects.of_tenant(tenant_id).filter(id=row.id).delete()
    data = {"name": row.name, "purpose": row.purpose, "n_rows": row.n_rows}
    audit.note(tenant_id, actor=actor, action="upload.deleted", target=public_id, data=data)
    if not Upload.objects.of_tenant(tenant_id).filter(sha256=row.sha256).exists():
        delete_blob(tenant_id, row.sha256)  # last: where the disk refuses, nothing is deleted
    return row


def take_turn(tenant_id: UUID) -> None:
    """Wait until no other transaction stores, deletes or submits uploads of the tenant, and hold them off until this
    one ends."""
    _lock("pg_advisory_xact_lock", tenant_id)


def hold_off_deletion(tenant_id: UUID) -> None:
    """Keep the tenant's uploads until the caller's transaction ends, beside others that do: of a compile that is being
    submitted, which a deletion could not see yet."""
    _lock("pg_advisory_xact_lock_shared", tenant_id)


def _lock(function: str, tenant_id: UUID) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {function}(hashtextextended('uploads:' || %s, 0))", [str(tenant_id)])


def specs_under_way(tenant_id: UUID) -> str:
    """The specs of all compiles that have not ended, as one text to look for ids in."""
    under_way = Compile.objects.of_tenant(tenant_id).exclude(status__in=TERMINAL)
    return str(list(under_way.values_list("spec", flat=True)))
