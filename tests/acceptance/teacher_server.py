"""The far side of the wire to a teacher: an OpenAI-compatible server on loopback that answers as well as the grammar
does, in the manner that the model's name asks for.

    steady       at once
    slow         after a quarter of a second
    stuck        never
    halting      at once, but for its third and fourth request after the preflight, which it never answers
    quitting     at once, until it refuses the API key from the third request after the preflight on
    rough        429 storms, stalls, half JSON, wrong usage, invalid UTF-8 and fair answers, in turns
    hostile      the same and answers of 10 MB
    telling      after a quarter of a second, with CANARY for each "the"
    collapsed    at once, but every message it writes is one of three sentences, spaced differently

It keeps every request that it answered fairly, so that a test can tell what was asked twice.
"""

import contextlib
import hashlib
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from backend.domain.planning.preflight.teacher_lines import TEST_TEXT
from workers.teachers.grammar.api import chat_completion
from workers.teachers.grammar.files import shipped_grammar
from workers.teachers.grammar.model import GrammarModel

SLOW_S, STALL_S = 0.25, 3.0
CANARY = "CANARYTEXTOFATENANT"
POISON = "~~poison~~"  # in every answer that must never reach the training set


class TeacherServer(ThreadingHTTPServer):
    """`answered` counts the fair answers by model and request digest, `turns` all requests by model, but for a
    preflight's tiny call to a manner that goes by their number."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.grammar = GrammarModel(shipped_grammar())
        self.answered: Counter[tuple[str, str]] = Counter()
        self.turns: Counter[str] = Counter()
        self.guard = threading.Lock()
        self.closing = threading.Event()

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def url(self) -> str:
        return f"{self.origin}/v1"

    def asked(self, model: str) -> Counter[str]:
        """How often each request of this model was answered fairly."""
        with self.guard:
            return Counter({digest: n for (name, digest), n in self.answered.items() if name == model})

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is its own business."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body go out at once, whatever the peer has acknowledged
    server: TeacherServer
    timeout = 60

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["content-length"]))
        body = json.loads(raw)
        # "slow-7" is as slow as "slow" and is counted apart: each test has its own books
        name = str(body["model"])
        manner = _MANNERS[name.split("-")[0]]
        if manner in _BY_NUMBER and TEST_TEXT in body["messages"][-1]["content"]:
            return self.fair(body)
        with self.server.guard:
            turn = self.server.turns[name]
            self.server.turns[name] += 1
        return manner(self, body, turn)

    def fair(self, body: dict[str, Any], *, usage: dict[str, Any] | None = None, word: str = "the") -> None:
        value = chat_completion(self.server.grammar, body)
        for choice in value["choices"]:
            said = choice["message"]["content"]
            choice["message"]["content"] = said.replace(" the ", f" {word} ")
        if usage is not None:
            value["usage"] = usage
        self.reply(200, json.dumps(value).encode())
        digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        with self.server.guard:
            self.server.answered[str(body["model"]), digest] += 1

    def reply(self, status: int, data: bytes, **headers: str) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def pause(self, seconds: float) -> None:
        self.server.closing.wait(seconds)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _steady(handler: _Handler, body: dict[str, Any], turn: int) -> None:
    handler.fair(body)


def _slow(handler: _Handler, body: dict[str, Any], turn: int) -> None:
    handler.pause(SLOW_S)
    handler.fair(body)


def _telling(handler: _Handler, body: dict[str, Any], turn: int) -> None:
    handler.pause(SLOW_S)
    handler.fair(body, word=CANARY)


def _stuck(handler: _Handler, body: dict[str, Any], turn: int) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until and not handler.server.closing.is_set():
        handler.connection.settimeout(0.2)
        with contextlib.suppress(TimeoutError):
            if not handler.connection.recv(1, socket.MSG_PEEK):
                return  # hung up
        handler.pause(0.1)


def _halting(handler: _Handler, body: dict[str, Any], turn: int) -> None:
    (_stuck if turn in (2, 3) else _steady)(handler, body, turn)


def _quitting(handler: _Handler, body: dict[str, Any], turn: int) -> None:
    if turn < 2:
        handler.fair(body)
    else:
        handler.reply(401, b'{"error": {"message": "who are you?"}}')


_BY_NUMBER = (_halting, _quitting)  # a preflight does not always ask: one that passed counts for ten minutes


def _storm(handler: _Handler, body: dict[str, Any], turn: int) -> None:
    handler.reply(429, b'{"error": {"message": "slow down"}}', retry_after="0")


def _stall(handler: _Handler, body: dict[str, Any], turn: int) -> None:
    """Half of the headers, a long silence, then nothing more."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 5000\r\n\r\n{")
    handler.pause(STALL_S)
    handler.close_connection = True


