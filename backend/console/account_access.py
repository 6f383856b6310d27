"""Doors beside `access.page`: for people without a team, for acts that ask who is there once more, for teams that
demand a second factor."""

import functools
import time
from typing import Any

from allauth.account.internal.flows.login import get_authentication_records
from allauth.account.internal.flows.reauthentication import get_reauthentication_flows
from allauth.core.exceptions import ReauthenticationRequired
from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.db import transaction
from django.http import HttpResponse

from backend.console.allauth_adapters import LOGGED_IN_AT
from backend.console.errors import problem_page
from backend.domain.errors import KolmError
from backend.tenants.actors import Actor


def person_page(view: Any) -> Any:
    """A page for whoever is logged in, with a team or without. It opens its own `tenant_scope`s."""

    @transaction.non_atomic_requests
    @functools.wraps(view)
    def guarded(request: Any, *args: Any, **kwargs: Any) -> HttpResponse:
        if not request.user.is_authenticated:
            return redirect_to_login(request.get_full_path())
        try:
            return view(request, *args, **kwargs)
        except KolmError as error:
            return problem_page(request, error)

    guarded.is_for_any_person = True  # type: ignore[attr-defined]  # the role x page test reads it
    return guarded


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
    def guarded(request: Any, *args: Any, **kwargs: Any) -> HttpResponse:
        if not is_recent(request):
            raise ReauthenticationRequired
        return view(request, *args, **kwargs)

    guarded.asks_again = True  # type: ignore[attr-defined]
    return guarded


def is_recent(request: Any) -> bool:
    """Whoever has neither password nor second factor of ours (companies' own log-in) is as sure as his session."""
    moments = [float(request.session.get(LOGGED_IN_AT, 0))]
    moments += [float(record.get("at", 0)) for record in get_authentication_records(request, request.user)]
    if time.time() - max(moments) < settings.ACCOUNT_REAUTHENTICATION_TIMEOUT:
        return True
    return not get_reauthentication_flows(request.user)
