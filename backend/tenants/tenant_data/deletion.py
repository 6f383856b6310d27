"""The end of a tenant: nobody enters any more from the moment it is asked for; then rows, blobs and what Redis has go,
and a signed receipt says what went.

Asking is one transaction: people and keys are gone and an `Erasure` row is there. Erasing is another one, safe to
repeat; upkeep does it again where it failed, and once more an hour later, for what a request that was under way had
still written. The receipt holds counts by table and the digest of the audit log's end, no content.

What this does not reach: backups and write-ahead log archives until they are thrown away, log files, and what was sent
to a teacher, to Stripe or to a webhook. docs/accounts.md says so to the customer.
"""

import base64
import json
import logging
import shutil
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import redis
from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone

from backend.blobs import require_store
from backend.domain.canonical import canonical_json
from backend.domain.errors import Conflict, InvalidInput, Problem
from backend.domain.ids import Prefix, encode_id
from backend.tenants import audit
from backend.tenants.actors import Actor
from backend.tenants.isolation import set_erasing, set_local, tenant_scope
from backend.tenants.models import ApiKey, AuditHead, Erasure, Invitation, Member, Tenant
from backend.tenants.tenant_data.tenant_tables import owned_models, shared_models, tenant_column

logger = logging.getLogger(__name__)

Sign = Callable[[bytes], dict[str, Any]]  # the installation's key: a DSSE envelope around the receipt

RECEIPT_TYPE = "application/vnd.kolm.deletion+json"
SWEEP_AGAIN_AFTER = timedelta(hours=1)
LONGEST_MS = 10 * 60 * 1000


def ask(tenant_id: UUID, *, user_id: int, typed_name: str, actor: Actor) -> Erasure:
    """Close the door: keys, invitations and memberships end with this transaction. Raises InvalidInput when the name is
    not the team's, Conflict when it was asked for already."""
    tenant = Tenant.objects.select_for_update().get(id=tenant_id)
    if " ".join(typed_name.split()) != tenant.name:
        message = "Type the team's exact name; nothing was deleted."
        raise InvalidInput(message, problems=(Problem(pointer="/name", message=message),))
    if Erasure.objects.filter(tenant_id=tenant_id).exists():
        raise Conflict("This team is already being deleted.", code="erasure_under_way")
    now = timezone.now()
    audit.note(tenant_id, actor=actor, action="tenant.deleted", target=encode_id(Prefix.TENANT, tenant_id))
    ApiKey.objects.of_tenant(tenant_id).filter(revoked_at=None).update(revoked_at=now)
    Invitation.objects.of_tenant(tenant_id).filter(revoked_at=None).update(revoked_at=now)
    Member.objects.of_tenant(tenant_id).delete()
    return Erasure.objects.create(tenant_id=tenant_id, user_id=user_id)


def erase(erasure_id: UUID, *, sign: Sign) -> Erasure:
    """Delete everything, write the receipt. Safe to repeat: a second run deletes what came since."""
    with transaction.atomic():
        row = Erasure.objects.select_for_update().get(id=erasure_id)
        counts, head = _erase_rows(row.tenant_id)
        n_blobs, n_bytes = _erase_blobs(row.tenant_id)
        n_keys = _erase_cache(row.tenant_id)
        if row.receipt is None:
            row.done_at = timezone.now()
            row.receipt = sign(canonical_json(_statement(row, counts, head, n_blobs, n_bytes, n_keys)))
        elif row.done_at + SWEEP_AGAIN_AFTER <= timezone.now():
            row.swept_at = timezone.now()
            _log_leftovers(row, counts, n_blobs)
        row.save()
    return row


def erase_due(sign: Sign, *, limit: int = 5) -> int:
    """Erase what was asked for and is not done, and sweep again an hour later; return how many were run. Upkeep calls
    this."""
    now = timezone.now()
    waiting = Erasure.objects.filter(swept_at=None).order_by("requested_at")
    due = [row for row in waiting[:100] if row.done_at is None or row.done_at + SWEEP_AGAIN_AFTER <= now]
    for row in due[:limit]:
        erase(row.id, sign=sign)
    return len(due[:limit])


def statement_of(row: Erasure) -> dict[str, Any] | None:
    """Return what the receipt says; None while there is none."""
    return None if row.receipt is None else json.loads(base64.b64decode(row.receipt["payload"]))


def _erase_rows(tenant_id: UUID) -> tuple[dict[str, int], tuple[int, str]]:
    """Erase the rows; return how many went by table, and (lines, digest) of the audit log's end."""
    with tenant_scope(tenant_id), connection.cursor() as cursor:
        set_local("statement_timeout", str(LONGEST_MS))
        set_erasing(tenant_id)
        head = AuditHead.objects.of_tenant(tenant_id).first()
        counts: dict[str, int] = {}
        for model in [*owned_models(), *shared_models()]:
            if model is Erasure:
                continue
            table, column = model._meta.db_table, tenant_column(model)
            cursor.execute(f"DELETE FROM {table} WHERE {column} = %s", [tenant_id])
            counts[table] = cursor.rowcount
        cursor.execute("DELETE FROM compiles_outbox WHERE ids ->> 'tenant_id' = %s", [str(tenant_id)])
        counts["compiles_outbox"] = cursor.rowcount
        set_local("app.erase", "")
    return counts, (head.seq, head.sha256) if head else (0, audit.GENESIS)


def _erase_blobs(tenant_id: UUID) -> tuple[int, int]:
    require_store()  # or a disk that is away would be certified as empty
    folder = Path(settings.KOLM_BLOB_DIR) / str(tenant_id)
    files = [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
    n_bytes = sum(path.stat().st_size for path in files)
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        raise OSError(f"the folder of blobs could not be removed: {len(files)} files")
    return len(files), n_bytes


def _erase_cache(tenant_id: UUID) -> int:
    """Rate-limit buckets and the like: everything in Redis whose name has the tenant's id. Without Redis they expire by
    themselves within minutes."""
    try:
        client = redis.Redis.from_url(settings.REDIS_URL, socket_connect_timeout=1, socket_timeout=5)
        keys = list(client.scan_iter(match=f"*{tenant_id}*", count=1000))
        return int(client.delete(*keys)) if keys else 0
    except redis.RedisError as fault:
        logger.warning("redis was not asked for a deleted tenant's keys: %s", type(fault).__name__)
        return 0


def _statement(
    row: Erasure, counts: Mapping[str, int], head: tuple[int, str], n_blobs: int, n_bytes: int, n_keys: int
) -> dict[str, Any]:
    return {
        "object": "deletion_receipt",
        "id": encode_id(Prefix.ERASURE, row.id),
        "tenant": encode_id(Prefix.TENANT, row.tenant_id),
        "requested_by": f"usr_{row.user_id}",
        "requested_at": row.requested_at.isoformat(),
        "done_at": row.done_at.isoformat() if row.done_at else None,
        "rows": {table: n for table, n in sorted(counts.items()) if n},
        "n_rows": sum(counts.values()),
        "n_blobs": n_blobs,
        "blob_bytes": n_bytes,
        "n_cache_keys": n_keys,
        "audit_log": {"lines": head[0], "head_sha256": head[1]},
        "deployment": settings.KOLM_PUBLIC_URL,
    }


def _log_leftovers(row: Erasure, counts: Mapping[str, int], n_blobs: int) -> None:
    left = {table: n for table, n in counts.items() if n}
    if left or n_blobs:
        logger.warning("the second sweep of %s found %s and %d blobs", row.tenant_id, left, n_blobs)
