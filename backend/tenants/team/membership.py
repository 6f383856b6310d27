"""The tenants that a person belongs to, and as what."""

from dataclasses import dataclass
from uuid import UUID

from django.db import transaction

from backend.domain.roles import Role
from backend.tenants.isolation import set_local, set_user, tenant_scope
from backend.tenants.models import Member, Tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    tenant_id: UUID
    tenant_name: str
    member_id: UUID
    role: Role


def memberships_of(user_id: int) -> list[Membership]:
    """The person's tenants, oldest membership first."""
    with transaction.atomic():
        set_user(user_id)
        rows = list(Member.objects.filter(user_id=user_id).order_by("created_at", "id"))
        set_local("app.user", "")
    memberships = []
    for row in rows:
        with tenant_scope(row.tenant_id):
            name = Tenant.objects.values_list("name", flat=True).get(id=row.tenant_id)
        memberships.append(Membership(tenant_id=row.tenant_id, tenant_name=name, member_id=row.id, role=Role(row.role)))
    return memberships
