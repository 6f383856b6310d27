"""GET /v1/compiles/{id}/events: the compile's events, as a JSON list or, asked with `Accept: text/event-stream`, live.
The console's compile page reads the same stream (`answer`).

A plain async view beside DRF: an open stream holds no database connection, no connection to Redis and no thread, and
readers of one compile share their reads (docs/benchmarks/event-streams.md has 1,000 of them). Events are numbered
without gaps under the compile's lock, so a reader that comes back with `Last-Event-ID` (or `?after=`) misses nothing
and gets nothing twice.
"""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

from django.db import transaction
from django.http import HttpRequest, HttpResponseBase, JsonResponse, StreamingHttpResponse
from rest_framework.exceptions import APIException, AuthenticationFailed

from backend.compiles.events import events_after
from backend.compiles.models import Compile
from backend.compiles.shapes import EventShape
from backend.domain.errors import InvalidInput, KolmError, NotFound
from backend.domain.ids import Prefix, decode_id
from backend.domain.lifecycle import TERMINAL, CompileStatus
from backend.rest.async_queries import let_go_of_thread, query
from backend.rest.problems import problem_for, problem_response
from backend.rest.rate_limits import count_request
from backend.tenants.api_keys.authentication import Caller, authenticate
from backend.tenants.isolation import tenant_scope
from backend.tenants.permissions import lacking
from backend.wakeups_async import listening_async

HEARTBEAT_S = 15.0
LOOK_AGAIN_S = 10.0  # for an announcement that was lost; while Redis is away it is half a second
MAX_STREAM_S = 600.0
RETRY_MS = 2000
PAGE = 500


@transaction.non_atomic_requests
async def compile_events(request: HttpRequest, compile: str) -> HttpResponseBase:
    if request.method != "GET":
        return problem_response(
            request, status=405, code="method_not_allowed", detail="Events can only be read; use GET."
        )
    try:
        caller = await query(_admit)(request)
        return await answer(request, caller.tenant_id, compile)
    except (KolmError, APIException) as error:
        return problem_for(request, error)


async def answer(request: HttpRequest, tenant_id: UUID, compile: str) -> HttpResponseBase:
    """The list or the open stream, for whoever was let in: the API's caller, or a person in the console. Raises
    NotFound and InvalidInput."""
    after = last_seen(request)
    compile_id = decode_id(Prefix.COMPILE, compile)
    if "text/event-stream" not in request.headers.get("Accept", ""):
        events, _ = await query(read_events)(tenant_id, compile_id, after)
        has_more = len(events) == PAGE
        cursor = str(events[-1]["seq"]) if has_more else None
        return JsonResponse({"object": "list", "data": events, "has_more": has_more, "next_cursor": cursor})
    await query(_check_exists)(tenant_id, compile_id)
    response = StreamingHttpResponse(
        event_stream(tenant_id, compile_id, after), content_type="text/event-stream; charset=utf-8"
    )
    response["Cache-Control"] = "no-store"
    response["X-Accel-Buffering"] = "no"
    return response


async def event_stream(tenant_id: UUID, compile_id: UUID, after: int) -> AsyncIterator[bytes]:
    """Yield every event after `after`, then what comes; ends after the terminal event or with `reconnect` after ten
    minutes."""
    let_go_of_thread()
    started = last_sent = time.monotonic()
    # spread the reconnects: a restart of this process must not bring every client back in the same instant
    yield f"retry: {round(RETRY_MS * random.uniform(0.5, 1.5))}\n\n".encode()
    async with listening_async(compile_id) as wait:
        while True:
            blocks, is_over = await _read_shared(tenant_id, compile_id, after, wait.n_announced)
            for seq, block in blocks:
                after = seq
                yield block
            now = time.monotonic()
            if blocks:
                last_sent = now
                continue
            if is_over:
                return
            if now - started > MAX_STREAM_S:
                yield b"event: reconnect\ndata: {}\n\n"
                return
            if now - last_sent > HEARTBEAT_S:
                last_sent = now
                yield b": alive\n\n"
            await wait(LOOK_AGAIN_S)


