"""The far side of the wire: the four addresses that a server asks, on loopback, in memory, and able to misbehave."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from backend.domain.serving.wire import (
    BadGrant,
    FeedbackBatch,
    FeedbackRow,
    ServerRegistration,
    UsageBatch,
    UsageRow,
    grant_key,
    read_grant,
)

TOKEN = "runner-token-of-the-tests"
KEY = grant_key(TOKEN)


class SmallBackend(ThreadingHTTPServer):
    """`rows` are booked usage by key, `sent` how often each came, `reports` what was told of packs by
    log. `down` answers 503 to everything."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.kolms: dict[str, bytes] = {}
        self.hellos: list[ServerRegistration] = []
        self.rows: dict[str, UsageRow] = {}
        self.sent: Counter[str] = Counter()
        self.reports: dict[str, FeedbackRow] = {}
        self.fetched: Counter[str] = Counter()
        self.revoked: list[str] = []
        self.lease_s, self.delay_s = 1.0, 0.0
        self.down = self.usage_down = False
        self.refuse_row: Callable[[UsageRow], bool] = lambda row: False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def wait_until(self, holds: Callable[[], object], *, within_s: float = 30.0) -> None:
        deadline = time.monotonic() + within_s
        while not holds():
            assert time.monotonic() < deadline, f"nothing within {within_s} s"
            time.sleep(0.02)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body go out at once, whatever the peer has acknowledged

    def do_POST(self) -> None:
        backend = cast(SmallBackend, self.server)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if backend.down:
            return self._say(503)
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            return self._say(401)
        if self.path == "/internal/runner/servers":
            backend.hellos.append(ServerRegistration.from_json(body))
            orders = {"server": "srv_test", "lease_s": backend.lease_s, "revoked": backend.revoked}
            return self._say(200, json.dumps(orders).encode())
        if self.path == "/internal/runner/usage":
            return self._book(UsageBatch.from_json(body))
        if self.path == "/internal/runner/pack-feedback":
            rows = [FeedbackRow.from_json(row) for row in FeedbackBatch.from_json(body).rows]
            backend.reports.update({row.log: row for row in rows})
            return self._say(200, b'{"kept": 1, "refused": []}')
        return self._say(404)

    def do_GET(self) -> None:
        backend = cast(SmallBackend, self.server)
        sha256 = self.path.rpartition("/")[2]
        backend.fetched[sha256] += 1
        time.sleep(backend.delay_s)
        if backend.down:
            return self._say(503)
        try:
            grant = read_grant(self.headers["Authorization"].removeprefix("Bearer "), KEY, now=time.time())
        except BadGrant:
            return self._say(401)
        if grant.sha256 != sha256 or sha256 not in backend.kolms:
            return self._say(404)
        return self._say(410) if sha256 in backend.revoked else self._say(200, backend.kolms[sha256])

    def _book(self, batch: UsageBatch) -> None:
        backend = cast(SmallBackend, self.server)
        rows = [UsageRow.from_json(row) for row in batch.rows]
        if backend.usage_down:
            return self._say(503)
        if any(backend.refuse_row(row) for row in rows):
            return self._say(422)
        for row in rows:
            read_grant(row.grant, KEY, now=None)
            backend.sent[row.key] += 1
            backend.rows.setdefault(row.key, row)
        return self._say(200, b"{}")

    def _say(self, status: int, data: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def small_backend() -> Iterator[SmallBackend]:
    backend = SmallBackend()
    thread = threading.Thread(target=backend.serve_forever, daemon=True, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield backend
    finally:
        backend.shutdown()
        thread.join()
        backend.server_close()
