"""A provider on loopback that lists two models to whoever has its key, and refuses all others."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import cast


class _Provider(ThreadingHTTPServer):
    secret: str


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        is_known = self.headers.get("Authorization") == f"Bearer {cast(_Provider, self.server).secret}"
        body = b'{"data": [{"id": "a"}, {"id": "b"}]}' if is_known else b'{"error": "no"}'
        self.send_response(200 if is_known else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@contextmanager
def model_list_provider(secret: str) -> Iterator[str]:
    """The provider's origin; its list is at /v1/models."""
    server = _Provider(("127.0.0.1", 0), _Handler)
    server.secret = secret
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
