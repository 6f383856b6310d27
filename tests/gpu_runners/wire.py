"""A far side that plays what a test has written down: statuses, headers and bodies in turn, on loopback, with a note of
all that was asked."""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Say:
    """One answer. `cuts`: the connection is closed before any byte of it."""

    status: int = 200
    body: Any = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    cuts: bool = False


class Wire(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, script: Sequence[Say]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script, self.asked = list(script), list[Asked]()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def next(self) -> Say:
        """The last answer goes on for ever."""
        return self.script.pop(0) if len(self.script) > 1 else self.script[0]


class _Handler(BaseHTTPRequestHandler):
    def _answer(self) -> None:
        wire = cast(Wire, self.server)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        wire.asked.append(Asked(method=self.command, path=self.path, headers=headers, body=body))
        say = wire.next()
        if say.cuts:
            self.close_connection = True
            return
        data = say.body if isinstance(say.body, bytes) else json.dumps(say.body).encode()
        self.send_response(say.status)
        for name, value in {"Content-Type": "application/json", **say.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PATCH = do_DELETE = _answer

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def wire(*script: Say) -> Iterator[Wire]:
    with Wire(script) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
