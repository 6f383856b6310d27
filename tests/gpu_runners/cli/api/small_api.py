"""The far side of `kolm compile`: the public API's answers for one compile that ends when its last event was read, on
loopback."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from tests.backend.domain.artifact.tiny_kolm import keyring, small_kolm

EVENTS: list[tuple[str, dict[str, Any]]] = [
    ("compile.status", {"status": "running"}),
    ("step.started", {"step": "slicing"}),
    ("step.succeeded", {"step": "slicing", "cost_microusd": 120}),
    ("weather.changed", {"to": "rain"}),
    ("warning", {"code": "label_skew", "message": "one label is rare"}),
    ("step.started", {"step": "distillation"}),
    (
        "step.progress",
        {"step": "distillation", "done": 3, "total": 9, "message": "calibrate", "loss": 0.25, "eta_s": 4.0},
    ),
    ("step.succeeded", {"step": "distillation", "cost_microusd": 2000, "waste_microusd": 0}),
    ("gate.decided", {"passed": True, "k_score_ppm": 912_345, "gate": {}}),
]

BESIDE = {
    "name": "teacher",
    "words": "the teacher itself",
    "n": 100,
    "accuracy_ppm": 950_000,
    "model_accuracy_ppm": 912_345,
    "difference_ppm": -37_655,
    "difference_low_ppm": -98_000,
    "difference_high_ppm": 21_000,
}

CARD: dict[str, Any] = {
    "version": 1,
    "task_type": "label",
    "accuracy_kind": "label",
    "confidence_ppm": 950_000,
    "compile_microusd": 60_000,
    "price_version": "2026-11-22",
    "teacher_basis": "held_out_calls",
    "n_teacher_calls": 100,
    "rows": [
        {
            "name": "student",
            "words": "the student",
            "n": 100,
            "accuracy_ppm": 912_345,
            "low_ppm": 840_123,
            "high_ppm": 953_456,
            "answer_us": 5_020,
            "time_kind": "own",
            "per_1000_microusd": 750,
        },
        {
            "name": "teacher",
            "words": "the teacher itself",
            "n": 0,
            "accuracy_ppm": None,
            "low_ppm": None,
            "high_ppm": None,
            "answer_us": 420_000,
            "time_kind": "request",
            "per_1000_microusd": 30_750,
        },
    ],
    "break_even": [
        {"place": "runner", "per_1000_microusd": 750, "calls": 2_000, "why_not": None},
        {"place": "home", "per_1000_microusd": 0, "calls": None, "why_not": "teacher_not_asked"},
    ],
}

PURCHASES = [
    {
        "round": 1,
        "n": 75,
        "why": {"uncertain": 60, "random": 15},
        "n_rows": 100,
        "n_votes": 100,
        "accuracy_ppm": 710_000,
    },
    {"round": 2, "n": 20, "why": {"asked_again": 20}, "n_rows": 175, "n_votes": 175, "accuracy_ppm": 803_000},
]

LABELING: dict[str, Any] = {
    "n_labeled": 175,
    "label_samples": 1,
    "purchases": PURCHASES,
    "at_end": {"n_rows": 175, "n_votes": 195, "accuracy_ppm": 811_000},
    "stopped_for": "flat",
}


class SmallApi(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.artifact = small_kolm()
        self.keys: dict[str, Any] = keyring()
        self.end = "succeeded"
        self.break_after: int | None = None  # the stream is cut after so many events, each time
        self.has_no_stream = self.refuses = self.corrupts = self.has_earlier = False
        self.n_streams = self.n_unavailable = self.n_told = 0
        self.idempotency_keys: list[str] = []
        self.labeling: dict[str, Any] = LABELING
        self.drafts: dict[str, Any] | None = None
        self.queue: dict[str, Any] | None = None
        self.evaluation: dict[str, Any] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def events(self, after: int) -> list[dict[str, Any]]:
        told = [*EVENTS, ("compile.status", {"status": self.end}), (f"compile.{self.end}", {"spent_microusd": 2120})]
        rows = [
            {"object": "event", "type": kind, "seq": n, "data": data} for n, (kind, data) in enumerate(told, start=1)
        ]
        return rows[after:]

    @property
    def status(self) -> str:
        return self.end if self.n_told >= len(EVENTS) + 2 else "running"

    def compile_row(self) -> dict[str, Any]:
        total = {"low_microusd": 10_000, "expected_microusd": 12_000, "high_microusd": 20_000}
        floors = [{"name": "accuracy_lower", "passed": False, "message": "the lower bound is 0.71 and 0.80 is needed"}]
        failure = {"step": "synthesis", "message": "The teacher did not answer.", "code": "teacher_timeout"}
        return {
            "id": "cmp_1",
            "object": "compile",
            "name": "refund-router",
            "status": self.status,
            "estimate": {"total": total},
            "budget_microusd": 5_000_000,
            "spent_microusd": 2120,
            "k_score_ppm": 912_345,
            "artifact": "art_1" if self.end == "succeeded" else None,
            "evaluation": {"alternatives": [BESIDE]} | self.evaluation,
            "drafts": self.drafts,
            "gate": {"floors": floors, "next_step": "add 40 gold examples"},
            "failure": failure if self.end == "failed" else None,
            "queue": self.queue,
        }

    def step_rows(self) -> list[dict[str, Any]]:
        slicing = {"id": "step_0", "name": "slicing", "position": 0, "status": "succeeded", "output": None}
        output = {"digests": {}, "facts": self.labeling}
        return [slicing, {"id": "step_4", "name": "labeling", "position": 4, "status": "succeeded", "output": output}]

    def artifact_row(self) -> dict[str, Any]:
        digest, size = hashlib.sha256(self.artifact).hexdigest(), len(self.artifact)
        return {
            "id": "art_1",
            "name": "refund-router",
            "version": 1,
            "sha256": digest,
            "size_bytes": size,
            "k_score_ppm": 912_345,
            "compile": "cmp_1",
            "card": CARD,
        }

    def earlier_artifact(self) -> dict[str, Any]:
        return self.artifact_row() | {"id": "art_0", "version": 0, "k_score_ppm": 897_000, "compile": "cmp_0"}


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        api = cast(SmallApi, self.server)
        path, _, query = self.path.partition("?")
        match path:
            case "/.well-known/kolm-keys.json":
                self._say(200, api.keys)
            case "/v1/compiles":
                self._say(200, {"object": "list", "data": [api.compile_row()], "has_more": False, "next_cursor": None})
            case "/v1/compiles/cmp_1":
                self._say(200, api.compile_row())
            case "/v1/compiles/cmp_1/events" if "text/event-stream" in self.headers["Accept"] and not api.has_no_stream:
                self._stream(int(self.headers["Last-Event-ID"]))
            case "/v1/compiles/cmp_1/events":
                after = int(self.headers.get("Last-Event-ID") or query.removeprefix("after="))
                api.n_told = len(EVENTS) + 2
                self._say(200, {"object": "list", "data": api.events(after), "has_more": False, "next_cursor": None})
            case "/v1/compiles/cmp_1/steps":
                self._say(200, {"object": "list", "data": api.step_rows(), "has_more": False, "next_cursor": None})
            case "/v1/artifacts":
                assert query == "name=refund-router&limit=2"
                rows = [api.artifact_row(), api.earlier_artifact()] if api.has_earlier else []
                self._say(200, {"object": "list", "data": rows, "has_more": False, "next_cursor": None})
            case "/v1/artifacts/art_1":
                self._say(200, api.artifact_row())
            case "/v1/artifacts/art_1/download":
                self._say(200, api.artifact[:-1] if api.corrupts else api.artifact)
            case _:
                self._say(404, {"detail": f"There is no {path}.", "code": "not_found"})

    def do_POST(self) -> None:
        api = cast(SmallApi, self.server)
        document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        api.idempotency_keys.append(self.headers["Idempotency-Key"])
        if len(api.idempotency_keys) <= api.n_unavailable:
            return self._say(503, {"detail": "Try again.", "code": "unavailable", "retryable": True})
        if api.refuses:
            fault = {
                "pointer": "/examples",
                "code": "too_few_heldout",
                "detail": "3 examples are held out and 20 are needed.",
            }
            return self._say(422, {"detail": "The spec breaks a rule.", "code": "invalid_spec", "errors": [fault]})
        assert document["name"] == "refund-router"
        assert self.headers["Authorization"] == "Bearer kolm_sk_test"
        return self._say(202, api.compile_row())

    def _stream(self, after: int) -> None:
        api = cast(SmallApi, self.server)
        api.n_streams += 1
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.end_headers()
        self.wfile.write(b"retry: 2000\n\n: alive\n\n")
        for event in api.events(after)[: api.break_after]:
            api.n_told = event["seq"]
            self.wfile.write(f"id: {event['seq']}\nevent: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())

    def _say(self, status: int, value: Any) -> None:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json" if status < 400 else "application/problem+json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def small_api() -> Iterator[SmallApi]:
    with SmallApi() as api:
        thread = threading.Thread(target=api.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield api
        finally:
            api.shutdown()
            thread.join()
