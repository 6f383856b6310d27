"""A receiver of webhooks on this machine, that can be away, slow or unwilling."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast


@dataclass(frozen=True, slots=True, kw_only=True)
class Got:
    headers: dict[str, str]
    body: bytes


class Receiver(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.got: list[Got] = []
        self.status = 200


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        receiver = cast(Receiver, self.server)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        receiver.got.append(Got(headers=dict(self.headers.items()), body=body))
        self.send_response(receiver.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def receiving(port: int = 0) -> Iterator[Receiver]:
    with Receiver(port) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
