"""The pages that a person sees where the API would answer a problem."""

import sys
from collections.abc import Mapping

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from redis import RedisError

from backend.console.middleware import is_console
from backend.domain.errors import KolmError, Unavailable
from backend.rest import problems
from backend.rest.problems import Refusal, answer_to


def problem_page(request: HttpRequest, error: KolmError) -> HttpResponse:
    """The same sentence, code and status as the API's. To htmx a fragment, that the page shows as a notice."""
    refusal = answer_to(error)
    template = "console/problem_fragment.html" if getattr(request, "htmx", None) else "console/problem.html"
    return render(request, template, {"refusal": refusal}, status=refusal.status)


def body_refused_page(refusal: Refusal, headers: Mapping[str, str]) -> str:
    """The page, or htmx's fragment, for a body that was refused before Django saw the request."""
    is_fragment = headers.get("hx-request") == "true"
    template = "console/problem_fragment.html" if is_fragment else "console/body_refused.html"
    return render_to_string(template, {"refusal": refusal})


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """A form that did not come from one of our pages, or from one that was open for too long."""
    return render(request, "console/csrf.html", status=403)


# --- Django's handlers (backend/urls.py): pages at the console's addresses, problems elsewhere ----------------


def not_found_page(request: HttpRequest, exception: Exception) -> HttpResponse:
    if not is_console(request.path):
        return problems.not_found(request, exception)
    return render(request, "console/404.html", {"path": request.path[:200]}, status=404)


def server_error(request: HttpRequest) -> HttpResponse:
    """Render without context processors: what is broken may be the session's database."""
    if not is_console(request.path):
        return problems.server_error(request)
    error = sys.exc_info()[1]
    if isinstance(error, RedisError):  # login limits are counted there: without them nobody may guess
        error = Unavailable(
            "Login, sign-up and password reset are not available: a part of this installation does not answer. Nothing"
            " was done; wait a minute, go back and send the form again."
        )
    refusal = answer_to(error if isinstance(error, Exception) else RuntimeError("no error to show"))
    context = {"status": refusal.status, "detail": refusal.detail, "request_id": getattr(request, "request_id", "")}
    headers = {"Retry-After": "5"} if refusal.status == 503 else {}
    return HttpResponse(render_to_string("console/500.html", context), status=refusal.status, headers=headers)
