"""The door of every page: who is logged in, for which tenant, in which role, and whether that is enough.

    @page(Permission.BILLS_READ)
    def bills(request: ConsoleRequest) -> HttpResponse:
        rows = Invoice.objects.of_tenant(request.team_session.tenant_id)

The view runs in one transaction that acts for the tenant. Errors of our tree become pages with the same sentence.
`person_page` is the door for people without a team, `recently_authenticated` a second one for acts that ask once more
who is there.
"""

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from allauth.account.internal.flows.login import get_authentication_records
from allauth.account.internal.flows.reauthentication import get_reauthentication_flows
from allauth.core.exceptions import ReauthenticationRequired
from django.conf import settings
from django.db import transaction
from django.http import HttpRequest, HttpResponse

from backend.console.allauth_adapters import LOGGED_IN_AT
from backend.console.errors import problem_page
from backend.console.returning import to_log_in, to_welcome
from backend.console.second_factor import missing_factor
from backend.domain.errors import Forbidden, KolmError
from backend.domain.roles import Permission, Role, allows
from backend.tenants.actors import Actor
from backend.tenants.isolation import tenant_scope
from backend.tenants.team.membership import Membership, memberships_of

TENANT_IN_SESSION = "tenant"

View = Callable[..., HttpResponse]


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamSession:
    """One person at one tenant's console."""

    tenant_id: UUID
    tenant_name: str
    member_id: UUID
    role: Role
    user_id: int
    email: str
    memberships: tuple[Membership, ...]

    def may(self, permission: Permission) -> bool:
        return allows(self.role, permission)

    @property
    def actor(self) -> Actor:
        return Actor(kind="user", id=f"usr_{self.user_id}", label=self.email)


class ConsoleRequest(HttpRequest):
    """A page's request, for annotations: what it carries beside Django's."""

    team_session: TeamSession
    htmx: Any


def page(permission: Permission, *, atomic: bool = True) -> Callable[[View], View]:
    """`atomic=False`: the view opens its own `tenant_scope`s, because it waits for something outside."""

    def decorate(view: View) -> View:
        @transaction.non_atomic_requests
        @functools.wraps(view)
        def wrapper(request: Any, *args: Any, **kwargs: Any) -> HttpResponse:
            if not request.user.is_authenticated:
                return to_log_in(request)
            session = team_session_of(request)
            if session is None:
                return to_welcome(request)
            request.team_session = session
            try:
                if not session.may(permission):
                    raise Forbidden(
                        f"Your role in {session.tenant_name} is {session.role}, and this page needs another; "
                        "ask an owner or admin of the team.",
                        code="missing_role",
                    )
                with tenant_scope(session.tenant_id):
                    elsewhere = missing_factor(session)
                    if elsewhere is None and atomic:
                        return view(request, *args, **kwargs)
                return elsewhere or view(request, *args, **kwargs)
            except KolmError as error:
                return problem_page(request, error)

        wrapper.permission = permission  # type: ignore[attr-defined]  # the role x page test reads it
        return wrapper

    return decorate


def team_session_of(request: Any) -> TeamSession | None:
    """The tenant chosen in the session if the person is still a member there, else the first one; None without any."""
    memberships = memberships_of(request.user.pk)
    if not memberships:
        return None
    chosen = request.session.get(TENANT_IN_SESSION)
    membership = next((m for m in memberships if str(m.tenant_id) == chosen), memberships[0])
    return TeamSession(
        tenant_id=membership.tenant_id,
        tenant_name=membership.tenant_name,
        member_id=membership.member_id,
        role=membership.role,
        user_id=request.user.pk,
        email=request.user.email,
        memberships=tuple(memberships),
    )


def person_page(view: Any) -> Any:
    """A page for whoever is logged in, with a team or without. It opens its own `tenant_scope`s."""

    @transaction.non_atomic_requests
    @functools.wraps(view)
    def wrapper(request: Any, *args: Any, **kwargs: Any) -> HttpResponse:
        if not request.user.is_authenticated:
            return to_log_in(request)
        try:
            return view(request, *args, **kwargs)
        except KolmError as error:
            return problem_page(request, error)

    wrapper.is_for_any_person = True  # type: ignore[attr-defined]  # the role x page test reads it
    return wrapper


def person_of(request: Any) -> Actor:
    return Actor(kind="user", id=f"usr_{request.user.pk}", label=request.user.email)


def recently_authenticated(view: Any) -> Any:
    """Below `page`: the view runs if the person gave a password, code or passkey in this session within the last 15
    minutes; otherwise he is asked again, and the request goes on after that as it was sent.

        @page(Permission.WEBHOOKS)
        @recently_authenticated
        def reveal_secret(request, ...):

    Not for forms with secrets in them: the request waits in the session until the person has answered."""

    @functools.wraps(view)
    def wrapper(request: Any, *args: Any, **kwargs: Any) -> HttpResponse:
        if not is_recent(request):
            raise ReauthenticationRequired
        return view(request, *args, **kwargs)

    wrapper.asks_again = True  # type: ignore[attr-defined]
    return wrapper


def is_recent(request: Any) -> bool:
    """Return whether the person authenticated lately. One who has neither a password nor a second factor with us
    (single sign-on) is as sure as the session."""
    moments = [float(request.session.get(LOGGED_IN_AT, 0))]
    moments += [float(record.get("at", 0)) for record in get_authentication_records(request, request.user)]
    if time.time() - max(moments) < settings.ACCOUNT_REAUTHENTICATION_TIMEOUT:
        return True
    return not get_reauthentication_flows(request.user)
