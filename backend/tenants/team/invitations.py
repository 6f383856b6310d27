"""Invitations: an e-mail that makes whoever owns its address a member.

The token stands in the e-mail's link alone, the database has its SHA-256. An invitation is looked up before its tenant
is known, by a policy like that of API keys: a transaction that names the hash of a token sees that row and no other.
The token by itself opens nothing: the person must be logged in with a verified address that the e-mail went to.
"""

import secrets
from datetime import timedelta
from hashlib import sha256
from uuid import UUID

from allauth.account.models import EmailAddress
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction
from django.utils import timezone

from backend.domain.errors import Conflict, Forbidden, InvalidInput, NotFound, Problem
from backend.domain.ids import Prefix, encode_id
from backend.domain.roles import Role, may_grant
from backend.tenants import audit
from backend.tenants.actors import Actor
from backend.tenants.isolation import set_local, tenant_scope
from backend.tenants.models import Invitation, Member
from backend.tenants.team.seats import take_seat

DAYS = 7
_TOKEN_BYTES = 32


def invite(tenant_id: UUID, email: str, role: Role, *, giver: Role, actor: Actor) -> tuple[Invitation, str]:
    """A new invitation and its token, which exists nowhere else from here on; an open one to the same address is
    revoked. Raises InvalidInput, Forbidden for a role above the giver's, Conflict for a member, PaymentRequired."""
    email = checked_email(email)
    if not may_grant(giver, role):
        raise Forbidden(f"Your role, {giver}, cannot invite an {role}; ask an owner.", code="missing_role")
    if Member.objects.of_tenant(tenant_id).filter(user__email__iexact=email).exists():
        raise Conflict(f"{email} is already a member of this team.", code="already_member")
    before = Invitation.objects.of_tenant(tenant_id).filter(email=email, accepted_at=None, revoked_at=None)
    before.update(revoked_at=timezone.now())
    take_seat(tenant_id, is_for_invitation=True)
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    row = Invitation.objects.create(
        tenant_id=tenant_id,
        email=email,
        role=role,
        token_hash=hash_of(token),
        invited_by=actor.label or actor.id,
        expires_at=timezone.now() + timedelta(days=DAYS),
    )
    data = {"email": email, "role": role.value}
    audit.note(tenant_id, actor=actor, action="invitation.created", target=public_id(row), data=data)
    return row, token


def find(tenant_id: UUID, invitation_id: UUID) -> Invitation:
    """Raises NotFound."""
    row = Invitation.objects.of_tenant(tenant_id).filter(id=invitation_id).first()
    if row is None:
        raise NotFound("There is no such invitation.")
    return row


def revoke(tenant_id: UUID, invitation_id: UUID, *, actor: Actor) -> Invitation:
    """Revoke an invitation: from this commit on its link opens nothing. A second call changes nothing. Raises NotFound,
    Conflict for one that was accepted."""
    opened = Invitation.objects.of_tenant(tenant_id).filter(id=invitation_id, accepted_at=None, revoked_at=None)
    is_revoked_now = opened.update(revoked_at=timezone.now()) == 1
    row = find(tenant_id, invitation_id)
    if row.accepted_at is not None:
        raise Conflict("This invitation was already accepted; remove the member instead.", code="invitation_accepted")
    if is_revoked_now:
        audit.note(
            tenant_id, actor=actor, action="invitation.revoked", target=public_id(row), data={"email": row.email}
        )
    return row


def look_up(token: str) -> Invitation | None:
    """The open invitation behind a token, whoever's it is; None for one that expired, was used or never was."""
    with transaction.atomic():
        set_local("app.invitation_hash", hash_of(token))
        row = Invitation.objects.filter(token_hash=hash_of(token)).first()
        set_local("app.invitation_hash", "")
    return row if row is not None and is_open(row) else None


def accept(token: str, *, user_id: int) -> Invitation:
    """Make the person a member. Raises NotFound for a token that opens nothing, Forbidden for a person whose verified
    addresses do not have the e-mail's, PaymentRequired when the plan has no seat left."""
    invitation = look_up(token)
    if invitation is None:
        raise NotFound("This invitation has expired, was revoked or was used already; ask for a new one.")
    owned = EmailAddress.objects.filter(user_id=user_id, verified=True).values_list("email", flat=True)
    if invitation.email not in {address.strip().lower() for address in owned}:
        raise Forbidden(
            f"This invitation was sent to {invitation.email}: log in with that address, or add it to your account and "
            "confirm it.",
            code="wrong_person",
        )
    with tenant_scope(invitation.tenant_id):
        return _accept(invitation, user_id)


def _accept(invitation: Invitation, user_id: int) -> Invitation:
    # the tenant's row before the invitation's, as inviting locks them
    is_member = Member.objects.of_tenant(invitation.tenant_id).filter(user_id=user_id).exists()
    if not is_member:
        take_seat(invitation.tenant_id, is_for_invitation=False)
    row = Invitation.objects.select_for_update().get(tenant_id=invitation.tenant_id, id=invitation.id)
    if not is_open(row):
        raise NotFound("This invitation was used or revoked a moment ago; ask for a new one.")
    row.accepted_at = timezone.now()
    row.save(update_fields=["accepted_at"])
    if not is_member:
        Member.objects.create(tenant_id=row.tenant_id, user_id=user_id, role=row.role)
    actor = Actor(kind="user", id=f"usr_{user_id}", label=row.email)
    data = {"email": row.email, "role": row.role}
    audit.note(row.tenant_id, actor=actor, action="invitation.accepted", target=public_id(row), data=data)
    return row


def is_open(row: Invitation) -> bool:
    return row.accepted_at is None and row.revoked_at is None and row.expires_at > timezone.now()


def status_of(row: Invitation) -> str:
    if row.accepted_at is not None:
        return "accepted"
    if row.revoked_at is not None:
        return "revoked"
    return "open" if is_open(row) else "expired"


def checked_email(email: str) -> str:
    """The address as it is kept: lower case. Raises InvalidInput."""
    email = email.strip().lower()
    try:
        validate_email(email)
    except ValidationError:
        message = f"{email[:100]!r} is not an e-mail address."
        raise InvalidInput(
            message, code="invalid_request", problems=(Problem(pointer="/email", message=message),)
        ) from None
    return email


def public_id(row: Invitation) -> str:
    return encode_id(Prefix.INVITATION, row.id)


def hash_of(token: str) -> str:
    return sha256(token.encode()).hexdigest()
