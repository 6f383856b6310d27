"""The settings that a team decided for itself: what is forgotten by age, and whether a second factor is demanded."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.utils import timezone

from backend.domain.errors import InvalidInput, Problem
from backend.tenants import audit
from backend.tenants.actors import Actor
from backend.tenants.models import RetentionDue, TeamSettings

MOST_DAYS = 3_650
SWEEP_EVERY = timedelta(hours=1)


def settings_of(tenant_id: UUID) -> TeamSettings:
    """The row, or one with the defaults that is not kept yet."""
    return TeamSettings.objects.of_tenant(tenant_id).first() or TeamSettings(tenant_id=tenant_id)


def change(tenant_id: UUID, *, actor: Actor, **changes: Any) -> TeamSettings:
    """Set `captures_days`, `candidates_days` (None: kept) and `is_mfa_required`. Raises InvalidInput."""
    for name in ("captures_days", "candidates_days"):
        days = changes.get(name)
        if days is not None and not 1 <= days <= MOST_DAYS:
            message = f"Set 1 to {MOST_DAYS} days, or none to keep them."
            raise InvalidInput(message, problems=(Problem(pointer=f"/{name}", message=message),))
    row, _ = TeamSettings.objects.select_for_update().get_or_create(tenant_id=tenant_id)
    changed = {name: value for name, value in changes.items() if getattr(row, name) != value}
    if not changed:
        return row
    before = {name: getattr(row, name) for name in changed}
    for name, value in changed.items():
        setattr(row, name, value)
    row.save(update_fields=list(changed))
    if {"captures_days", "candidates_days"} & set(changed):
        RetentionDue.objects.update_or_create(tenant_id=tenant_id, defaults={"due_at": timezone.now()})
    audit.note(tenant_id, actor=actor, action="settings.changed", data={"before": before, "after": changed})
    return row
