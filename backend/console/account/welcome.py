"""Coming in: a person names a team or accepts an invitation, and goes from one team to another."""

from typing import Any

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from backend.console.access import TENANT_IN_SESSION, person_of, person_page
from backend.console.allauth_adapters import INVITATION_IN_SESSION
from backend.console.errors import problem_page
from backend.console.returning import asked_return
from backend.domain.errors import InvalidInput, NotFound
from backend.domain.ids import Prefix, decode_id
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Invitation, Tenant
from backend.tenants.team import invitations, members
from backend.tenants.team.membership import memberships_of


@require_http_methods(["GET", "POST"])
@person_page
def welcome(request: Any) -> HttpResponse:
    """Name a team: the first one, or one more."""
    error, name = "", ""
    if request.method == "POST":
        name = request.POST.get("name", "")
        try:
            tenant = members.create_team(name, user_id=request.user.pk, actor=person_of(request))
        except InvalidInput as fault:
            error = fault.message
        else:
            request.session[TENANT_IN_SESSION] = str(tenant.id)
            return redirect(asked_return(request) or "console:overview")
    waiting = _waiting(request)
    context = {
        "error": error,
        "name": name,
        "came_from": asked_return(request),
        "waiting": waiting,
        "has_team": bool(memberships_of(request.user.pk)),
    }
    return render(request, "console/account/welcome.html", context, status=422 if error else 200)


@require_POST
@person_page
def switch_tenant(request: Any) -> HttpResponse:
    """Go on in another team. One that the person is no member of does not exist for him."""
    tenant_id = decode_id(Prefix.TENANT, request.POST.get("tenant", ""))
    if tenant_id not in {m.tenant_id for m in memberships_of(request.user.pk)}:
        raise NotFound("There is no such team.")
    request.session[TENANT_IN_SESSION] = str(tenant_id)
    return redirect("console:overview")


@require_http_methods(["GET", "POST"])
@transaction.non_atomic_requests
def invitation(request: HttpRequest, token: str) -> HttpResponse:
    """The page to which an invitation's e-mail leads: who invites whom to what, then the button. A person without an
    account signs up first; the session keeps the token until then."""
    row = invitations.look_up(token[:100])
    if row is None:
        return problem_page(
            request, NotFound("This invitation has expired, was revoked or was used already; ask for a new one.")
        )
    if request.method == "POST":
        return _accept(request, token)
    request.session[INVITATION_IN_SESSION] = token
    context = {"row": row, "team": _team_of(row), "is_theirs": _is_theirs(request, row)}
    return render(request, "console/account/invitation.html", context)


@person_page
def _accept(request: Any, token: str) -> HttpResponse:
    row = invitations.accept(token, user_id=request.user.pk)
    request.session.pop(INVITATION_IN_SESSION, None)
    request.session[TENANT_IN_SESSION] = str(row.tenant_id)
    messages.success(request, f"Welcome to {_team_of(row)}. Your role is {row.role}.")
    return redirect("console:overview")


def _waiting(request: Any) -> dict[str, Any] | None:
    """The invitation whose e-mail the person followed before signing up."""
    token = request.session.get(INVITATION_IN_SESSION, "")
    row = invitations.look_up(token) if token else None
    return {"token": token, "team": _team_of(row), "role": row.role} if row else None


def _team_of(row: Invitation) -> str:
    with tenant_scope(row.tenant_id):
        return Tenant.objects.values_list("name", flat=True).get(id=row.tenant_id)


def _is_theirs(request: Any, row: Invitation) -> bool:
    return request.user.is_authenticated and request.user.email.lower() == row.email
