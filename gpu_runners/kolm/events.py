"""A compile's events, once each and in order, over however many connections it takes."""

import json
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import httpx

from .errors import KolmError, NotReachable
from .transport import Transport, backoff_s, check, not_reachable

TERMINAL = frozenset({"succeeded", "gate_failed", "failed", "canceled", "expired"})
_POLL_S = 2.0
_GIVE_UP_S = 300.0  # without one answer from the API
_STREAM_TRIES = 3  # then the list is polled: some proxies let no stream through
_LONGEST_RETRY_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """`seq` counts 1, 2, 3 within the compile. docs/events.md has the types and what is in `data`."""

    type: str
    seq: int
    data: dict[str, Any]
    created_at: str = ""


@dataclass(slots=True, kw_only=True)
class Lines:
    """The events of a `text/event-stream` whose data is `{"type", "seq", "data"}`; comments and data of other shapes
    are passed over. `retry_s`: how long the server asks to wait before the next connection."""

    retry_s: float = 0.0
    _data: list[str] = field(default_factory=list)

    def read(self, parts: Iterable[bytes]) -> Iterator[Event]:
        for line in lines_of(parts):
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

    def events(self) -> Iterator[Event]:
        """Yield events until the compile has ended. Raises KolmError; NotReachable after five minutes without an
        answer."""
        heard_at = time.monotonic()
        while True:
            try:
                with closing(self._stream() if self._failures < _STREAM_TRIES else self.page()) as source:
                    for event in self._in_order(source):
                        heard_at = time.monotonic()
                        yield event
                        if _is_last(event) and self._status() == (True, True):
                            return
                has_ended, _ = self._status()
                heard_at = time.monotonic()
                if has_ended:
                    yield from self._in_order(self.page())
                    return
            except KolmError as error:
                if not error.retryable or time.monotonic() - heard_at > _GIVE_UP_S:
                    raise
                self._failures += 1
            self._pause()

    def _in_order(self, events: Iterable[Event]) -> Iterator[Event]:
        """Each number once. Raises NotReachable where one was left out: it is asked for again."""
        for event in events:
            if event.seq <= self.after:
                continue
            if event.seq != self.after + 1:
                raise NotReachable(f"Event {self.after + 1} of {self.compile_id} was left out.", retryable=True)
            self.after, self._failures = event.seq, 0
            yield event

    def _status(self) -> tuple[bool, bool]:
        """(the compile has ended, no event comes after the last one given out). Both are asked, because a failed
        compile may have been resumed: then its first end is not its last."""
        row = self._get(f"/v1/compiles/{self.compile_id}")
        return row["status"] in TERMINAL, int(row.get("sequence") or 0) <= self.after

    def _pause(self) -> None:
        rng, has_failed = self.transport.rng, self._failures > 0
        pause_s = _POLL_S if self._failures >= _STREAM_TRIES else backoff_s(self._failures, rng, cap_s=_POLL_S)
        self.transport.sleep(max(pause_s, self._lines.retry_s) if has_failed else pause_s)

    def _stream(self) -> Generator[Event]:
        http = self.transport.http
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(self.after)}
        self.n_connections += 1
        path, timeout = f"/v1/compiles/{self.compile_id}/events", httpx.Timeout(10.0, read=45.0)
        try:
            with http.stream("GET", path, headers=headers, timeout=timeout) as response:
                if response.status_code != 200:
                    response.read()
                check(response)
                if not response.headers.get("Content-Type", "").startswith("text/event-stream"):
                    raise KolmError("The API does not stream events.", retryable=True)
                self._lines = Lines()
                yield from self._lines.read(response.iter_bytes())
        except httpx.HTTPError as error:
            raise not_reachable(http, error) from error

    def page(self) -> Generator[Event]:
        """Yield the events so far that come behind `after`."""
        after = self.after
        while True:
            page = self._get(f"/v1/compiles/{self.compile_id}/events?after={after}")
            for row in page["data"]:
                after = row["seq"]
                yield event_of(row)
            if not page["has_more"]:
                return

    def _get(self, path: str) -> dict[str, Any]:
        page: dict[str, Any] = self.transport.send("GET", path).json()
        return page


def lines_of(parts: Iterable[bytes]) -> Iterator[str]:
    """Lines as an event stream has them: they end at CR, LF or both, and nowhere else (Python would end one at U+2028
    too, which JSON may hold)."""
    rest = b""
    for part in parts:
        # a CR at the end of a part may have its LF in the next one
        *lines, rest = (rest + part).replace(b"\r\n", b"\n").split(b"\n")
        for line in lines:
            yield from (piece.decode("utf-8", "replace") for piece in line.split(b"\r"))


def event_of(row: dict[str, Any]) -> Event:
    return Event(type=row["type"], seq=row["seq"], data=row["data"], created_at=str(row.get("created_at") or ""))


def _is_last(event: Event) -> bool:
    kind, _, status = event.type.partition(".")
    return kind == "compile" and status in TERMINAL
