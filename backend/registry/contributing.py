"""A tenant's part in the registry: contributing what its answers have of structure, and taking it back.

Before a row is written it has lost everything that is not structure (`domain.recipes.registry.structural`), and its
counts, compile and task with it.
"""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.db import connection
from django.utils import timezone

from backend.domain.recipes.registry.contributed import MAX_STRUCTURES
from backend.domain.recipes.registry.structural import Structure, structural
from backend.domain.recipes.shapes import SHAPE_VERSION
from backend.registry.models import Contribution, Withdrawal
from backend.tenants import audit
from backend.tenants.actors import Actor
from backend.tenants.isolation import tenant_scope

MAX_OF_A_TENANT = MAX_STRUCTURES


def contribute(tenant_id: UUID, structures: Sequence[Structure], *, submitted_at: datetime) -> int:
    """Put what a compile's answers have in common (`structures_of`) into the registry; how many entries it was.
    `submitted_at` is when the spec that opted in was: before a withdrawal it counts for nothing. What is not structure
    is left out, whoever says that it is."""
    entries = [one for one in structures if structural(one.shape, one.run) == one][:MAX_OF_A_TENANT]
    with tenant_scope(tenant_id):
        _one_at_a_time(tenant_id)
        if Withdrawal.objects.of_tenant(tenant_id).filter(at__gte=submitted_at).exists():
            return 0
        rows = [
            Contribution(tenant_id=tenant_id, shape_version=SHAPE_VERSION, shape=one.shape, run=one.run)
            for one in sorted(set(entries))
        ]
        Contribution.objects.bulk_create(
            rows,
            update_conflicts=True,
            update_fields=["seen_at"],
            unique_fields=["tenant_id", "shape_version", "shape", "run"],
        )
        _drop_oldest(tenant_id)
    return len(rows)


def withdraw(tenant_id: UUID, *, actor: Actor) -> int:
    """Take everything back, at once here and with the next epoch everywhere; how many entries it was. A spec that is
    submitted later and opts in begins anew."""
    with tenant_scope(tenant_id):
        _one_at_a_time(tenant_id)
        n_gone, _ = Contribution.objects.of_tenant(tenant_id).delete()
        Withdrawal.objects.update_or_create(tenant_id=tenant_id, defaults={"at": timezone.now()})
        audit.note(tenant_id, actor=actor, action="registry.withdrawn", data={"n_entries": n_gone})
    return n_gone


def _one_at_a_time(tenant_id: UUID) -> None:
    """Lock the tenant's contributions until the transaction ends: a compile that ends while its tenant withdraws leaves
    nothing behind."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"registry {tenant_id}"])


def _drop_oldest(tenant_id: UUID) -> None:
    """No tenant has more than its part of the table."""
    mine = Contribution.objects.of_tenant(tenant_id)
    extra = mine.order_by("-seen_at", "-id").values_list("id", flat=True)[MAX_OF_A_TENANT:]
    mine.filter(id__in=list(extra)).delete()
