"""A wire that is listened to: what a client sends to a real server and what that answers, passed on unchanged."""

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

from tests.workers.real_servers.servers import RealServer

PATIENCE_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    asked: dict[str, Any]
    status: int
    answered: Any


@dataclass(slots=True)
class Wire:
    """The server as its client sees it, through this."""

    server: RealServer
    origin: str = ""
    heard: list[Exchange] = field(default_factory=list)
    guard: threading.Lock = field(default_factory=threading.Lock)

    @property
    def base_url(self) -> str:
        return f"{self.origin}/v1"

    @property
    def answered(self) -> list[Exchange]:
        return [one for one in self.heard if one.status == 200]

    @property
    def refused(self) -> list[Exchange]:
        return [one for one in self.heard if one.status != 200]


@contextlib.contextmanager
def listening(server: RealServer) -> Iterator[Wire]:
    """Pass everything on for the length of the block."""
    wire = Wire(server)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            reply = httpx.post(
                server.origin + self.path,
                content=body,
                headers={"content-type": "application/json"},
                timeout=PATIENCE_S,
            )
            with wire.guard:
                wire.heard.append(Exchange(asked=json.loads(body), status=reply.status_code, answered=_json(reply)))
            self.send_response(reply.status_code)
            self.send_header("content-type", reply.headers.get("content-type", "application/json"))
            self.send_header("content-length", str(len(reply.content)))
            self.end_headers()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.wfile.write(reply.content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    far = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    far.daemon_threads = True
    thread = threading.Thread(target=far.serve_forever, kwargs={"poll_interval": 0.05}, name="wire")
    thread.start()
    wire.origin = f"http://127.0.0.1:{far.server_address[1]}"
    try:
        yield wire
    finally:
        far.shutdown()
        far.server_close()
        thread.join()


def _json(reply: httpx.Response) -> Any:
    try:
        return reply.json()
    except ValueError:
        return reply.text