Blocks = list[tuple[int, bytes]]
_reads: dict[tuple[int, UUID, UUID, int, int], "asyncio.Task[tuple[Blocks, bool]]"] = {}


async def _read_shared(tenant_id: UUID, compile_id: UUID, after: int, n_announced: int) -> tuple[Blocks, bool]:
    """The next events as they are sent, and whether there will never be more. Readers of one compile who were woken
    together share one read: it came after the announcement that woke them (`n_announced`), else one of them would get
    what was so before it."""
    loop = asyncio.get_running_loop()
    key = (id(loop), tenant_id, compile_id, after, n_announced)
    task = _reads.get(key)
    if task is None:
        task = _reads[key] = loop.create_task(_read_once(tenant_id, compile_id, after))
        task.add_done_callback(lambda done: _forget_read(key, done))
    return await asyncio.shield(task)  # one reader that hangs up takes nothing from the others


async def _read_once(tenant_id: UUID, compile_id: UUID, after: int) -> tuple[Blocks, bool]:
    events, is_over = await query(read_events)(tenant_id, compile_id, after)
    return [(event["seq"], _block(event)) for event in events], is_over


def _forget_read(key: tuple[int, UUID, UUID, int, int], done: "asyncio.Task[tuple[Blocks, bool]]") -> None:
    del _reads[key]
    if not done.cancelled():
        done.exception()  # taken: whoever asked for it may have hung up


def _block(event: dict[str, Any]) -> bytes:
    data = json.dumps(event, ensure_ascii=False)
    return f"id: {event['seq']}\nevent: {event['type']}\ndata: {data}\n\n".encode()


def _admit(request: HttpRequest) -> Caller:
    """Check key, rate limit and scope, as DRF does for its views."""
    header = request.headers.get("Authorization", "")
    scheme, _, presented = header.partition(" ")
    if not header:
        raise _authentication_error("Send an API key as `Authorization: Bearer sk_...`.", code="missing_api_key")
    try:
        caller = authenticate(presented.strip() if scheme.lower() == "bearer" else "")
    except AuthenticationFailed as refused:
        raise _authentication_error(str(refused.detail), code=str(refused.get_codes())) from None
    request.api_caller = caller  # type: ignore[attr-defined]  # for `last_use`
    count_request(request, caller)
    if not {"compiles:read", "compiles:write"} & caller.scopes:
        raise lacking("compiles:read")
    return caller


def _authentication_error(message: str, *, code: str) -> AuthenticationFailed:
    error = AuthenticationFailed(message, code=code)
    error.auth_header = 'Bearer realm="kolm"'  # type: ignore[attr-defined]
    return error


def _check_exists(tenant_id: UUID, compile_id: UUID) -> None:
    """Raise NotFound before the stream is begun: afterwards there is no 404 any more."""
    with tenant_scope(tenant_id):
        _status(tenant_id, compile_id)


def _status(tenant_id: UUID, compile_id: UUID) -> str:
    rows = Compile.objects.filter(tenant_id=tenant_id, id=compile_id)
    status = rows.values_list("status", flat=True).order_by().first()
    if status is None:
        raise NotFound("There is no such compile.")
    return str(status)


def read_events(tenant_id: UUID, compile_id: UUID, after: int) -> tuple[list[dict[str, Any]], bool]:
    """The next events, and whether there will never be more."""
    with tenant_scope(tenant_id):
        status = _status(tenant_id, compile_id)
        # the status was read first: once it is terminal, the events that follow are all there is
        events = [EventShape.of(row) for row in events_after(tenant_id, compile_id, after, limit=PAGE)]
    return events, CompileStatus(status) in TERMINAL


def last_seen(request: HttpRequest) -> int:
    """The number after which to go on. Raises InvalidInput."""
    text = request.headers.get("Last-Event-ID") or request.GET.get("after") or "0"
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidInput(
            "`after` (or Last-Event-ID) is the number of the last event you saw: 0 or more, at most 9 digits.",
            code="invalid_request",
        )
    return int(text)
