"""The arrival of a body: from whom the responder admits, not longer than bodies may be, not slower than a slow line,
and beside not too many others.

`BodyDoor` stands before every route. A route that wants the body asks `read_body` for it, after it has asked the
responder whose it is; whatever is answered before the body is there closes the connection, and what is left of the body
is never read.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpu_runners.serving.openai.bodies.bad_request import BadRequest
from gpu_runners.serving.openai.responder import Refusal

MAX_BODY = 4 << 20
PAUSE_S = 15.0  # between two pieces, and before the first
LEAST_BYTES_A_S = 10_000  # on the whole; a telephone's line does ten times as much
_COUNTED = 64_000  # shorter ones are not counted: their pace bounds them


class BodyDoor:
    """ASGI middleware. `receive` raises BadRequest: 408 for a body that drips, 413 for one that is too long."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        arrival = _Arrival(scope, receive, send)
        return await self._app(scope, arrival.receive, arrival.send)


class _Arrival:
    """One request's body. After its end `receive` waits as long as the server does, for the caller to hang up."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        self.is_whole = headers.get(b"content-length", b"0") == b"0" and b"transfer-encoding" not in headers
        self._receive, self._send = receive, send
        self._n_received, self._waited_s = 0, 0.0

    async def receive(self) -> Message:
        if self.is_whole:
            return await self._receive()
        left_s = PAUSE_S + self._n_received / LEAST_BYTES_A_S - self._waited_s
        began = time.monotonic()
        try:
            message = await asyncio.wait_for(self._receive(), timeout=max(0.0, min(PAUSE_S, left_s)))
        except TimeoutError:
            raise _too_slow() from None
        self._waited_s += time.monotonic() - began
        self._n_received += len(message.get("body", b""))
        if self._n_received > MAX_BODY:
            raise _too_large()
        self.is_whole = message["type"] == "http.request" and not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and not self.is_whole:
            message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
        await self._send(message)


async def read_body(request: Request) -> bytes:
    """Raises BadRequest(408, 413): at once where a longer one is announced."""
    if n_announced(request) > MAX_BODY:
        raise _too_large()
    return b"".join([part async for part in request.stream()])


def n_announced(request: Request) -> int:
    """Count the bytes to come: one more than a body may have stands for all that are more, the most that a body may
    have for one that does not say."""
    length = request.headers.get("content-length")
    if length is None:
        return MAX_BODY if "transfer-encoding" in request.headers else 0
    if not (length.isascii() and length.isdigit()):
        raise BadRequest("The Content-Length is not a number.", code="bad_request")
    return min(int(length[:20]), MAX_BODY + 1)


class Room:
    """The large bodies that a server holds just now, by sender. One event loop uses it."""

    def __init__(self, *, n_bytes: int = 16 * MAX_BODY, sender_bytes: int = 4 * MAX_BODY) -> None:
        self._n_bytes, self._sender_bytes = n_bytes, sender_bytes
        self._held: Counter[str] = Counter()

    @contextmanager
    def hold(self, sender: str, n_bytes: int) -> Iterator[None]:
        """Hold room from the body's announcement until it is tokens. Raises Refusal where there is no room for it."""
        if n_bytes <= _COUNTED:
            yield
            return
        if self._held[sender] + n_bytes > self._sender_bytes:
            message = "You are sending too many large bodies at once; wait until one of them has been answered."
            raise Refusal(429, "too_many_uploads", message, retry_after_s=1.0)
        if self._held.total() + n_bytes > self._n_bytes:
            message = "This server is taking in as many large bodies as it can hold."
            raise Refusal(503, "uploads_busy", message, retry_after_s=2.0)
        self._held[sender] += n_bytes
        try:
            yield
        finally:
            self._held[sender] -= n_bytes
            if not self._held[sender]:
                del self._held[sender]


def _too_large() -> BadRequest:
    return BadRequest(f"A body has at most {MAX_BODY} bytes.", code="body_too_large", status=413)


def _too_slow() -> BadRequest:
    return BadRequest(
        f"The body came too slowly: a pause of {PAUSE_S:.0f} s, or less than {LEAST_BYTES_A_S:,} bytes a second on the"
        " whole.",
        code="body_too_slow",
        status=408,
    )
