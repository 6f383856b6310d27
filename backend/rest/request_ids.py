"""The outermost middleware: a request id on every response and every log line, the API version, and the state of the
rate limit.

An inbound `X-Request-Id` is not taken over: the id is what our logs are searched by, so only we may choose it.
"""

from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import sync_and_async_middleware

from backend.domain.ids import Prefix
from backend.rest.log_lines import current_request_id
from backend.rest.new_ids import new_id
from backend.rest.problems import problem_response


@sync_and_async_middleware
def request_ids(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    if iscoroutinefunction(get_response):

        async def asynchronous(request: HttpRequest) -> HttpResponse:
            return _label(request, _begin(request) or await get_response(request))

        return asynchronous

    def synchronous(request: HttpRequest) -> HttpResponse:
        return _label(request, _begin(request) or get_response(request))

    return synchronous


def _begin(request: HttpRequest) -> HttpResponse | None:
    """Name the request; the answer when it asks for a version this code does not speak."""
    request.request_id = new_id(Prefix.REQUEST)  # type: ignore[attr-defined]
    current_request_id.set(request.request_id)  # type: ignore[attr-defined]
    wanted = request.headers.get("Kolm-Version", settings.KOLM_VERSION)
    if wanted == settings.KOLM_VERSION:
        return None
    return problem_response(
        request,
        status=400,
        code="unknown_version",
        detail=f"There is no API version {wanted[:40]!r}; this installation has {settings.KOLM_VERSION}. Send that as "
        "Kolm-Version, or leave the header out.",
    )


def _label(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    response["X-Request-Id"] = request.request_id  # type: ignore[attr-defined]
    response["Kolm-Version"] = settings.KOLM_VERSION
    for name, value in getattr(request, "rate_limit_headers", {}).items():
        response[name] = value
    return response
