"""Answers about members, invitations and the audit log."""

from rest_framework import serializers as s

from backend.domain.ids import Prefix
from backend.domain.roles import Role
from backend.rest.shapes import Constant, PublicId, Shape, Time
from backend.tenants.models import AuditEntry, Invitation, Member
from backend.tenants.team.invitations import status_of

ROLES = [role.value for role in Role]
STATUSES = ["open", "accepted", "revoked", "expired"]


class MemberShape(Shape[Member]):
    object = Constant("member")
    id = PublicId(Prefix.MEMBER)
    email = s.CharField(source="user.email")
    role = s.ChoiceField(ROLES)
    created_at = Time()


class InvitationShape(Shape[Invitation]):
    object = Constant("invitation")
    id = PublicId(Prefix.INVITATION)
    email = s.CharField()
    role = s.ChoiceField(ROLES)
    status = s.ChoiceField(STATUSES)
    invited_by = s.CharField()
    created_at = Time()
    expires_at = Time()
    accepted_at = Time(allow_null=True)

    def get_status(self, row: Invitation) -> str:
        return status_of(row)


class ActorShape(Shape[AuditEntry]):
    kind = s.ChoiceField(["user", "api_key", "system"], source="actor_kind")
    id = s.CharField(source="actor_id", help_text="Empty for kolm itself.")
    label = s.CharField(source="actor_label", help_text="An e-mail address, for people.")


class AuditEntryShape(Shape[AuditEntry]):
    object = Constant("audit_entry")
    id = PublicId(Prefix.AUDIT_ENTRY)
    seq = s.IntegerField(help_text="1, 2, 3 ... without gaps.")
    at = s.DateTimeField()
    actor = ActorShape(source="*")
    action = s.CharField()
    target = s.CharField(help_text="A public id, or empty.")
    data = s.DictField()
    prev_sha256 = s.CharField(help_text="Of the line before; 64 zeros before the first.")
    sha256 = s.CharField(help_text="Over this line's content and `prev_sha256`, as docs/accounts.md says.")

    def get_at(self, row: AuditEntry) -> str:
        """The time to the microsecond, as the digest has it."""
        return row.created_at.isoformat(timespec="microseconds").replace("+00:00", "Z")
