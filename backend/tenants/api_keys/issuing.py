"""Issue and revoke API keys."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.utils import timezone

from backend.domain.cost_tags import check_tags
from backend.domain.errors import InvalidInput, NotFound, Problem
from backend.domain.ids import Prefix, encode_id
from backend.tenants import audit
from backend.tenants.actors import SYSTEM, Actor
from backend.tenants.api_keys.key_format import hash_of, new_key
from backend.tenants.models import ApiKey
from backend.tenants.permissions import ALL_SCOPES

MAX_LIFETIME = timedelta(days=3650)


def issue(
    tenant_id: UUID,
    *,
    name: str,
    scopes: Sequence[str],
    is_live: bool = True,
    expires_at: datetime | None = None,
    tags: Mapping[str, str] | None = None,
    actor: Actor = SYSTEM,
) -> tuple[ApiKey, str]:
    """A new key's row and its secret, which exists nowhere else from here on. Raises InvalidInput."""
    unknown = sorted(set(scopes) - set(ALL_SCOPES))
    if unknown:
        raise _invalid("scopes", f"There is no scope {unknown[0]!r}; there are {', '.join(ALL_SCOPES)}.")
    if expires_at is not None and not timezone.now() < expires_at <= timezone.now() + MAX_LIFETIME:
        raise _invalid("expires_at", "`expires_at` must lie in the future, and within ten years.")
    secret = new_key(is_live=is_live)
    row = ApiKey.objects.create(
        tenant_id=tenant_id,
        name=name,
        key_hash=hash_of(secret),
        prefix=secret[: len("sk_live_") + 4],
        last4=secret[-4:],
        is_live=is_live,
        scopes=sorted(set(scopes)),
        expires_at=expires_at,
        tags=check_tags(tags or {}),
    )
    _note(row, actor, "api_key.created", {"name": name, "scopes": row.scopes, "live": is_live, "tags": row.tags})
    return row, secret


def find(tenant_id: UUID, key_id: UUID) -> ApiKey:
    """Raises NotFound."""
    row = ApiKey.objects.of_tenant(tenant_id).filter(id=key_id).first()
    if row is None:
        raise NotFound("There is no such API key.")
    return row


def set_tags(tenant_id: UUID, key_id: UUID, tags: Mapping[str, str], *, actor: Actor = SYSTEM) -> ApiKey:
    """Replace a key's cost tags: what is used with it from this commit on is booked under them, and nothing of before
    changes. Raises NotFound, InvalidInput (`bad_tags`)."""
    row = find(tenant_id, key_id)
    before, row.tags = row.tags, check_tags(tags)
    row.save(update_fields=["tags"])
    _note(row, actor, "api_key.tagged", {"name": row.name, "from": before, "to": row.tags})
    return row


def revoke(tenant_id: UUID, key_id: UUID, *, actor: Actor = SYSTEM) -> ApiKey:
    """Revoke a key: from this commit on it opens nothing. A second call changes nothing. Raises NotFound."""
    open_keys = ApiKey.objects.of_tenant(tenant_id).filter(id=key_id, revoked_at=None)
    is_revoked_now = open_keys.update(revoked_at=timezone.now()) == 1
    row = find(tenant_id, key_id)
    if is_revoked_now:
        _note(row, actor, "api_key.revoked", {"name": row.name})
    return row


def _note(row: ApiKey, actor: Actor, action: str, data: dict[str, Any]) -> None:
    audit.note(row.tenant_id, actor=actor, action=action, target=encode_id(Prefix.API_KEY, row.id), data=data)


def _invalid(field: str, message: str) -> InvalidInput:
    return InvalidInput(message, code="invalid_request", problems=(Problem(pointer=f"/{field}", message=message),))
