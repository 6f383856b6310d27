"""Bodies that cost the most that a stranger could think of, the routes that take one, and connections by hand."""

import socket
import time
from collections.abc import Callable

from tests.web_stack import WebStack

MB = 1_000_000
ROUTES = (
    "/v1/specs/validate",
    "/v1/compiles",
    "/v1/compiles/estimate",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/select",
    "/v1/api_keys",
    "/v1/budgets",
    "/v1/deployments",
    "/v1/drafts/preview",
    "/v1/invitations",
    "/v1/teacher_keys",
    "/v1/webhook_endpoints",
    "/v1/billing/checkout",
    "/v1/uploads",
)


def many(piece: Callable[[int], str], *, around: str = "{}", between: str = ",") -> bytes:
    """A little less than 1 MB of pieces."""
    n = (MB - 1000) // (len(piece(10**6)) + len(between))
    return (around[0] + between.join(piece(10**6 + i) for i in range(n)) + around[-1]).encode()


WORST = {
    "the same key twice, at the end": lambda: many(lambda i: f'"{i}":1')[:-1] + b',"x":1,"x":2}',
    "unknown keys": lambda: many(lambda i: f'"naem{i}":1'),
    "deep lists": lambda: b"[" * (MB // 2 - 500) + b"]" * (MB // 2 - 500),
    "deep objects": lambda: b'{"a":' * (MB // 6 - 100) + b"1" + b"}" * (MB // 6 - 100),
    "wide and as deep as may be": lambda: many(lambda i: "[" * 60 + "]" * 60, around="[]"),
    "long numbers": lambda: many(lambda i: "9" * 4200, around="[]"),
    "numbers beyond a float": lambda: many(lambda i: "1.5e308", around="[]")[:-1] + b",1e400]",
    "long fractions": lambda: b'{"name":0.' + b"123456789" * (MB // 9 - 200) + b"}",
    "escapes": lambda: b'{"name":"' + b"\\u0041" * (MB // 6 - 100) + b'"}',
    "pairs of surrogates": lambda: b'{"name":"' + b"\\ud83d\\ude00" * (MB // 12 - 100) + b'"}',
    "backslashes": lambda: b'{"name":"' + b"\\\\" * (MB // 2 - 100) + b'"}',
    "small strings": lambda: many(lambda i: '"\\ud83d\\ude00"', around="[]"),
    "rows that are none": lambda: b'{"examples":{"inline":' + many(lambda i: "1", around="[]")[:-20] + b"]}}",
    "empty rows": lambda: b'{"messages":' + many(lambda i: "{}", around="[]")[:-20] + b'{}],"model":"m"}',
}


def connection_to(web: WebStack) -> socket.socket:
    return connected(web.port, timeout_s=60)


def head_of(path: str, length: int, *more: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {length}", *more, "", ""]
    return "\r\n".join(lines).encode()


def connected(port: int, *, timeout_s: float = 20) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def drip(connection: socket.socket, piece: bytes, *, within_s: float = 10.0) -> str:
    """The answer to a piece every tenth of a second, until the other side closes, which it has to."""
    connection.settimeout(0.1)
    until, received = time.monotonic() + within_s, b""
    while time.monotonic() < until:
        try:
            connection.sendall(piece)
            more = connection.recv(65536)
        except TimeoutError:
            continue
        except OSError:
            return received.decode()
        if not more:
            return received.decode()
        received += more
    raise AssertionError(f"still open after {within_s} s")
