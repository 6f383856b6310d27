"""Connections that cost little until they have said who they are: uvicorn's HTTP/1.1 with the bounds that it lacks.

    head      complete within HEAD_S, at most twice MAX_HEAD bytes
    body      in pieces that are worth their handling: chunks of a byte each would keep the loop busy, before any grant
    answer    taken within WRITE_S once the line is full: who does not read holds a turn of the engine

A body's pace is `arrival`'s business.
"""

import asyncio
import socket
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 10.0
WRITE_S = 30.0
MAX_HEAD = 16_384
_FREE_PIECES = 1_000
_LEAST_PIECE = 100  # bytes, on the average of those after the free ones


def web_config(app: ASGIApp, **more: Any) -> uvicorn.Config:
    """The settings for a port that strangers may reach."""
    return uvicorn.Config(
        app, http=BoundedProtocol, ws="none", h11_max_incomplete_event_size=MAX_HEAD, access_log=False, lifespan="off",
        server_header=False, date_header=False, **more,
    )  # fmt: skip


class BoundedProtocol(H11Protocol):
    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.conn = _Pieces(h11.SERVER, MAX_HEAD)
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # asyncio does so for sockets that name TCP as their protocol, which `socket.create_server` does not: a head and
        # its body, or two events of a stream, would lie 40 ms apart
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._bound_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._bound_head()
        self._unset_write_timer()

    def data_received(self, data: bytes) -> None:
        """Feed the parser in slices, because h11 looks at a head's size only while it is not complete."""
        for begin in range(0, len(data), MAX_HEAD):
            if self.transport.is_closing():
                break
            super().data_received(data[begin : begin + MAX_HEAD])
        self._bound_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._bound_head()

    def send_400_response(self, msg: str) -> None:
        """Amid an answer there is no place for another one, and behind this one there is none for the application's."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.abort()
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(WRITE_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unset_write_timer()

    def _bound_head(self) -> None:
        """One timer for a whole head, from the connection or from the end of the exchange before it."""
        is_awaited = self.conn.their_state is h11.IDLE and not self.transport.is_closing()
        if is_awaited and self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_S, self.transport.abort)
        elif not is_awaited and self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _unset_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None


class _Pieces(h11.Connection):
    """Counts a body's pieces: each costs some 20 us of the loop, however short it is."""

    _n_pieces = _n_bytes = 0

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._n_pieces = self._n_bytes = 0
        elif isinstance(event, h11.Data):
            self._n_pieces += 1
            self._n_bytes += len(event.data)
            if self._n_pieces > _FREE_PIECES + self._n_bytes // _LEAST_PIECE:
                raise h11.RemoteProtocolError("a body in too many small pieces")
        return event
