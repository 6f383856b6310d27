"""The audit log: what people and keys changed, append-only and hash-chained per tenant.

Each line's digest covers the line itself and the digest before it, so that a line cannot be changed, dropped or put in
between without every later digest changing. The database refuses updates and deletes; `verify_chain` finds what was
done to the table by somebody who got around the database. Who can rewrite the whole table and the head can make a new
chain that holds: whoever wants to rule that out keeps the head's digest (the export ends with it) somewhere else.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.utils import timezone

from backend.domain.canonical import sha256_of
from backend.domain.ids import Prefix, encode_id
from backend.tenants.actors import Actor
from backend.tenants.models import AuditEntry, AuditHead

GENESIS = "0" * 64  # what the first line follows
MOST_PROBLEMS = 20


def note(tenant_id: UUID, *, actor: Actor, action: str, target: str = "", data: dict[str, Any] | None = None) -> None:
    """Append one entry in the caller's transaction. `action` is `noun.verb` (`api_key.created`), `target` a public id.
    `data` holds no secrets and no floats. The log's head stays locked until the transaction ends: call it last."""
    head = _locked_head(tenant_id)
    entry = AuditEntry(
        tenant_id=tenant_id,
        seq=head.seq + 1,
        created_at=timezone.now(),
        actor_kind=actor.kind,
        actor_id=actor.id[:64],
        actor_label=actor.label[:254],
        action=action,
        target=target[:100],
        data=data or {},
        prev_sha256=head.sha256,
    )
    entry.sha256 = digest_of(entry)
    entry.save(force_insert=True)
    head.seq, head.sha256 = entry.seq, entry.sha256
    head.save(update_fields=["seq", "sha256"])


def digest_of(entry: AuditEntry) -> str:
    """SHA-256 over the canonical JSON of everything in the line but its own digest."""
    return sha256_of(content_of(entry))


def content_of(entry: AuditEntry) -> dict[str, Any]:
    """Return what a line's digest covers; the export holds it too, so that anybody can compute the chain again."""
    return {
        "tenant": encode_id(Prefix.TENANT, entry.tenant_id),
        "seq": entry.seq,
        "at": _micros(entry.created_at),
        "actor": {"kind": entry.actor_kind, "id": entry.actor_id, "label": entry.actor_label},
        "action": entry.action,
        "target": entry.target,
        "data": entry.data,
        "prev_sha256": entry.prev_sha256,
    }


def verify_chain(tenant_id: UUID) -> list[str]:
    """Return what is wrong with the log, at most twenty sentences; empty when every digest and the head agree."""
    problems: list[str] = []
    seq, digest = 0, GENESIS
    for entry in AuditEntry.objects.of_tenant(tenant_id).order_by("seq").iterator(chunk_size=1000):
        problems += _problems_of(entry, seq, digest)
        if len(problems) >= MOST_PROBLEMS:
            return problems[:MOST_PROBLEMS]
        seq, digest = entry.seq, entry.sha256
    head = AuditHead.objects.of_tenant(tenant_id).first()
    at_head = (head.seq, head.sha256) if head else (0, GENESIS)
    if at_head != (seq, digest):
        problems.append(f"The log ends at line {seq}, but its head says {at_head[0]}: lines are missing at the end.")
    return problems


def export_lines(tenant_id: UUID) -> Iterator[dict[str, Any]]:
    """Every line, oldest first, with the digests that prove their order."""
    for entry in AuditEntry.objects.of_tenant(tenant_id).order_by("seq").iterator(chunk_size=1000):
        yield content_of(entry) | {"sha256": entry.sha256}


def _problems_of(entry: AuditEntry, seq: int, digest: str) -> Iterator[str]:
    if entry.seq != seq + 1:
        yield f"Between line {seq} and line {entry.seq} lines are missing."
    if entry.prev_sha256 != digest:
        yield f"Line {entry.seq} does not follow the digest of the line before it."
    if digest_of(entry) != entry.sha256:
        yield f"Line {entry.seq} was changed: its content does not have its digest."


def _locked_head(tenant_id: UUID) -> AuditHead:
    heads = AuditHead.objects.of_tenant(tenant_id).select_for_update()
    head = heads.first()
    if head is None:
        AuditHead.objects.bulk_create([AuditHead(tenant_id=tenant_id, sha256=GENESIS)], ignore_conflicts=True)
        head = heads.get()
    return head


def _micros(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
