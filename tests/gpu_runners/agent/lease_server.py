"""The far side of the wire: a small lease server on loopback that keeps its jobs in memory and can be told to
misbehave."""

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

RUNNER_TOKEN = "runner-token"


@dataclass
class Job:
    kind: str
    payload: dict[str, Any]
    lease_s: float = 1.5
    checkpoint: str | None = None
    attempt: int = 0
    is_leased: bool = False
    is_gone: bool = False
    is_cancelled: bool = False
    is_preempted: bool = False
    heartbeats: list[dict[str, Any]] = field(default_factory=list)
    reports: list[dict[str, Any]] = field(default_factory=list)

    @property
    def token(self) -> str:
        return f"job-token-{self.attempt}"


class LeaseServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.jobs: dict[str, Job] = {}
        self.blobs: dict[str, bytes] = {}
        self.parts: dict[str, list[bytes]] = {}  # of uploads, by where they go
        self.refuses: dict[str, int] = {}  # a status for what a path contains
        self.discards = False  # of parts: they are counted and not kept
        self.part_s = 0.0  # what taking one part takes
        self.is_down = False
        self.changed = threading.Condition()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def put(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        self.blobs[digest] = data
        return digest

    def offer(self, name: str, job: Job) -> Job:
        with self.changed:
            self.jobs[name] = job
            self.changed.notify_all()
        return job

    def requeue(self, job: Job) -> None:
        """What an expired lease does."""
        with self.changed:
            job.is_leased = False
            self.changed.notify_all()

    def wait_until(self, is_so: Any, *, within_s: float = 60.0) -> None:
        deadline = time.monotonic() + within_s
        while not is_so():
            assert time.monotonic() < deadline, f"nothing within {within_s} s: {self.jobs}"
            time.sleep(0.02)

    def claim(self, kinds: list[str], wait_s: float) -> tuple[str, Job] | None:
        deadline = time.monotonic() + wait_s
        with self.changed:
            while True:
                for name, job in self.jobs.items():
                    if job.kind in kinds and not job.is_leased and not _is_done(job):
                        job.is_leased, job.attempt = True, job.attempt + 1
                        return name, job
                if not self.changed.wait(max(0.0, deadline - time.monotonic())):
                    return None


def _is_done(job: Job) -> bool:
    return bool(job.reports) and not job.reports[-1].get("retryable", False)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body go out at once, whatever the peer has acknowledged

    def handle_one_request(self) -> None:
        if cast(LeaseServer, self.server).is_down:
            self.close_connection = True
            return
        super().handle_one_request()

    def do_POST(self) -> None:
        server = cast(LeaseServer, self.server)
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if server.is_down:
            return self._say(503)
        if "/uploads/" in self.path:
            whole = b"".join(server.parts.pop(self.path, []))
            if server.discards:
                return self._say(201)
            return self._say(self._refusal() or (201 if server.put(whole) == self.path.split("/")[6] else 422))
        body = json.loads(text)
        if self.path == "/internal/runner/claim":
            if self.headers["Authorization"] != f"Bearer {RUNNER_TOKEN}":
                return self._say(401)
            found = server.claim(body["kinds"], body["wait_s"])
            if found is None:
                return self._say(204)
            name, job = found
            return self._say(200, {
                "job_id": name, "kind": job.kind, "token": job.token, "payload": job.payload, "lease_s": job.lease_s,
                "attempt": job.attempt, "checkpoint_sha256": job.checkpoint,
            })  # fmt: skip
        job = self._job()
        if job is None:
            return self._say(410)
        if self.path.endswith("/heartbeat"):
            job.heartbeats.append(body | {"attempt": job.attempt, "at": time.monotonic()})
            job.checkpoint = body["checkpoint_sha256"] or job.checkpoint
            answer = {"cancel": job.is_cancelled, "lease_s": job.lease_s, "preempt": job.is_preempted}
            return self._say(200, answer)
        job.reports.append(body)
        job.is_preempted = False
        if body.get("retryable"):
            server.requeue(job)
        return self._say(204)

    def do_GET(self) -> None:
        server = cast(LeaseServer, self.server)
        if "/uploads/" in self.path and self._job() is not None:
            state = {"n_kept": len(server.parts.get(self.path, ())), "is_stored": False}
            return self._say(self._refusal() or 200, state)
        data = cast(LeaseServer, self.server).blobs.get(self.path.rsplit("/", 1)[-1])
        return self._say(410) if self._job() is None else self._say(404) if data is None else self._say(200, data)

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if self._job() is None:
            return self._say(410)
        if (refusal := self._refusal()) is not None:
            return self._say(refusal)
        if "/parts/" in self.path:
            server, (where, number) = cast(LeaseServer, self.server), self.path.split("/parts/")
            parts = server.parts.setdefault(where, [])
            time.sleep(server.part_s)
            if int(number) != len(parts):
                return self._say(409)
            parts.append(b"" if server.discards else data)
            return self._say(204)
        ok = cast(LeaseServer, self.server).put(data) == self.path.rsplit("/", 1)[-1]
        return self._say(201 if ok else 422)

    def _refusal(self) -> int | None:
        refuses = cast(LeaseServer, self.server).refuses
        return next((status for part, status in refuses.items() if part in self.path), None)

    def _job(self) -> Job | None:
        job = cast(LeaseServer, self.server).jobs.get(self.path.split("/")[4])
        fits = job is not None and not job.is_gone and self.headers["Authorization"] == f"Bearer {job.token}"
        return job if fits else None

    def _say(self, status: int, value: Any = None) -> None:
        data = value if isinstance(value, bytes) else b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if status != 204:
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def lease_server() -> Iterator[LeaseServer]:
    with LeaseServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