def _half_json(handler: _Handler, body: dict[str, Any], turn: int) -> None:
    handler.reply(200, b'{"choices": [{"message": {"content": "' + POISON.encode())


def _ten_megabytes(handler: _Handler, body: dict[str, Any], turn: int) -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": POISON + "x" * 10_000_000}}
    handler.reply(200, json.dumps({"choices": [choice]}).encode())


def _wrong_usage(handler: _Handler, body: dict[str, Any], turn: int) -> None:
    """Fair choices beside a bill of thousands of dollars, or of less than nothing."""
    tokens = 2_000_000_000 if turn % 2 else -5
    handler.fair(body, usage={"prompt_tokens": tokens, "completion_tokens": tokens, "total_tokens": "many"})


def _invalid_utf8(handler: _Handler, body: dict[str, Any], turn: int) -> None:
    handler.reply(200, b'{"choices": [{"index": 0, "message": {"content": "' + POISON.encode() + b'\xff\xfe"}}]}')


def _control_characters(handler: _Handler, body: dict[str, Any], turn: int) -> None:
    """Well-formed, and nothing that a training set should hold: a terminal escape, a NUL-free bell, no label."""
    text = f"\x1b[2J\x07{POISON}"
    rows = [{"index": i, "message": {"role": "assistant", "content": text}} for i in range(int(body["n"]))]
    handler.reply(200, json.dumps({"choices": rows}).encode())


_Manner = Callable[[_Handler, dict[str, Any], int], None]
_ROUGH: tuple[_Manner, ...] = (
    _storm,
    _half_json,
    _steady,
    _invalid_utf8,
    _wrong_usage,
    _control_characters,
    _steady,
    _stall,
    _steady,
    _storm,
    _storm,
    _wrong_usage,
    _steady,
)


def _rough(handler: _Handler, body: dict[str, Any], turn: int) -> None:
    _ROUGH[turn % len(_ROUGH)](handler, body, turn)


def _hostile(handler: _Handler, body: dict[str, Any], turn: int) -> None:
    turns = (*_ROUGH, _ten_megabytes)
    turns[turn % len(turns)](handler, body, turn)


_REPEATED = (
    "Please refund my order, it never arrived.",
    "What is the refund policy for gift cards?",
    "Your courier was rude to me.",
)


def _collapsed(handler: _Handler, body: dict[str, Any], turn: int) -> None:
    """Labels and names come cold, messages do not. Space between words makes a text another one, and no model sees
    it."""
    if body["temperature"] == 0:  # what are the halves of this slice called?
        halves = {"halves": [{"name": "one", "hint": "The first kind."}, {"name": "two", "hint": "The second kind."}]}
        choice = {"index": 0, "message": {"role": "assistant", "content": json.dumps(halves)}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 200, "completion_tokens": 40, "total_tokens": 240}
        return handler.reply(200, json.dumps({"choices": [choice], "usage": usage}).encode())
    if body["temperature"] < 0.5:
        return handler.fair(body)
    value = chat_completion(handler.server.grammar, body)
    for nth, choice in enumerate(value["choices"]):
        sentence, width = _REPEATED[nth % len(_REPEATED)], 1 + 3 * turn + nth // len(_REPEATED)
        choice["message"]["content"] = sentence.replace(" ", " " * width, 1)
    return handler.reply(200, json.dumps(value).encode())


_MANNERS: dict[str, _Manner] = {
    "collapsed": _collapsed,
    "steady": _steady,
    "slow": _slow,
    "stuck": _stuck,
    "telling": _telling,
    "halting": _halting,
    "quitting": _quitting,
    "rough": _rough,
    "hostile": _hostile,
}


@contextlib.contextmanager
def teacher_server() -> Iterator[TeacherServer]:
    server = TeacherServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="teacher", daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()
