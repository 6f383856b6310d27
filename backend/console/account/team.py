"""The team page: people, their roles, invitations."""

from typing import Any

from django.contrib import messages
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_POST

from backend.console.access import page, person_of, person_page
from backend.domain.errors import CustomerError, Forbidden, InvalidInput, NotFound
from backend.domain.ids import Prefix, decode_id, encode_id
from backend.domain.roles import ALLOWED, Permission, Role, may_grant
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Invitation, Member
from backend.tenants.team import invitations, members
from backend.tenants.team.email import send_invitation
from backend.tenants.team.seats import plan_of

MEANS = {
    Permission.VIEW: "see compiles, artifacts, drafts and data",
    Permission.COMPILE: "start and stop compiles",
    Permission.RELEASE: "revoke artifacts, purge drafts",
    Permission.KEYS: "API keys and teacher keys",
    Permission.WEBHOOKS: "webhooks",
    Permission.BILLS_READ: "see usage and bills",
    Permission.BILLS_WRITE: "plan, payment, budgets",
    Permission.TEAM: "invite and remove people",
    Permission.AUDIT: "read the audit log",
    Permission.SETTINGS: "retention, login rules",
    Permission.OWN: "appoint owners, export everything, delete the team",
}


@require_GET
@page(Permission.TEAM)
def team_page(request: Any) -> HttpResponse:
    return _render(request)


@require_POST
@page(Permission.TEAM)
def invite(request: Any) -> HttpResponse:
    session = request.team_session
    try:
        role, email = _role(request.POST.get("role", "")), request.POST.get("email", "")
        with transaction.atomic():
            row, token = invitations.invite(session.tenant_id, email, role, giver=session.role, actor=session.actor)
    except Forbidden:
        raise
    except CustomerError as fault:
        return _render(request, error=fault.message, email=request.POST.get("email", "")[:254], status=422)
    link = send_invitation(row, token)
    return _render(request, invited=row, link=link)


@require_POST
@page(Permission.TEAM)
def revoke_invitation(request: Any, invitation: str) -> HttpResponse:
    row = invitations.revoke(
        request.team_session.tenant_id, decode_id(Prefix.INVITATION, invitation), actor=request.team_session.actor
    )
    messages.success(request, f"The invitation to {row.email} is revoked.")
    return redirect("console:team")


@require_POST
@page(Permission.TEAM)
def change_role(request: Any, member: str) -> HttpResponse:
    session = request.team_session
    role = _role(request.POST.get("role", ""))
    member_id = decode_id(Prefix.MEMBER, member)
    row = members.change_role(session.tenant_id, member_id, role, giver=session.role, actor=session.actor)
    messages.success(request, f"{row.user.email} is now {row.role}.")
    return redirect("console:team")


@require_POST
@page(Permission.TEAM)
def remove_member(request: Any, member: str) -> HttpResponse:
    session = request.team_session
    row = members.find_member(session.tenant_id, decode_id(Prefix.MEMBER, member))
    members.remove(session.tenant_id, row.id, giver=session.role, actor=session.actor)
    messages.success(request, f"{row.user.email} is no longer in the team.")
    return redirect("console:overview" if row.user_id == session.user_id else "console:team")


@require_POST
@person_page
def leave(request: Any, tenant: str) -> HttpResponse:
    """Leave a team, in whatever role."""
    tenant_id = decode_id(Prefix.TENANT, tenant)
    with tenant_scope(tenant_id):
        row = Member.objects.of_tenant(tenant_id).filter(user_id=request.user.pk).first()
        if row is None:
            raise NotFound("There is no such team.")
        members.remove(tenant_id, row.id, giver=None, actor=person_of(request))
    messages.success(request, "You have left the team.")
    return redirect("console:overview")


def _render(request: Any, *, status: int = 200, **more: Any) -> HttpResponse:
    session = request.team_session
    people = [
        {
            "public_id": encode_id(Prefix.MEMBER, p.member_id),
            "person": p,
            "may_change": may_grant(session.role, p.role),
        }
        for p in members.people_of(session.tenant_id)
    ]
    rows = Invitation.objects.of_tenant(session.tenant_id).order_by("-created_at")[:50]
    invited = [
        {"row": row, "public_id": invitations.public_id(row), "status": invitations.status_of(row)} for row in rows
    ]
    n_open = sum(entry["status"] == "open" for entry in invited)
    plan = plan_of(session.tenant_id)
    context = {
        "people": people,
        "invitations": [entry for entry in invited if entry["status"] != "accepted"],
        "roles": [role for role in Role if may_grant(session.role, role)],
        "n_seats": plan.seats,
        "n_taken": len(people) + n_open,
        "plan": plan,
        "table": [(MEANS[permission], [permission in ALLOWED[role] for role in Role]) for permission in Permission],
        "all_roles": list(Role),
    }
    return render(request, "console/account/team.html", context | more, status=status)


def _role(text: str) -> Role:
    try:
        return Role(text)
    except ValueError:
        raise InvalidInput(f"There is no role {text[:40]!r}; choose one of {', '.join(Role)}.") from None
