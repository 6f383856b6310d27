"""/v1/members, /v1/invitations and /v1/audit_log. A key does what an admin may: it neither makes nor unmakes owners."""

from typing import ClassVar

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers as s
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backend.domain.ids import Prefix, decode_id
from backend.domain.roles import Role
from backend.rest.pagination import PAGE_PARAMETERS, list_page, page_schema
from backend.rest.strict import StrictSerializer, check_query
from backend.tenants.api_keys.authentication import Caller, IsTenant
from backend.tenants.idempotency import IDEMPOTENCY_KEY, idempotent
from backend.tenants.models import AuditEntry, Invitation, Member
from backend.tenants.permissions import HasScope
from backend.tenants.team import invitations, members
from backend.tenants.team.email import send_invitation
from backend.tenants.team.shapes import ROLES, AuditEntryShape, InvitationShape, MemberShape

TEAM: list[type[BasePermission]] = [IsTenant, HasScope("team")]
AUDIT_FILTERS = ("action", "actor", "target")


class MemberChange(StrictSerializer):
    role = s.ChoiceField(choices=ROLES)


class NewInvitation(StrictSerializer):
    email = s.CharField(max_length=254)
    role = s.ChoiceField(choices=ROLES)


class MembersView(APIView):
    permission_classes = TEAM

    @extend_schema(
        operation_id="members_list", parameters=PAGE_PARAMETERS, responses=page_schema("MemberList", MemberShape())
    )
    def get(self, request: Request) -> Response:
        """The people of the team, newest first."""
        rows = Member.objects.of_tenant(request.auth.tenant_id).select_related("user")
        return list_page(request, rows, prefix=Prefix.MEMBER, render=MemberShape.of)


class MemberView(APIView):
    permission_classes = TEAM

    @extend_schema(operation_id="members_get", responses=MemberShape)
    def get(self, request: Request, member: str) -> Response:
        """One member."""
        check_query(request.query_params, [])
        return Response(MemberShape.of(members.find_member(request.auth.tenant_id, decode_id(Prefix.MEMBER, member))))

    @extend_schema(operation_id="members_update", request=MemberChange, responses=MemberShape)
    def patch(self, request: Request, member: str) -> Response:
        """Give a member another role. Owners are made and unmade by owners, in the console."""
        caller: Caller = request.auth
        member_id = decode_id(Prefix.MEMBER, member)
        members.find_member(caller.tenant_id, member_id)
        form = MemberChange(data=request.data)
        form.is_valid(raise_exception=True)
        role = Role(form.validated_data["role"])
        row = members.change_role(caller.tenant_id, member_id, role, giver=members.KEYS_ROLE, actor=caller.actor)
        return Response(MemberShape.of(row))

    @extend_schema(operation_id="members_delete", responses={204: None})
    def delete(self, request: Request, member: str) -> HttpResponse:
        """Remove a member: from now on the person sees nothing of the team."""
        caller: Caller = request.auth
        member_id = decode_id(Prefix.MEMBER, member)
        members.remove(caller.tenant_id, member_id, giver=members.KEYS_ROLE, actor=caller.actor)
        return HttpResponse(status=204)


class InvitationsView(APIView):
    permission_classes = TEAM

    @extend_schema(
        operation_id="invitations_list",
        parameters=PAGE_PARAMETERS,
        responses=page_schema("InvitationList", InvitationShape()),
    )
    def get(self, request: Request) -> Response:
        """All invitations, accepted and expired ones too."""
        rows = Invitation.objects.of_tenant(request.auth.tenant_id)
        return list_page(request, rows, prefix=Prefix.INVITATION, render=InvitationShape.of)

    @extend_schema(
        operation_id="invitations_create",
        parameters=[IDEMPOTENCY_KEY],
        request=NewInvitation,
        responses={201: InvitationShape},
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Invite a person by e-mail. The link in the e-mail works for seven days, for whoever has confirmed that
        address. An open invitation to the same address is revoked."""
        caller: Caller = request.auth
        form = NewInvitation(data=request.data)
        form.is_valid(raise_exception=True)
        email, role = form.validated_data["email"], Role(form.validated_data["role"])
        row, token = invitations.invite(caller.tenant_id, email, role, giver=members.KEYS_ROLE, actor=caller.actor)
        send_invitation(row, token)
        return Response(InvitationShape.of(row), status=201)


class RevokeInvitationView(APIView):
    permission_classes = TEAM

    @extend_schema(
        operation_id="invitations_revoke", parameters=[IDEMPOTENCY_KEY], request=None, responses=InvitationShape
    )
    @idempotent
    def post(self, request: Request, invitation: str) -> Response:
        """The link in the e-mail opens nothing from now on. Revoking it again changes nothing."""
        caller: Caller = request.auth
        row = invitations.revoke(caller.tenant_id, decode_id(Prefix.INVITATION, invitation), actor=caller.actor)
        return Response(InvitationShape.of(row))


class AuditLogView(APIView):
    permission_classes: ClassVar = [IsTenant, HasScope("audit:read")]

    @extend_schema(
        operation_id="audit_log_list",
        parameters=[
            *PAGE_PARAMETERS,
            OpenApiParameter("action", OpenApiTypes.STR, description="`api_key.created`, or `api_key` for all of it."),
            OpenApiParameter("actor", OpenApiTypes.STR, description="The id of a person or an API key."),
            OpenApiParameter("target", OpenApiTypes.STR, description="The id of what was changed."),
        ],
        responses=page_schema("AuditLog", AuditEntryShape()),
    )
    def get(self, request: Request) -> Response:
        """List what people and keys changed, newest first. Each line's digest covers the one before."""
        rows = AuditEntry.objects.of_tenant(request.auth.tenant_id)
        query = request.query_params
        if action := query.get("action"):
            rows = rows.filter(**({"action": action} if "." in action else {"action__startswith": f"{action}."}))
        if actor := query.get("actor"):
            rows = rows.filter(actor_id=actor)
        if target := query.get("target"):
            rows = rows.filter(target=target)
        return list_page(request, rows, prefix=Prefix.AUDIT_ENTRY, render=AuditEntryShape.of, filters=AUDIT_FILTERS)
