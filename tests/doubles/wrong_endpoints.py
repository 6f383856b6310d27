"""One server on loopback with every wrong endpoint that a stranger's first spec may name, each under a path of its own:
`http://127.0.0.1:PORT/CASE/v1`. It keeps what was asked of each."""

import gzip
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "sk-canary-4f9c1d2e8b7a6053"
ORGANISATION = "org-canary-77"  # vendors quote accounts back; none of it may be shown
PAGE = f"<!doctype html><html><head><title>Log in</title></head><body>Welcome {ORGANISATION}</body></html>"
DRIP_S = 0.2
Act = Callable[["_Handler"], None]


def says(status: int, value: Any, **headers: str) -> Act:
    """Answer with JSON, or with a text as it is."""

    def act(handler: "_Handler") -> None:
        body = value.encode() if isinstance(value, str) else json.dumps(value).encode()
        kind = "text/html" if isinstance(value, str) else "application/json"
        handler.reply(status, body, **({"content_type": kind} | headers))

    return act


def refuses(status: int, message: str, code: str = "", **more: Any) -> Act:
    return says(status, {"error": {"message": f"{message} ({ORGANISATION})", "code": code or None, **more}})


def completes(text: str = "complaint") -> dict[str, Any]:
    """A chat completion as it should be."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    return {"id": "c", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}


def bombs(handler: "_Handler") -> None:
    """Send 50 MB of zeros in 50 KB, compressed though nobody asked for that."""
    handler.reply(200, gzip.compress(b"0" * 50_000_000), content_encoding="gzip", content_type="application/json")


def never_ends(handler: "_Handler") -> None:
    """Send a JSON text a piece at a time, for as long as anybody reads."""
    handler.begin(200)
    handler.wfile.write(b'{"choices": [{"message": {"content": "')
    while not handler.server.closing.wait(DRIP_S):
        handler.wfile.write(b"a")


def floods(handler: "_Handler") -> None:
    """Send as much as the socket takes."""
    handler.begin(200)
    handler.wfile.write(b'{"choices": [{"message": {"content": "')
    while not handler.server.closing.is_set():
        handler.wfile.write(b"a" * 65_536)


def streams(handler: "_Handler") -> None:
    """Answer as a stream of events, as some gateways do whatever was asked."""
    chunk = {"object": "chat.completion.chunk", "choices": [{"delta": {"content": "complaint"}}]}
    handler.reply(200, f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode(), content_type="text/event-stream")


NOT_A_NUMBER = json.dumps(completes()).replace('"prompt_tokens": 9', '"prompt_tokens": NaN')
CASES: dict[str, Act] = {
    "wrong-key": refuses(401, f"Incorrect API key provided: {KEY}", "invalid_api_key"),
    "no-quota": refuses(429, "You exceeded your current quota, check your plan", "insufficient_quota"),
    "no-balance": refuses(402, "Insufficient Balance"),
    "no-access": refuses(403, "The project does not have access to model m"),
    "no-such-model": refuses(404, "The model `m` does not exist", "model_not_found"),
    "no-such-path": says(404, {"detail": "Not Found"}),
    "page": says(200, PAGE),
    "forbidden-page": says(403, PAGE),
    "redirect": says(302, "", location=f"https://login.example.com/?account={ORGANISATION}"),
    "error-in-200": refuses(200, f"Incorrect API key provided: {KEY}", "invalid_api_key"),
    "quota-in-200": says(200, {"error": {"message": f"Insufficient credits of {ORGANISATION}", "code": 402}}),
    "refuses-everything": refuses(400, "Bad Request"),
    "other-json": says(200, {"status": "ok"}),
    "other-text": says(200, "Ollama is running"),
    "empty": says(200, ""),
    "stream": streams,
    "not-a-number": says(200, NOT_A_NUMBER, content_type="application/json"),
    "bomb": bombs,
    "endless": never_ends,
    "flood": floods,
    "https-port": says(400, "<html><title>400 The plain HTTP request was sent to HTTPS port</title></html>"),
    "method": says(405, {"detail": "Method Not Allowed"}),
}


class WrongEndpoints(ThreadingHTTPServer):
    """`asked` counts the requests of each case, `keys` keeps what stood in their Authorization."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: Counter[str] = Counter()
        self.keys: set[str] = set()
        self.closing = threading.Event()

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def url(self, case: str) -> str:
        return f"{self.origin}/{case}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is its own business."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: WrongEndpoints

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        case, _, path = self.path.removeprefix("/").partition("/")
        self.server.asked[case] += 1
        self.server.keys.add(self.headers.get("Authorization", ""))
        known = case in CASES and path == "v1/chat/completions"
        (CASES[case] if known else CASES["no-such-path"])(self)

    def begin(self, status: int, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "content_length" not in headers:
            self.send_header("Connection", "close")
        self.end_headers()

    def reply(self, status: int, body: bytes, **headers: str) -> None:
        self.begin(status, content_length=str(len(body)), **headers)
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def wrong_endpoints() -> Iterator[WrongEndpoints]:
    server = WrongEndpoints()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="wrong-endpoints")
    thread.start()
    try:
        yield server
    finally:
        server.closing.set()
        server.shutdown()
        thread.join()
        server.server_close()
