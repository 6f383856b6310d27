"""The asyncio face of events.py, of which it is made: see tests/gpu_runners/kolm/async_sources.py."""

import json
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import httpx

from ..errors import KolmError, NotReachable
from ..events import _GIVE_UP_S, _LONGEST_RETRY_S, _POLL_S, _STREAM_TRIES, TERMINAL, Event, _is_last, event_of
from ..transport import backoff_s, check, not_reachable
from .transport import Transport


@dataclass(slots=True, kw_only=True)
class Lines:
    """The events of a `text/event-stream` whose data is `{"type", "seq", "data"}`; comments and data of other shapes
    are passed over. `retry_s`: how long the server asks to wait before the next connection."""

    retry_s: float = 0.0
    _data: list[str] = field(default_factory=list)

    async def read(self, parts: AsyncIterable[bytes]) -> AsyncIterator[Event]:
        async for line in lines_of(parts):
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if line == "" and self._data:
                row = json.loads("\n".join(self._data))
                self._data.clear()
                if isinstance(row, dict) and {"type", "seq", "data"} <= set(row):
                    yield event_of(row)
            elif name == "data":
                self._data.append(value)
            elif name == "retry" and value.isascii() and value.isdigit():
                self.retry_s = min(int(value) / 1000, _LONGEST_RETRY_S)


@dataclass(slots=True, kw_only=True)
class Follower:
    """One reader of one compile. `after` is the number of the last event that was given out."""

    transport: Transport
    compile_id: str
    after: int = 0
    n_connections: int = 0
    _failures: int = 0
    _lines: Lines = field(default_factory=Lines)

    async def events(self) -> AsyncIterator[Event]:
        """Yield events until the compile has ended. Raises KolmError; NotReachable after five minutes without an
        answer."""
        heard_at = time.monotonic()
        while True:
            try:
                async with aclosing(self._stream() if self._failures < _STREAM_TRIES else self.page()) as source:
                    async for event in self._in_order(source):
                        heard_at = time.monotonic()
                        yield event
                        if _is_last(event) and await self._status() == (True, True):
                            return
                has_ended, _ = await self._status()
                heard_at = time.monotonic()
                if has_ended:
                    async for one in self._in_order(self.page()):
                        yield one
                    return
            except KolmError as error:
                if not error.retryable or time.monotonic() - heard_at > _GIVE_UP_S:
                    raise
                self._failures += 1
            await self._pause()

    async def _in_order(self, events: AsyncIterable[Event]) -> AsyncIterator[Event]:
        """Each number once. Raises NotReachable where one was left out: it is asked for again."""
        async for event in events:
            if event.seq <= self.after:
                continue
            if event.seq != self.after + 1:
                raise NotReachable(f"Event {self.after + 1} of {self.compile_id} was left out.", retryable=True)
            self.after, self._failures = (event.seq, 0)
            yield event

    async def _status(self) -> tuple[bool, bool]:
        """(the compile has ended, no event comes after the last one given out). Both are asked, because a failed
        compile may have been resumed: then its first end is not its last."""
        row = await self._get(f"/v1/compiles/{self.compile_id}")
        return (row["status"] in TERMINAL, int(row.get("sequence") or 0) <= self.after)

    async def _pause(self) -> None:
        rng, has_failed = (self.transport.rng, self._failures > 0)
        pause_s = _POLL_S if self._failures >= _STREAM_TRIES else backoff_s(self._failures, rng, cap_s=_POLL_S)
        await self.transport.sleep(max(pause_s, self._lines.retry_s) if has_failed else pause_s)

    async def _stream(self) -> AsyncGenerator[Event]:
        http = self.transport.http
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(self.after)}
        self.n_connections += 1
        path, timeout = (f"/v1/compiles/{self.compile_id}/events", httpx.Timeout(10.0, read=45.0))
        try:
            async with http.stream("GET", path, headers=headers, timeout=timeout) as response:
                if response.status_code != 200:
                    await response.aread()
                check(response)
                if not response.headers.get("Content-Type", "").startswith("text/event-stream"):
                    raise KolmError("The API does not stream events.", retryable=True)
                self._lines = Lines()
                async for one in self._lines.read(response.aiter_bytes()):
                    yield one
        except httpx.HTTPError as error:
            raise not_reachable(http, error) from error

    async def page(self) -> AsyncGenerator[Event]:
        """Yield the events so far that come behind `after`."""
        after = self.after
        while True:
            page = await self._get(f"/v1/compiles/{self.compile_id}/events?after={after}")
            for row in page["data"]:
                after = row["seq"]
                yield event_of(row)
            if not page["has_more"]:
                return

    async def _get(self, path: str) -> dict[str, Any]:
        page: dict[str, Any] = (await self.transport.send("GET", path)).json()
        return page


async def lines_of(parts: AsyncIterable[bytes]) -> AsyncIterator[str]:
    """Lines as an event stream has them: they end at CR, LF or both, and nowhere else (Python would end one at U+2028
    too, which JSON may hold)."""
    rest = b""
    async for part in parts:
        *lines, rest = (rest + part).replace(b"\r\n", b"\n").split(b"\n")
        for line in lines:
            for one in (piece.decode("utf-8", "replace") for piece in line.split(b"\r")):
                yield one
