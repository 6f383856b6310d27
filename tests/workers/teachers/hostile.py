"""A teacher on loopback that misbehaves as told, in raw bytes."""

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Any


class HostileTeacher:
    """Speaks raw bytes. `script[i]` acts on the i-th connection, the last one on all later ones; each gets the
    socket after a whole request has been read."""

    def __init__(self, *script: Callable[[socket.socket, threading.Event], None]) -> None:
        self._script = script
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self.requests: list[bytes] = []
        self.base_url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"

    def __enter__(self) -> "HostileTeacher":
        self._accepting = threading.Thread(target=self._accept, name="hostile-accept")
        self._accepting.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in [self._accepting, *self._threads]:
            thread.join(5)

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            n = len(self._threads)
            thread = threading.Thread(target=self._serve, args=(connection, n), name=f"hostile-{n}")
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket, n: int) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(5)
            self.requests.append(read_request(connection))
            self._script[min(n, len(self._script) - 1)](connection, self._over)


def read_request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return data
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    length = next((int(h.split(b":")[1]) for h in head.split(b"\r\n") if h.lower().startswith(b"content-length")), 0)
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def answer(status: int, body: bytes, **headers: str) -> Callable[[socket.socket, threading.Event], None]:
    """One HTTP answer and the end of the connection."""
    lines = {
        "content-length": str(len(body)),
        "connection": "close",
        **{k.replace("_", "-"): v for k, v in headers.items()},
    }
    head = f"HTTP/1.1 {status} X\r\n" + "".join(f"{k}: {v}\r\n" for k, v in lines.items()) + "\r\n"

    def act(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(head.encode() + body)

    return act


def completion_body(*texts: str, usage: Any = None) -> dict[str, Any]:
    choices = [
        {"index": i, "message": {"role": "assistant", "content": t}, "finish_reason": "stop"}
        for i, t in enumerate(texts)
    ]
    return {"choices": choices, "usage": usage or {"prompt_tokens": 9, "completion_tokens": 5}}
