"""/app/compiles/<id>/events: the compile's event stream for whoever is logged in, as the API has it for keys.

An open stream holds no database connection, and no moment of it two: who asks is found out over the connection that the
console's middleware has taken before this view, which goes back to the pool before anything is read of the compile.
"""

from uuid import UUID

from asgiref.sync import sync_to_async
from django.db import transaction
from django.http import HttpRequest, HttpResponseBase
from rest_framework.exceptions import AuthenticationFailed

from backend.compiles.api.event_stream import answer
from backend.console.access import team_session_of
from backend.domain.errors import Forbidden, KolmError
from backend.domain.roles import Permission
from backend.rest.async_queries import let_go
from backend.rest.problems import problem_for, problem_response


@transaction.non_atomic_requests
async def compile_events(request: HttpRequest, compile: str) -> HttpResponseBase:
    """Errors are problems, not pages: their reader is an EventSource."""
    if request.method != "GET":
        return problem_response(
            request, status=405, code="method_not_allowed", detail="Events can only be read; use GET."
        )
    try:
        tenant_id = await sync_to_async(_admit_in_scope)(request)  # in the thread that the middleware ran in
        return await answer(request, tenant_id, compile)
    except (KolmError, AuthenticationFailed) as error:
        return problem_for(request, error)


def _admit_in_scope(request: HttpRequest) -> UUID:
    try:
        return _admit(request)
    finally:
        let_go()


def _admit(request: HttpRequest) -> UUID:
    """The tenant whose console this person has open."""
    if not request.user.is_authenticated:
        raise AuthenticationFailed("Log in to follow a compile.", code="not_logged_in")
    session = team_session_of(request)
    if session is None or not session.may(Permission.VIEW):
        raise Forbidden("Your role may not read this tenant's compiles.", code="missing_role")
    return session.tenant_id


compile_events.permission = Permission.VIEW  # type: ignore[attr-defined]  # the role x page test reads it
