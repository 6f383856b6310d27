"""Customers' own keys for teachers: stored sealed, deleted, never shown again."""

from uuid import UUID

from backend.compiles.models import TEACHER_KEY, TeacherKey
from backend.domain.dialects.pasted_keys import key_problem
from backend.domain.errors import InvalidInput, NotFound, Problem
from backend.domain.ids import Prefix, encode_id
from backend.tenants import audit
from backend.tenants.actors import Actor
from backend.tenants.sealing import seal


def store(tenant_id: UUID, *, name: str, secret: str, actor: Actor) -> TeacherKey:
    """Seal a key for the worker that will call the teacher; its last four characters tell keys apart. Raises
    InvalidInput for what can be no key."""
    if (wrong := key_problem(secret)) is not None:
        problem = Problem(pointer="/secret", message=f"The key {wrong}.", code="bad_key")
        raise InvalidInput(problem.message, code="bad_key", problems=(problem,))
    row = TeacherKey.objects.create(
        tenant_id=tenant_id,
        name=name,
        sealed=seal(tenant_id, secret.encode(), purpose=TEACHER_KEY),
        last4=secret[-4:] if len(secret) >= 12 else "",
    )
    target = encode_id(Prefix.TEACHER_KEY, row.id)
    audit.note(tenant_id, actor=actor, action="teacher_key.stored", target=target, data={"name": name})
    return row


def find(tenant_id: UUID, key_id: UUID) -> TeacherKey:
    """Raises NotFound."""
    row = TeacherKey.objects.of_tenant(tenant_id).filter(id=key_id).first()
    if row is None:
        raise NotFound("There is no such teacher key.")
    return row


def delete(tenant_id: UUID, key_id: UUID, *, actor: Actor) -> None:
    """Compiles that still need it end as failed and say so. Raises NotFound."""
    row = find(tenant_id, key_id)
    row.delete()
    target = encode_id(Prefix.TEACHER_KEY, key_id)
    audit.note(tenant_id, actor=actor, action="teacher_key.deleted", target=target, data={"name": row.name})
