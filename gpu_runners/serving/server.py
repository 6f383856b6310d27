"""`kolm serve`: one artifact behind a small HTTP server of the standard library, on loopback unless told otherwise.

    POST /v1/run    {"input": "text" or ["text", ...]}  ->  {"outputs": [{"label", "confidence", "latency_us"}, ...]}
    GET  /v1/model  what is served, from the signed manifest
    GET  /healthz   {"status": "ok"}

No TLS, no accounts: a laptop's or a sidecar's server. The multi-tenant gateway is `POST /v1/artifacts/{id}/run`.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from gpu_runners.serving.label_model import LabelModel

MAX_BODY = 1_000_000
MAX_INPUTS = 256
MAX_CHARS = 100_000
_READ_TIMEOUT_S = 15.0


class Rejected(Exception):
    """A request that cannot be answered; `status` is its HTTP status."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail = status, code, detail


class ArtifactServer(ThreadingHTTPServer):
    """One model, one forward pass at a time: two at once would only share the same core."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], *, model: LabelModel, manifest: dict[str, Any]) -> None:
        super().__init__(address, _Handler)
        self.model, self.manifest, self.turn = model, manifest, threading.Lock()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "kolm"
    sys_version = ""
    timeout = _READ_TIMEOUT_S

    def do_GET(self) -> None:
        server = cast(ArtifactServer, self.server)
        if self.path == "/healthz":
            self._answer(200, {"status": "ok"})
        elif self.path == "/v1/model":
            kept = ("name", "version", "compile", "task_type", "base", "k_score_ppm", "created_at")
            shown = {key: server.manifest[key] for key in kept if key in server.manifest}
            self._answer(200, shown | {"labels": server.model.labels})
        else:
            self._refuse(Rejected(404, "not_found", "Use POST /v1/run, GET /v1/model or GET /healthz."))

    def do_POST(self) -> None:
        server = cast(ArtifactServer, self.server)
        try:
            if self.path != "/v1/run":
                raise Rejected(404, "not_found", "Use POST /v1/run.")
            texts = _texts(self._body())
            with server.turn:
                outputs = server.model.predict(texts)
        except Rejected as rejected:
            self._refuse(rejected)
        else:
            self._answer(200, {"outputs": outputs})

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdigit():
            raise Rejected(411, "length_required", "Send the body with a Content-Length.")
        if int(length) > MAX_BODY:
            raise Rejected(413, "payload_too_large", f"A request has at most {MAX_BODY} bytes.")
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise Rejected(400, "truncated", "The body ended before its Content-Length.")
        return body

    def _refuse(self, rejected: Rejected) -> None:
        self.close_connection = True  # what is left of the body must not be read as the next request
        problem = {"status": rejected.status, "code": rejected.code, "detail": rejected.detail}
        self._answer(rejected.status, problem, content_type="application/problem+json")

    def _answer(self, status: int, value: dict[str, Any], *, content_type: str = "application/json") -> None:
        data = json.dumps(value, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Inputs are customers' text: nothing of a request is logged."""


def _texts(body: bytes) -> list[str]:
    try:
        value = json.loads(body)
    except ValueError as error:
        raise Rejected(400, "invalid_json", f"The body is not JSON in UTF-8: {error}.") from error
    if not isinstance(value, dict) or set(value) != {"input"}:
        raise Rejected(422, "invalid_input", 'Send {"input": "text"} or {"input": ["text", ...]}.')
    texts = [value["input"]] if isinstance(value["input"], str) else value["input"]
    if not isinstance(texts, list) or not all(isinstance(text, str) and len(text) <= MAX_CHARS for text in texts):
        raise Rejected(422, "invalid_input", f"`input` is a text of at most {MAX_CHARS} characters, or a list of such.")
    if not 1 <= len(texts) <= MAX_INPUTS:
        raise Rejected(422, "invalid_input", f"`input` has {len(texts)} texts; send 1 to {MAX_INPUTS} at a time.")
    return texts
