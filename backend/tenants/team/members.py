"""The people of a team: who they are, which role they have, who may change that.

The rules hold wherever the request came from: nobody gives or takes a role above his own, and a team keeps an owner.
"""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from backend.domain.errors import Conflict, Forbidden, InvalidInput, NotFound, Problem
from backend.domain.ids import Prefix, encode_id
from backend.domain.roles import Role, may_grant
from backend.rest.new_ids import new_uuid7
from backend.tenants import audit
from backend.tenants.actors import Actor
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Member, Tenant

MOST_NAME = 100
KEYS_ROLE = Role.ADMIN  # what an API key with team:write may do: all but make and unmake owners


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """A member as others see him."""

    member_id: UUID
    user_id: int
    email: str
    role: Role
    since: datetime


def create_team(name: str, *, user_id: int, actor: Actor) -> Tenant:
    """Create a tenant with its first owner. Raises InvalidInput."""
    tenant = Tenant(id=new_uuid7(), name=checked_name(name))
    with tenant_scope(tenant.id):
        tenant.save(force_insert=True)
        Member.objects.create(tenant_id=tenant.id, user_id=user_id, role=Role.OWNER)
        target = encode_id(Prefix.TENANT, tenant.id)
        audit.note(tenant.id, actor=actor, action="tenant.created", target=target, data={"name": tenant.name})
    return tenant


def rename(tenant_id: UUID, name: str, *, actor: Actor) -> None:
    """Raises InvalidInput."""
    tenant = Tenant.objects.select_for_update().get(id=tenant_id)
    before, tenant.name = tenant.name, checked_name(name)
    if before == tenant.name:
        return
    tenant.save(update_fields=["name"])
    target = encode_id(Prefix.TENANT, tenant_id)
    data = {"before": before, "after": tenant.name}
    audit.note(tenant_id, actor=actor, action="tenant.renamed", target=target, data=data)


def checked_name(name: str) -> str:
    """A team's name without what surrounds it. Raises InvalidInput."""
    name = " ".join(name.split())
    if not name or len(name) > MOST_NAME or "\x00" in name:
        message = f"A team's name has 1 to {MOST_NAME} characters."
        raise InvalidInput(message, code="invalid_request", problems=(Problem(pointer="/name", message=message),))
    return name


def people_of(tenant_id: UUID) -> list[Person]:
    """Owners first, then by the time they came."""
    rows = Member.objects.of_tenant(tenant_id).select_related("user").order_by("created_at", "id")
    order = list(Role)
    return sorted((person_of(row) for row in rows), key=lambda person: order.index(person.role))


def person_of(row: Member) -> Person:
    return Person(
        member_id=row.id, user_id=row.user_id, email=row.user.email, role=Role(row.role), since=row.created_at
    )


def find_member(tenant_id: UUID, member_id: UUID) -> Member:
    """Raises NotFound."""
    row = Member.objects.of_tenant(tenant_id).select_related("user").filter(id=member_id).first()
    if row is None:
        raise NotFound("There is no such member.")
    return row


def change_role(tenant_id: UUID, member_id: UUID, role: Role, *, giver: Role, actor: Actor) -> Member:
    """`giver` is the role of who asks. Raises NotFound, Forbidden for a role above the giver's, Conflict for the last
    owner."""
    owners = _locked_owners(tenant_id)
    row = find_member(tenant_id, member_id)
    before = Role(row.role)
    _check_may(giver, before)
    _check_may(giver, role)
    if before == role:
        return row
    if before == Role.OWNER:
        _check_not_last(owners, row)
    row.role = role
    row.save(update_fields=["role"])
    data = {"email": row.user.email, "before": before.value, "after": role.value}
    audit.note(tenant_id, actor=actor, action="member.role_changed", target=_public(row), data=data)
    return row


def remove(tenant_id: UUID, member_id: UUID, *, giver: Role | None, actor: Actor) -> None:
    """Remove a member: from this commit on the person sees nothing of the team. `giver` None: a person leaves by
    himself. Raises as `change_role`."""
    owners = _locked_owners(tenant_id)
    row = find_member(tenant_id, member_id)
    if giver is not None:
        _check_may(giver, Role(row.role))
    if row.role == Role.OWNER:
        _check_not_last(owners, row)
    public, data = _public(row), {"email": row.user.email, "role": str(row.role)}
    row.delete()
    action = "member.left" if giver is None else "member.removed"
    audit.note(tenant_id, actor=actor, action=action, target=public, data=data)


def _locked_owners(tenant_id: UUID) -> set[UUID]:
    """Two owners who unmake each other at once wait here, so that one of them stays."""
    rows = Member.objects.of_tenant(tenant_id).filter(role=Role.OWNER).order_by("id").select_for_update()
    return {row.id for row in rows}


def _check_may(giver: Role, role: Role) -> None:
    if not may_grant(giver, role):
        raise Forbidden(f"Your role, {giver}, cannot grant or remove {role}; ask an owner.", code="missing_role")


def _check_not_last(owners: set[UUID], row: Member) -> None:
    if owners <= {row.id}:
        raise Conflict(
            "This is the team's last owner: make somebody else an owner first, or delete the team.", code="last_owner"
        )


def _public(row: Member) -> str:
    return encode_id(Prefix.MEMBER, row.id)
