"""How large a body may be: refused by its announced length before a byte is kept, and counted while it arrives.

Two doors, one rule. `limit_bodies` wraps the ASGI application, because Django spools a whole body to disk before its
first middleware runs; the middleware `body_limits` holds where there is no ASGI server (tests) and compares what
arrived with what was announced.
"""

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import sync_and_async_middleware

from backend.domain.ids import Prefix
from backend.rest.new_ids import new_id
from backend.rest.problems import CONTENT_TYPE, Refusal, problem_body, respond

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_RUNNERS = "/internal/"
STREAMED = "/v1/select"  # its lines are read one by one from where Django has spooled them, never into memory
LINES = ("application/x-ndjson", "application/jsonl")
_NO_LENGTH = Refusal(status=411, code="length_required", detail="Send the body with a Content-Length.")
_BAD_LENGTH = Refusal(
    status=400, code="bad_request", detail="The Content-Length is not a number; send the number of bytes."
)
_CUT_SHORT = Refusal(
    status=400,
    code="incomplete_body",
    detail="The body is not as long as its Content-Length says; send it again.",
    is_retryable=True,
)


class _Refused(Exception):
    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.code)
        self.refusal = refusal


def limit_of(path: str, content_type: str) -> int:
    """The most bytes that a body sent there may have."""
    if path.startswith(_RUNNERS):
        return settings.KOLM_RUNNER_BODY_BYTES
    if is_streamed(path, content_type):
        return settings.KOLM_SELECT_BODY_BYTES
    is_json = content_type.partition(";")[0].strip().lower() in ("application/json", "")
    return settings.KOLM_JSON_BODY_BYTES if is_json else settings.KOLM_UPLOAD_BODY_BYTES


def is_streamed(path: str, content_type: str) -> bool:
    """Whether the view reads this body by itself, and counts it."""
    return path == STREAMED and content_type.partition(";")[0].strip().lower() in LINES


def refusal_of(path: str, content_type: str, content_length: str) -> Refusal | None:
    """What is wrong with a body that is announced like this."""
    if not content_length:
        return None
    if not (content_length.isascii() and content_length.isdigit()):
        return _BAD_LENGTH
    limit = limit_of(path, content_type)
    return _too_large(limit) if int(content_length[:20]) > limit else None


def _too_large(limit: int) -> Refusal:
    return Refusal(status=413, code="payload_too_large", detail=f"A body here may have at most {limit:,} bytes.")


@sync_and_async_middleware
def body_limits(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    if iscoroutinefunction(get_response):

        async def asynchronous(request: HttpRequest) -> HttpResponse:
            refusal = _check(request)
            return respond(request, refusal) if refusal else await get_response(request)

        return asynchronous

    def synchronous(request: HttpRequest) -> HttpResponse:
        refusal = _check(request)
        return respond(request, refusal) if refusal else get_response(request)

    return synchronous


def _check(request: HttpRequest) -> Refusal | None:
    length = request.META.get("CONTENT_LENGTH") or ""
    refusal = refusal_of(request.path, request.META.get("CONTENT_TYPE", ""), length)
    if refusal is None and not length and "chunked" in request.headers.get("Transfer-Encoding", "").lower():
        return _NO_LENGTH  # DRF reads a body without a length as no body at all
    if refusal is not None or not length or _is_counted_elsewhere(request):
        return refusal
    return _CUT_SHORT if len(request.body) != int(length) else None


def _is_counted_elsewhere(request: HttpRequest) -> bool:
    return request.path.startswith(_RUNNERS) or is_streamed(request.path, request.META.get("CONTENT_TYPE", ""))


def limit_bodies(application: Application) -> Application:
    """The ASGI application behind a door that counts bodies as they come in."""

    async def limited(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await application(scope, receive, send)
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        content_type, length = headers.get("content-type", ""), headers.get("content-length", "")
        refusal = refusal_of(scope["path"], content_type, length)
        if refusal is not None:
            return await _refuse(scope, send, refusal)
        limit = int(length) if length else 0
        n_received = 0

        async def counted() -> Message:
            nonlocal n_received
            message = await receive()
            n_received += len(message.get("body", b""))
            if n_received > limit:
                raise _Refused(_CUT_SHORT if length else _NO_LENGTH)
            return message

        try:
            await application(scope, counted, send)
        except _Refused as refused:  # Django reads the whole body before it answers, so nothing has been sent yet
            await _refuse(scope, send, refused.refusal)
        return None

    return limited


async def _refuse(scope: Scope, send: Send, refusal: Refusal) -> None:
    request_id = new_id(Prefix.REQUEST)
    body = json.dumps(problem_body(refusal, path=scope["path"], request_id=request_id)).encode()
    headers = {
        "content-type": CONTENT_TYPE,
        "content-length": str(len(body)),
        "x-request-id": request_id,
        "kolm-version": settings.KOLM_VERSION,
        "connection": "close",  # the rest of the body is not read
    }
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": refusal.status, "headers": raw})
    await send({"type": "http.response.body", "body": body})
