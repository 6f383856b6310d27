"""Connections and bodies at the port itself, where a responder lets in whoever shows a pass."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.responses import StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from gpu_runners.serving.openai import arrival, connections
from gpu_runners.serving.openai.app import make_app
from gpu_runners.serving.openai.arrival import MAX_BODY, Room
from gpu_runners.serving.openai.connections import MAX_HEAD, web_config
from gpu_runners.serving.openai.responder import Refusal, Served
from tests.cpu_time import own_objects_alone
from tests.hostile_bodies import connected, drip

CHAT = "/v1/chat/completions"


class WithPass:
    """Nobody is served: what is tested ends before."""

    async def admit(self, headers: Mapping[str, str]) -> str:
        if headers.get("authorization") != "pass":
            raise Refusal(401, "no_grant", "No pass.")
        return "alice"

    async def resolve(self, model: str, headers: Mapping[str, str]) -> Served:
        raise Refusal(404, "model_not_found", "There is none.")

    async def models(self, headers: Mapping[str, str]) -> list[dict[str, Any]]:
        return []


@contextmanager
def listening(app: Starlette) -> Iterator[int]:
    server = uvicorn.Server(web_config(app, port=0, log_config=None))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join(10)
    assert not thread.is_alive()


class Endless:
    """An answer without an end; `is_over` once it has been cut."""

    def __init__(self) -> None:
        self.is_over = threading.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await StreamingResponse(self._pieces())(scope, receive, send)
        finally:
            self.is_over.set()

    async def _pieces(self) -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 65536
            await asyncio.sleep(0)  # as an engine's answers do: what never waits is never cancelled


@pytest.fixture
def endless() -> Endless:
    return Endless()


@pytest.fixture
def port(endless: Endless) -> Iterator[int]:
    with listening(make_app(WithPass(), routes=[Route("/endless", endless)])) as port:
        yield port


@pytest.fixture
def impatient_port(monkeypatch: pytest.MonkeyPatch, port: int) -> int:
    """The port with a second in place of the product's times, for those who drip, are silent, or do not read."""
    monkeypatch.setattr(connections, "HEAD_S", 1.0)
    monkeypatch.setattr(connections, "WRITE_S", 1.0)
    monkeypatch.setattr(arrival, "PAUSE_S", 1.0)
    return port


def head(*lines: str, method: str = "POST", path: str = CHAT) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: here", *lines, "", ""]).encode()


def answer(connection: socket.socket) -> str:
    """All that comes until the other side closes, which is part of what is tested."""
    received = b""
    with suppress(ConnectionResetError):
        while piece := connection.recv(65536):
            received += piece
    return received.decode()


@pytest.mark.parametrize("line", ["Content-Length: 4000000", "Transfer-Encoding: chunked", "Content-Length: 4"])
@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", CHAT, 401),
        ("POST", "/v1/completions", 401),
        ("POST", "/x", 404),
        ("PUT", CHAT, 405),
        ("GET", "/healthz", 200),
    ],
)
def test_who_may_not_send_a_body_is_answered_before_it_and_hung_up_on(
    port: int, method: str, path: str, status: int, line: str
) -> None:
    """Not a byte of it was sent."""
    with connected(port) as connection:
        connection.sendall(head(line, method=method, path=path))
        assert answer(connection).startswith(f"HTTP/1.1 {status} ")


def test_a_connection_goes_on_after_what_was_read_whole(port: int) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        for body in (b"{", b'{"model": "m", "messages": [{"role": "user", "content": "x"}]}'):
            response = client.post(CHAT, content=body, headers={"Authorization": "pass"})
            assert "connection" not in response.headers
        assert response.json()["error"]["code"] == "model_not_found"
        assert "connection" not in client.get("/healthz").headers


