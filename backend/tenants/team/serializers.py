"""The public shapes of members, invitations and the audit log."""

from typing import Any

from rest_framework import serializers

from backend.domain.ids import Prefix, encode_id
from backend.domain.roles import Role
from backend.rest.strict import StrictSerializer
from backend.rest.times import rfc3339
from backend.tenants.models import AuditEntry, Invitation, Member
from backend.tenants.team.invitations import status_of

ROLES = [role.value for role in Role]
STATUSES = ["open", "accepted", "revoked", "expired"]


class MemberChange(StrictSerializer):
    role = serializers.ChoiceField(choices=ROLES)


class NewInvitation(StrictSerializer):
    email = serializers.CharField(max_length=254)
    role = serializers.ChoiceField(choices=ROLES)


class MemberShape(serializers.Serializer[Any]):
    object = serializers.ChoiceField(["member"])
    id = serializers.CharField()
    email = serializers.CharField()
    role = serializers.ChoiceField(ROLES)
    created_at = serializers.DateTimeField()


class InvitationShape(serializers.Serializer[Any]):
    object = serializers.ChoiceField(["invitation"])
    id = serializers.CharField()
    email = serializers.CharField()
    role = serializers.ChoiceField(ROLES)
    status = serializers.ChoiceField(STATUSES)
    invited_by = serializers.CharField()
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()
    accepted_at = serializers.DateTimeField(allow_null=True)


class ActorShape(serializers.Serializer[Any]):
    kind = serializers.ChoiceField(["user", "api_key", "system"])
    id = serializers.CharField(help_text="Empty for kolm itself.")
    label = serializers.CharField(help_text="An e-mail address, for people.")


class AuditEntryShape(serializers.Serializer[Any]):
    object = serializers.ChoiceField(["audit_entry"])
    id = serializers.CharField()
    seq = serializers.IntegerField(help_text="1, 2, 3 ... without gaps.")
    at = serializers.DateTimeField()
    actor = ActorShape()
    action = serializers.CharField()
    target = serializers.CharField(help_text="A public id, or empty.")
    data = serializers.DictField()
    prev_sha256 = serializers.CharField(help_text="Of the line before; 64 zeros before the first.")
    sha256 = serializers.CharField(help_text="Over this line's content and `prev_sha256`, as docs/accounts.md says.")


def render_member(row: Member) -> dict[str, Any]:
    return {
        "object": "member",
        "id": encode_id(Prefix.MEMBER, row.id),
        "email": row.user.email,
        "role": row.role,
        "created_at": rfc3339(row.created_at),
    }


def render_invitation(row: Invitation) -> dict[str, Any]:
    return {
        "object": "invitation",
        "id": encode_id(Prefix.INVITATION, row.id),
        "email": row.email,
        "role": row.role,
        "status": status_of(row),
        "invited_by": row.invited_by,
        "created_at": rfc3339(row.created_at),
        "expires_at": rfc3339(row.expires_at),
        "accepted_at": rfc3339(row.accepted_at),
    }


def render_audit_entry(row: AuditEntry) -> dict[str, Any]:
    return {
        "object": "audit_entry",
        "id": encode_id(Prefix.AUDIT_ENTRY, row.id),
        "seq": row.seq,
        "at": row.created_at.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "actor": {"kind": row.actor_kind, "id": row.actor_id, "label": row.actor_label},
        "action": row.action,
        "target": row.target,
        "data": row.data,
        "prev_sha256": row.prev_sha256,
        "sha256": row.sha256,
    }
