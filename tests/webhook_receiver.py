"""A real receiver of webhooks on loopback, for tests: keeps what came, answers what the test says."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    path: str
    headers: dict[str, str]
    body: bytes
    at: float


@dataclass(slots=True)
class Answer:
    status: int = 200
    body: bytes = b"ok"
    headers: dict[str, str] = field(default_factory=dict)
    hold_s: float = 0.0
    drip_s: float = 0.0


class Receiver:
    """`answer` decides by what was received; `got` is everything so far, in order of arrival."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.got: list[Received] = []
        self.answer: Callable[[Received], Answer] = lambda received: Answer()
        self.over = threading.Event()
        self.lock = threading.Lock()
        self.most_at_once = self.at_once = 0

    @property
    def url(self) -> str:
        return f"{self.origin}/hook"


@contextmanager
def receiving() -> Iterator[Receiver]:
    import time

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            received = Received(path=self.path, headers=dict(self.headers.items()), body=body, at=time.monotonic())
            with receiver.lock:
                receiver.got.append(received)
                receiver.at_once += 1
                receiver.most_at_once = max(receiver.most_at_once, receiver.at_once)
            try:
                self.reply(receiver.answer(received))
            except OSError:
                self.close_connection = True
            finally:
                with receiver.lock:
                    receiver.at_once -= 1

        def reply(self, answer: Answer) -> None:
            receiver.over.wait(answer.hold_s)
            self.send_response(answer.status)
            for name, value in ({"content-length": str(len(answer.body))} | answer.headers).items():
                self.send_header(name, value)
            self.end_headers()
            step = 1 if answer.drip_s else max(1, len(answer.body))
            for at in range(0, len(answer.body), step):
                self.wfile.write(answer.body[at : at + step])
                if answer.drip_s and receiver.over.wait(answer.drip_s):
                    return

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver = Receiver(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield receiver
    finally:
        receiver.over.set()
        server.shutdown()
        server.server_close()
        thread.join()
