"""`kolm serve` of a label or span student: behind a small HTTP server of the standard library, on loopback unless told
otherwise.

    POST /v1/run    {"inputs": ["text", ...]} or {"input": "text"}
                      ->  {"object": "run", "outputs": [{"label", "confidence", "latency_us"}, ...], ...}
                              (and "is_unsure" where the task abstains)
                              of a json task {"output", "fields", "confidence", ...}
    POST /v1/chat/completions, POST /v1/responses, GET /v1/models    OpenAI's; docs/serving-openai.md
    GET  /v1/model  what is served, from the signed manifest
    GET  /healthz   {"status": "ok"}

No TLS, no accounts: a laptop's or a sidecar's server. The multi-tenant gateway is `POST /v1/artifacts/{id}/run`.
Whoever reaches it may ask, but stops nobody else: heads and bodies have a pace, long bodies are read one at a time, and
connections are bounded in number.
"""

import io
import json
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import unquote

from backend.domain.strict_json import BadJson, read_json
from gpu_runners.artifacts.encoder_student import EncoderModel, StudentAnswer, model_answer
from gpu_runners.serving.openai.run_bodies import BadInputs, read_inputs, run_answer

if TYPE_CHECKING:
    from gpu_runners.serving.openai.one_student import OneStudent, Reply

MAX_BODY = 1_000_000
MAX_CONNECTIONS = 256
PAUSE_S = 15.0  # between two pieces of a request, and before the first
LEAST_BYTES_A_S = 10_000  # on the whole
_LONG = 16_000  # bytes of a body that is read in turn

OPENAI_PATHS = ("/v1/chat/completions", "/v1/responses", "/v1/completions")

T = TypeVar("T")


class Rejected(Exception):
    """A request that cannot be answered; `status` is its HTTP status."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail = status, code, detail


class ArtifactServer(ThreadingHTTPServer):
    """One model, one forward pass at a time: two at once would only share the same core. `reading` is held by the one
    thread that parses a long body."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], *, model: EncoderModel, manifest: dict[str, Any]) -> None:
        super().__init__(address, _Handler)
        self.model, self.manifest, self.turn, self.since = model, manifest, threading.Lock(), int(time.time())
        self.reading, self._free = threading.Lock(), threading.BoundedSemaphore(MAX_CONNECTIONS)

    def openai(self) -> "OneStudent":
        from gpu_runners.serving.openai.one_student import OneStudent  # starlette and llguidance, for whom they serve

        return OneStudent(name=str(self.manifest["name"]), student=self.model, answer=self._answer, created=self.since)

    def _answer(self, text: str) -> StudentAnswer:
        with self.turn:
            return model_answer(self.model, text)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Beyond MAX_CONNECTIONS whoever comes is hung up on: each has a thread."""
        if not self._free.acquire(blocking=False):
            return self.shutdown_request(request)
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()


class _Paced(io.RawIOBase):
    """The bytes of a connection, request by request. Raises TimeoutError where one drips."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.begin()

    def begin(self) -> None:
        """Start the clock of the next request."""
        self._n_received, self._waited_s = 0, 0.0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left_s = PAUSE_S + self._n_received / LEAST_BYTES_A_S - self._waited_s
        if left_s <= 0:
            raise TimeoutError
        began = time.monotonic()
        self._connection.settimeout(min(PAUSE_S, left_s))
        try:
            n = self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(PAUSE_S)  # of the answer
            self._waited_s += time.monotonic() - began
        self._n_received += n
        return n


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body go out at once, whatever the peer has acknowledged
    server_version = "kolm"
    sys_version = ""
    timeout = PAUSE_S

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self._paced = _Paced(self.connection)
        self.rfile = io.BufferedReader(self._paced)

    def handle_one_request(self) -> None:
        self._paced.begin()
        super().handle_one_request()

    def do_GET(self) -> None:
        server = cast(ArtifactServer, self.server)
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # a body that nobody reads
        if self.path == "/healthz":
            self._answer(200, {"status": "ok"})
        elif self.path == "/v1/model":
            kept = ("name", "version", "compile", "task_type", "base", "k_score_ppm", "created_at")
            shown = {key: server.manifest[key] for key in kept if key in server.manifest}
            self._answer(200, shown | server.model.about())
        elif self.path == "/v1/models" or self.path.startswith("/v1/models/"):
            name = unquote(self.path.removeprefix("/v1/models").removeprefix("/")) or None
            self._send_reply(server.openai().models(name))
        else:
            self._refuse(Rejected(404, "not_found", "Use POST /v1/run, GET /v1/model or GET /healthz."))

    def do_POST(self) -> None:
        if self.path in OPENAI_PATHS:
            return self._answer_openai(cast(ArtifactServer, self.server).openai())
        server = cast(ArtifactServer, self.server)
        try:
            if self.path != "/v1/run":
                raise Rejected(404, "not_found", "Use POST /v1/run or POST /v1/chat/completions.")
            texts = self._in_turn(self._body(), _texts)
            with server.turn:
                outputs = server.model.predict(texts)
        except Rejected as rejected:
            self._refuse(rejected)
        else:
            self._answer(200, run_answer(server.manifest, outputs))

    def _answer_openai(self, student: "OneStudent") -> None:
        """Errors have OpenAI's shape here."""
        from gpu_runners.serving.openai.faults import Fault
        from gpu_runners.serving.openai.one_student import refusal_reply

        try:
            body = self._body()
        except Rejected as rejected:
            self.close_connection = True
            reply = refusal_reply(Fault(status=rejected.status, message=rejected.detail, code=rejected.code))
        else:
            reply = self._openai_reply(student, body)
        self._send_reply(reply)

    def _openai_reply(self, student: "OneStudent", body: bytes) -> "Reply":
        if self.path == "/v1/completions":
            return student.completions()
        return self._in_turn(body, student.response if self.path == "/v1/responses" else student.chat)

    def _in_turn(self, body: bytes, work: Callable[[bytes], T]) -> T:
        if len(body) <= _LONG:
            return work(body)
        with cast(ArtifactServer, self.server).reading:
            return work(body)

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()) or "Transfer-Encoding" in self.headers:
            raise Rejected(411, "length_required", "Send the body with a Content-Length.")
        n_bytes = int(length[:20])
        if n_bytes > MAX_BODY:
            raise Rejected(413, "payload_too_large", f"A request has at most {MAX_BODY} bytes.")
        try:
            body = self.rfile.read(n_bytes)
        except TimeoutError:
            raise Rejected(408, "body_too_slow", "The body came too slowly; send it again.") from None
        if len(body) < n_bytes:
            raise Rejected(400, "truncated", "The body ended before its Content-Length.")
        return body

    def _refuse(self, rejected: Rejected) -> None:
        self.close_connection = True  # what is left of the body must not be read as the next request
        problem = {"status": rejected.status, "code": rejected.code, "detail": rejected.detail}
        self._answer(rejected.status, problem, content_type="application/problem+json")

    def _answer(self, status: int, value: dict[str, Any], *, content_type: str = "application/json") -> None:
        self._send(status, json.dumps(value, ensure_ascii=False).encode(), content_type=content_type)

    def _send_reply(self, reply: "Reply") -> None:
        self._send(reply.status, reply.data, content_type=reply.content_type)

    def _send(self, status: int, data: bytes, *, content_type: str) -> None:
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
        value = read_json(body)
    except BadJson as error:
        raise Rejected(400, "invalid_json", str(error)) from error
    try:
        return read_inputs(value)
    except BadInputs as fault:
        raise Rejected(422, "invalid_input", str(fault)) from fault
