"""Two books that disagree, or a payment that fits no plan: written down for a person. Nothing here mends anything."""

import json
import logging
from typing import Any
from uuid import UUID

from django.db import connection
from django.utils import timezone

from backend.billing.models import INCIDENT, Incident
from backend.tenants.sealing import seal, unseal

log = logging.getLogger("kolm.billing")


def open_incident(kind: str, subject: str, *, tenant_id: UUID | None = None, **detail: Any) -> None:
    """Open an incident, or count it as seen again. `subject` names what it is about by ids and times; figures go into
    `detail`, which is sealed for the tenant."""
    sealed = seal(tenant_id, json.dumps(detail, default=str).encode(), purpose=INCIDENT) if tenant_id else b""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO billing_incident (key, kind, tenant_id, subject, detail, n_seen)"
            " VALUES (%s, %s, %s, %s, %s, 1) ON CONFLICT (key) DO UPDATE SET"
            " n_seen = billing_incident.n_seen + 1, seen_at = now(), resolved_at = NULL, detail = excluded.detail",
            [f"{kind}:{tenant_id or '-'}:{subject}"[:255], kind, tenant_id, subject[:255], sealed],
        )
    log.error("incident %s: %s", kind, subject)


def open_ones(tenant_id: UUID | None = None) -> list[Incident]:
    """Incidents that nobody has resolved, oldest first."""
    rows = Incident.objects.filter(resolved_at=None).order_by("opened_at")
    return list(rows if tenant_id is None else rows.filter(tenant_id=tenant_id))


def detail_of(incident: Incident) -> dict[str, Any]:
    if incident.tenant_id is None or not incident.detail:
        return {}
    detail: dict[str, Any] = json.loads(unseal(incident.tenant_id, bytes(incident.detail), purpose=INCIDENT))
    return detail


def resolve(incident: Incident) -> None:
    """A person has looked into it."""
    incident.resolved_at = timezone.now()
    incident.save(update_fields=["resolved_at"])
