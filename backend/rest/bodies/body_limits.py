"""The limits of a body, how large it may be and whose it must be: refused by its announced length or for want of a key
before a byte is read, and counted while it arrives. `limit_bodies` wraps the ASGI application, because Django spools a
whole body to disk before its first middleware runs.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from django.conf import settings

from backend.domain.ids import Prefix
from backend.domain.jobs.blob_transfers import PART_BYTES
from backend.rest.bodies.body_arrival import Message, Receive, Refused, Spools, count_bytes, no_body
from backend.rest.bodies.body_senders import Area, Headers, SenderBook
from backend.rest.new_ids import new_id
from backend.rest.problems import CONTENT_TYPE, Refusal, answer_to, problem_body

Scope = dict[str, Any]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_RUNNERS, _PART = "/internal/", "/parts/"
_STREAMED = "/v1/select"  # its lines are read one by one from where Django has spooled them, never into memory
_SOURCES, _SOURCE_FORMS = "/v1/uploads", "/app/uploads"
FORM_BYTES = 100_000  # what a browser's form holds beside its file
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


_PAGE_HEADERS = {  # no middleware is passed on the way out
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " font-src 'self'; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
}


def limit_of(path: str, content_type: str) -> int:
    """The most bytes that a body sent there may have."""
    media_type = content_type.partition(";")[0].strip().lower()
    if path.startswith(_RUNNERS):
        if _PART in path:
            return PART_BYTES
        return min(settings.KOLM_MAX_BLOB_BYTES, settings.KOLM_SPOOL_BYTES_PER_SENDER)
    if path == _STREAMED and media_type in LINES:
        return settings.KOLM_SELECT_BODY_BYTES
    if path.startswith((_SOURCES, _SOURCE_FORMS)):
        return settings.KOLM_SOURCE_BODY_BYTES + (FORM_BYTES if path.startswith(_SOURCE_FORMS) else 0)
    return settings.KOLM_JSON_BODY_BYTES if media_type in ("application/json", "") else settings.KOLM_UPLOAD_BODY_BYTES


def _too_large(limit: int, path: str) -> Refusal:
    detail = f"A body here may have at most {limit:,} bytes."
    if path.startswith((_SOURCES, _SOURCE_FORMS)):
        detail = (
            f"A file sent here may have at most {settings.KOLM_SOURCE_BODY_BYTES // 1_000_000} MB, and this one is"
            " larger. On your machine `kolm upload FILE` and `kolm init FILE` read a file of any size and upload an"
            " even sample of its rows."
        )
    return Refusal(status=413, code="payload_too_large", detail=detail)


def limit_bodies(application: Application, senders: SenderBook) -> Application:
    """The ASGI application behind a door that asks whose a body is and counts it as it comes in."""
    spools = Spools()

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await application(scope, receive, send)
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        length = headers.get("content-length", "")
        try:
            n_announced = _announced_bytes(scope["path"], headers)
            sender = await _sender(senders, scope["path"], headers, n_announced)
            if sender is None:
                return await application(_without_body(scope), no_body(), _closing(send))
            if not length and "transfer-encoding" in headers:
                raise Refused(_NO_LENGTH)  # DRF reads a body without a length as no body at all
            counted = count_bytes(receive, n_announced=n_announced, mismatch=_CUT_SHORT if length else _NO_LENGTH)
            with spools.hold(sender, n_announced):
                await application(scope, counted, send)
        except Refused as refused:  # Django reads the whole body before it answers, so nothing has been sent yet
            await _refuse(scope, send, refused.refusal, headers, senders.area_of(scope["path"]))
        return None

    return guard


def _announced_bytes(path: str, headers: Headers) -> int:
    """Return how many bytes are to come. Raises Refused."""
    length = headers.get("content-length", "")
    if not length:
        return 0
    if not (length.isascii() and length.isdigit()):
        raise Refused(_BAD_LENGTH)
    limit = limit_of(path, headers.get("content-type", ""))
    if int(length[:20]) > limit:
        raise Refused(_too_large(limit, path))
    return int(length)


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
        raise Refused(_too_large(strangers_bytes, ""))
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


async def _refuse(scope: Scope, send: Send, refusal: Refusal, asked: Headers, area: Area | None) -> None:
    request_id = new_id(Prefix.REQUEST)
    if area is not None and area.page is not None:
        body, kind = area.page(refusal, asked).encode(), {"content-type": "text/html; charset=utf-8", **_PAGE_HEADERS}
    else:
        body = json.dumps(problem_body(refusal, path=scope["path"], request_id=request_id)).encode()
        kind = {"content-type": CONTENT_TYPE}
    headers = kind | {
        "content-length": str(len(body)),
        "x-request-id": request_id,
        "kolm-version": settings.KOLM_VERSION,
        "connection": "close",  # the rest of the body is not read
    }
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": refusal.status, "headers": raw})
    await send({"type": "http.response.body", "body": body})
