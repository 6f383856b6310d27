"""The limits of a body, how large it may be and whose it must be: refused by its announced length or for want of a key
before a byte is read, and counted while it arrives.

Two doors, one rule. `limit_bodies` wraps the ASGI application, because Django spools a whole body to disk before its
first middleware runs; the middleware `body_limits` holds where there is no ASGI server (tests) and compares what
arrived with what was announced.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import sync_and_async_middleware

from backend.domain.ids import Prefix
from backend.rest.bodies.body_arrival import Message, Receive, Refused, Spools, count_bytes, no_body
from backend.rest.bodies.body_senders import Area, Headers, SenderBook
from backend.rest.new_ids import new_id
from backend.rest.problems import CONTENT_TYPE, Refusal, answer_to, problem_body, respond

Scope = dict[str, Any]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_RUNNERS = "/internal/"
STREAMED = "/v1/select"  # its lines are read one by one from where Django has spooled them, never into memory
STRANGERS_BYTES = 256_000  # log-in, sign-up, and addresses that take no body at all
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


def limit_of(path: str, content_type: str) -> int:
    """The most bytes that a body sent there may have."""
    if path.startswith(_RUNNERS):
        return settings.KOLM_RUNNER_BODY_BYTES
    if is_streamed(path, content_type):
        return settings.KOLM_SELECT_BODY_BYTES
    is_json = content_type.partition(";")[0].strip().lower() in ("application/json", "")
    return settings.KOLM_JSON_BODY_BYTES if is_json else settings.KOLM_UPLOAD_BODY_BYTES


def is_streamed(path: str, content_type: str) -> bool:
    """Return whether the view reads this body by itself, and counts it."""
    return path == STREAMED and content_type.partition(";")[0].strip().lower() in LINES


def refusal_of(path: str, content_type: str, content_length: str) -> Refusal | None:
    """Return what is wrong with a body that is announced like this."""
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


def limit_bodies(application: Application, senders: SenderBook) -> Application:
    """The ASGI application behind a door that asks whose a body is and counts it as it comes in."""
    spools = Spools()

    async def limited(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await application(scope, receive, send)
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        length = headers.get("content-length", "")
        try:
            n_announced = _announced_bytes(scope["path"], headers)
            sender = await _sender(senders, scope["path"], headers, n_announced)
            if sender is None:
                return await application(_without_body(scope), no_body(), _closing(send))
            bounded = count_bytes(receive, limit=n_announced, excess=_CUT_SHORT if length else _NO_LENGTH)
            with spools.held(sender, n_announced):
                await application(scope, bounded, send)
        except Refused as refused:  # Django reads the whole body before it answers, so nothing has been sent yet
            await _refuse(scope, send, refused.refusal)
        return None

    return limited


def _announced_bytes(path: str, headers: Headers) -> int:
    """Return how many bytes are to come. Raises Refused."""
    length = headers.get("content-length", "")
    refusal = refusal_of(path, headers.get("content-type", ""), length)
    if refusal is not None:
        raise Refused(refusal)
    return int(length) if length else 0


async def _sender(senders: SenderBook, path: str, headers: Headers, n_announced: int) -> str | None:
    """Return whose body it is; None where its area takes none from whom it does not know: the view says what is
    missing. Raises Refused."""
    if not n_announced and "transfer-encoding" not in headers:
        return "nobody"
    area = senders.area_of(path)
    strangers_bytes = STRANGERS_BYTES if area is None else area.strangers_bytes
    if strangers_bytes and n_announced <= strangers_bytes:
        return "strangers"
    sender = await _known_sender(senders, area, path, headers)
    if sender is None and strangers_bytes:
        raise Refused(_too_large(strangers_bytes))
    return sender


async def _known_sender(senders: SenderBook, area: Area | None, path: str, headers: Headers) -> str | None:
    if area is None:
        return None
    try:
        return await senders.sender_of(area, path, headers)
    except Exception as error:  # noqa: BLE001  # the database is away: as a view would answer it
        raise Refused(answer_to(error)) from None


def _without_body(scope: Scope) -> Scope:
    names = (b"content-length", b"transfer-encoding")
    kept = [(name, value) for name, value in scope["headers"] if name.lower() not in names]
    return scope | {"headers": kept}


def _closing(send: Send) -> Send:
    """`send` that closes the connection after the answer: the body is still on it."""

    async def closing(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
        await send(message)

    return closing


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
