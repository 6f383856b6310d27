"""The grammar teacher over HTTP, in the shape of OpenAI's API, so that demo and tests run the production client
against it.

    python -m workers.teachers.grammar.server --port 8900 [--grammar FILE] [--host 127.0.0.1]

GET /v1/models, POST /v1/chat/completions, POST /v1/completions: what they take and answer is in `api`. No key
is checked: it listens on loopback and knows no secret.
"""

import argparse
import contextlib
import json
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from backend.domain.log_text import describe_with_places, guard_logs
from workers.teachers.grammar.api import BadRequest, chat_completion, text_completion
from workers.teachers.grammar.files import load_grammar, shipped_grammar
from workers.teachers.grammar.model import MODEL, GrammarModel
from workers.teachers.grammar.refusal import NotOurPrompt

BODY_CAP = 1_000_000


class GrammarServer(ThreadingHTTPServer):
    """`server_close` ends the idle keep-alive connections too, so that no thread outlives it."""

    daemon_threads = False  # the standard library joins no daemon thread
    block_on_close = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], model: GrammarModel) -> None:
        self.model = model
        self._open: set[socket.socket] = set()
        self._guard = threading.Lock()
        super().__init__(address, _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._guard:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._open.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        with self._guard:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        super().server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        fault = sys.exception()
        if fault and not isinstance(fault, OSError):  # a client that hangs up is its own business
            print(describe_with_places(fault), file=sys.stderr, flush=True)  # the library's own would print the prompt


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: GrammarServer
    timeout = 60
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            row = {"id": MODEL, "object": "model", "owned_by": "kolm", "revision": self.server.model.revision}
            self._send(200, {"object": "list", "data": [row]})
        elif self.path == "/healthz":
            self._send(200, {"status": "ok"})
        else:
            self._send(404, _error("no such path"))

    def do_POST(self) -> None:
        routes = {"/v1/chat/completions": chat_completion, "/v1/completions": text_completion}
        raw = self._read_body()
        if raw is None:
            return
        try:
            body = json.loads(raw)
            if self.path not in routes:
                self._send(404, _error("no such path"))
            elif not isinstance(body, dict):
                self._send(400, _error("the body is not a JSON object"))
            else:
                self._send(200, routes[self.path](self.server.model, body))
        except (BadRequest, NotOurPrompt) as wrong:
            self._send(400, _error(str(wrong)))
        except (ValueError, RecursionError):
            self._send(400, _error("the body is not valid JSON"))

    def _read_body(self) -> bytes | None:
        length = self.headers.get("content-length", "")
        if not length.isdigit() or int(length) > BODY_CAP:
            self.close_connection = True
            self._send(413 if length.isdigit() else 411, _error(f"send a Content-Length of at most {BODY_CAP} bytes"))
            return None
        return self.rfile.read(int(length))

    def _send(self, status: int, value: dict[str, Any]) -> None:
        data = json.dumps(value, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.send_header("x-request-id", f"grm-{time.time_ns():x}")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass  # a line a call would drown the demo's output


def _error(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error"}}


@contextlib.contextmanager
def serving(model: GrammarModel, *, host: str = "127.0.0.1", port: int = 0) -> Iterator[GrammarServer]:
    """A running server for the length of the block; every thread of it has ended afterwards."""
    server = GrammarServer((host, port), model)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="grammar-server")
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m workers.teachers.grammar.server", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--grammar", type=Path, help="a file in the place of the grammars of this release")
    args = parser.parse_args(argv)
    guard_logs()
    model = GrammarModel(shipped_grammar() if args.grammar is None else load_grammar(args.grammar.read_bytes()))
    stop = threading.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: stop.set())
    with serving(model, host=args.host, port=args.port) as server:
        print(f"grammar teacher {model.revision[:12]} on {server.url}", flush=True)
        stop.wait()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