def test_a_body_too_long_is_refused_by_what_it_says_or_by_what_comes(port: int) -> None:
    for announced in (str(MAX_BODY + 1), "9" * 19):
        with connected(port) as connection:
            connection.sendall(head("Authorization: pass", f"Content-Length: {announced}"))
            assert "body_too_large" in answer(connection)
    with connected(port) as connection:
        connection.sendall(head("Authorization: pass", "Transfer-Encoding: chunked"))
        with suppress(OSError):
            for _ in range(MAX_BODY // 65536 + 2):
                connection.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")
        assert "body_too_large" in answer(connection)


@pytest.mark.nightly
@pytest.mark.parametrize("start", [b"", b"GET /healthz HTTP/1.1\r\nHost: here\r\nX-Drip: "])
def test_heads_that_drip_are_cut(impatient_port: int, start: bytes) -> None:
    with connected(impatient_port) as connection:
        connection.sendall(start)
        drip(connection, b"x", within_s=10)
    with connected(impatient_port) as connection:  # behind an answer, too
        connection.sendall(head(method="GET", path="/healthz"))
        assert b" 200 " in connection.recv(65536)
        connection.sendall(start)
        drip(connection, b"x", within_s=10)


def test_a_connection_that_says_nothing_is_cut(impatient_port: int) -> None:
    with connected(impatient_port) as connection:
        assert answer(connection) == ""


@pytest.mark.parametrize("piece", [b" ", b"1\r\n \r\n"])
def test_bodies_that_drip_are_answered_and_cut(impatient_port: int, piece: bytes) -> None:
    line = "Content-Length: 100000" if piece == b" " else "Transfer-Encoding: chunked"
    with connected(impatient_port) as connection:
        connection.sendall(head("Authorization: pass", line))
        assert "body_too_slow" in drip(connection, piece, within_s=10)


def test_heads_are_bounded_also_where_they_come_whole(port: int) -> None:
    for n in (2 * MAX_HEAD, 20 * MAX_HEAD):
        with connected(port) as connection, suppress(OSError):
            connection.sendall(head("A: b\r\n" * (n // 6), method="GET", path="/healthz"))
            assert not answer(connection).startswith("HTTP/1.1 200")


def test_chunks_of_a_byte_do_not_keep_the_loop_busy(port: int, caplog: pytest.LogCaptureFixture) -> None:
    """Also before anybody has asked for a grant. Before, a megabyte of them took seconds of the loop."""
    caplog.set_level("ERROR", "uvicorn.error")
    flood = b"1\r\nx\r\n" * 40_000
    with own_objects_alone():
        began = time.process_time()
        for line in ("Authorization: pass", "Authorization: none") * 2:
            with connected(port) as connection, suppress(OSError):
                connection.sendall(head(line, "Transfer-Encoding: chunked") + flood)
                answer(connection)
        assert time.process_time() - began < 1.0
    assert not caplog.records  # a stranger fills no log
    assert httpx.get(f"http://127.0.0.1:{port}/healthz").status_code == 200


@pytest.mark.nightly
def test_who_does_not_take_the_answer_is_cut(impatient_port: int, endless: Endless) -> None:
    with connected(impatient_port) as connection:
        connection.sendall(head(method="GET", path="/endless"))
        assert endless.is_over.wait(30)
        received = 0
        with suppress(ConnectionResetError):
            while piece := connection.recv(1 << 20):
                received += len(piece)
                assert received < 1 << 26


def test_large_bodies_of_one_sender_leave_room_for_anothers() -> None:
    room = Room(n_bytes=1_000_000, sender_bytes=400_000)
    with room.hold("alice", 300_000):
        with pytest.raises(Refusal) as refused, room.hold("alice", 300_000):
            pass
        assert (refused.value.status, refused.value.code) == (429, "too_many_uploads")
        with room.hold("alice", 1_000), room.hold("bob", 400_000), room.hold("carol", 300_000):
            with pytest.raises(Refusal) as refused, room.hold("dave", 100_000):
                pass
            assert (refused.value.status, refused.value.code) == (503, "uploads_busy")
    with room.hold("alice", 400_000):
        pass


@pytest.mark.parametrize(
    "text",
    [
        '{"model": "a", "model": "b"}',
        "[" * 65 + "]" * 65,
        "[" * 100_000,
        '{"seed": ' + "9" * 5_000 + "}",
        '{"temperature": NaN}',
        '{"temperature": -Infinity}',
        '{"temperature": 1e999}',
        '{"user": "\\ud800"}',
        '{"\\udfff": 1}',
        '{"user": "\\u0000"}',
        '{"messages": [' + "[]," * 60_000 + "[]]}",
        '{"user": "' + "[" * 100_000 + '"',
    ],
)
def test_json_that_readers_disagree_on_is_told_so(port: int, text: str) -> None:
    response = httpx.post(f"http://127.0.0.1:{port}{CHAT}", content=text.encode(), headers={"Authorization": "pass"})
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, "invalid_json")
    assert error["message"].startswith("The body ")


def test_brackets_inside_strings_are_text(port: int) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": '[{"\\' * 100_000}]}
    response = httpx.post(f"http://127.0.0.1:{port}{CHAT}", json=body, headers={"Authorization": "pass"})
    assert response.json()["error"]["code"] == "model_not_found"


@pytest.mark.parametrize("arguments", ["[" * 900 + "]" * 900, "9" * 5_000, '{"a": 1, "a": 2}', "NaN", "[]," * 60_000])
def test_arguments_of_tool_calls_are_read_like_bodies(port: int, arguments: str) -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": arguments}}
    body = {"model": "m", "messages": [{"role": "assistant", "tool_calls": [call]}]}
    response = httpx.post(f"http://127.0.0.1:{port}{CHAT}", content=json.dumps(body), headers={"Authorization": "pass"})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "messages[0].tool_calls")


def test_a_head_and_its_body_go_out_at_once_on_the_sockets_that_servers_listen_on() -> None:
    server = uvicorn.Server(web_config(make_app(WithPass()), log_config=None))
    listening = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    with httpx.Client(base_url=f"http://127.0.0.1:{listening.getsockname()[1]}") as client:
        assert client.get("/healthz").status_code == 200
        (protocol,) = server.server_state.connections
        accepted = protocol.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
    server.should_exit = True
    thread.join(10)
