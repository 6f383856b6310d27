"""/app/compiles/<id>/events: the compile's event stream for whoever is logged in, as the API has it for keys.

An open stream holds no database connection: who asks is found out in a thread of its own, and the connection that the
console's middleware took before this view goes back to the pool before the first event.
"""

from uuid import UUID

from asgiref.sync import sync_to_async
from django.db import transaction
from django.http import HttpRequest, HttpResponseBase
from rest_framework.exceptions import AuthenticationFailed

from backend.compiles.event_stream import answer
from backend.console.access import visit_of
from backend.domain.errors import Forbidden, KolmError
from backend.domain.roles import Permission
from backend.rest.async_queries import let_go, query
from backend.rest.problems import problem_for, problem_response


@transaction.non_atomic_requests
async def compile_events(request: HttpRequest, compile: str) -> HttpResponseBase:
    """Errors are problems, not pages: their reader is an EventSource."""
    if request.method != "GET":
        return problem_response(
            request, status=405, code="method_not_allowed", detail="Events can only be read; use GET."
        )
    try:
        tenant_id = await query(_admit)(request)
        answered = await answer(request, tenant_id, compile)
    except (KolmError, AuthenticationFailed) as error:
        return problem_for(request, error)
    await sync_to_async(let_go)()  # in the thread that the middleware ran in
    return answered


def _admit(request: HttpRequest) -> UUID:
    """The tenant whose console this person has open."""
    if not request.user.is_authenticated:
        raise AuthenticationFailed("Log in to follow a compile.", code="not_logged_in")
    visit = visit_of(request)
    if visit is None or not visit.may(Permission.VIEW):
        raise Forbidden("Your role may not read this tenant's compiles.", code="missing_role")
    return visit.tenant_id


compile_events.permission = Permission.VIEW  # type: ignore[attr-defined]  # the role x page test reads it
