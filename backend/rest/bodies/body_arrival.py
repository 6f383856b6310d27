"""The arrival of a body: not longer than announced, not slower than a slow line, and beside not too many others.

Django writes what is longer than 2.5 MB to disk and keeps the rest in memory, until the request ends. So a body counts
against its sender from its announcement to that end, in number and in bytes, and against what this process holds.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from django.conf import settings

from backend.rest.problems import Refusal

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]

PAUSE_S = 15.0  # between two pieces, and before the first
LEAST_BYTES_A_S = 10_000  # on the whole; a telephone's line does ten times as much
COUNTED_BYTES = 256_000  # shorter ones are not counted: the rate limit and the pace bound them

_TOO_SLOW = Refusal(
    status=408,
    code="body_too_slow",
    detail=f"The body came too slowly: a pause of {PAUSE_S:.0f} s, or less than {LEAST_BYTES_A_S:,} bytes a second on"
    " the whole; send it again over a better line, or in parts.",
    is_retryable=True,
)
_TOO_MANY = Refusal(
    status=429,
    code="too_many_uploads",
    detail="You are sending too many large bodies at the same time; wait until one of them has been answered.",
    is_retryable=True,
    headers={"Retry-After": "5"},
)
_BUSY = Refusal(
    status=503,
    code="uploads_busy",
    detail="This installation is taking in as many large bodies as it can hold; send it again a little later.",
    is_retryable=True,
    headers={"Retry-After": "10"},
)


class Refused(Exception):
    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.code)
        self.refusal = refusal


def count_bytes(receive: Receive, *, n_announced: int, mismatch: Refusal) -> Receive:
    """A `receive` for a body of `n_announced` bytes. It raises Refused: `mismatch` for a longer or a shorter body,
    "body_too_slow" for one that drips. After the body's end it waits as long as the server does, for the caller to hang
    up."""
    n_received, waited_s, is_whole = 0, 0.0, False

    async def next_message() -> Message:
        nonlocal n_received, waited_s, is_whole
        if is_whole:
            return await receive()
        left_s = PAUSE_S + n_received / LEAST_BYTES_A_S - waited_s
        began = time.monotonic()
        try:
            message = await asyncio.wait_for(receive(), timeout=max(0.0, min(PAUSE_S, left_s)))
        except TimeoutError:
            raise Refused(_TOO_SLOW) from None
        waited_s += time.monotonic() - began
        n_received += len(message.get("body", b""))
        is_whole = not message.get("more_body", False)
        is_short = is_whole and message["type"] == "http.request" and n_received < n_announced
        if n_received > n_announced or is_short:
            raise Refused(mismatch)
        return message

    return next_message


def no_body() -> Receive:
    """The `receive` of a request whose body is not read. It never hears of the caller's hanging up: an answer for want
    of a key does not take long."""
    is_sent = False

    async def next_message() -> Message:
        nonlocal is_sent
        if is_sent:
            await asyncio.Event().wait()
        is_sent = True
        return {"type": "http.request", "body": b"", "more_body": False}

    return next_message


class Spools:
    """The large bodies that this process holds just now, by sender. One event loop uses it."""

    def __init__(self) -> None:
        self._numbers: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    @contextmanager
    def hold(self, sender: str, n_bytes: int) -> Iterator[None]:
        """A body of a sender, while its request lasts. Raises Refused where there is no room for it."""
        if n_bytes <= COUNTED_BYTES:
            yield
            return
        if self._numbers[sender] >= settings.KOLM_SPOOLS_PER_SENDER:
            raise Refused(_TOO_MANY)
        if self._bytes[sender] + n_bytes > settings.KOLM_SPOOL_BYTES_PER_SENDER:
            raise Refused(_TOO_MANY)
        if self._bytes.total() + n_bytes > settings.KOLM_SPOOL_BYTES:
            raise Refused(_BUSY)
        self._add(sender, 1, n_bytes)
        try:
            yield
        finally:
            self._add(sender, -1, -n_bytes)

    def _add(self, sender: str, number: int, n_bytes: int) -> None:
        self._numbers[sender] += number
        self._bytes[sender] += n_bytes
        if not self._numbers[sender]:
            del self._numbers[sender], self._bytes[sender]
