"""The demo's receiver of webhooks: a small server on the one loopback port that this stack's webhooks may go to. It
verifies what it gets as a customer's server would, with nothing but the secret."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import httpx
from rich.text import Text

from backend.domain.webhooks.signing import NotSigned, verify
from deploy.embedded.faults import CannotStart

WAIT_S = 30.0
ENDS = ("compile.succeeded", "compile.gate_failed", "compile.failed", "compile.canceled")


class Inbox:
    """The events that arrived and were verified, by type."""

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self._news = threading.Condition()
        self._got: list[tuple[str, dict[str, Any]]] = []

    def take(self, headers: dict[str, str], body: bytes) -> int:
        """The status to answer with."""
        try:
            verify(self._secret, headers, body, now=int(time.time()))
        except NotSigned:
            return 400
        message_id = next(value for name, value in headers.items() if name.lower() == "webhook-id")
        with self._news:
            if all(message_id != known for known, _ in self._got):  # one that comes twice is one
                self._got.append((message_id, json.loads(body)))
            self._news.notify_all()
        return 204

    def report(self, compile_id: str) -> Text:
        """Waits until the compile's end is told; then what came. Raises CannotStart when it does not come."""
        with self._news:
            if not self._news.wait_for(lambda: self._end_of(compile_id) is not None, WAIT_S):
                raise CannotStart(f"No webhook told of the end of {compile_id} within {WAIT_S:.0f} s.")
            end = self._end_of(compile_id)
            types = [event["type"] for _, event in self._got]
        text = Text()
        counts = {type: types.count(type) for type in dict.fromkeys(types)}
        text.append(f"\nwebhooks    {len(types)} delivered and verified\n", style="bold")
        text.append("            " + ", ".join(f"{n} {type}" for type, n in counts.items()) + "\n", style="dim")
        text.append(f"            {end}\n", style="green")
        return text

    def _end_of(self, compile_id: str) -> str | None:
        for message_id, event in self._got:
            if event["type"] in ENDS and event["data"]["object"]["id"] == compile_id:
                return f"{event['type']} {message_id}"
        return None


@contextmanager
def receiving(api: httpx.Client, origin: str) -> Iterator[Inbox | None]:
    """An endpoint at `origin` with a server behind it; both are gone afterwards. None where this installation does not
    call its own machine."""
    url = f"{origin}/webhooks"
    for row in api.get("/v1/webhook_endpoints?limit=100").json().get("data", []):
        if row["url"] == url:  # of a demo that was killed
            api.delete(f"/v1/webhook_endpoints/{row['id']}")
    created = api.post("/v1/webhook_endpoints", json={"url": url, "events": ["compile.*", "artifact.*"]})
    if created.is_error and created.json()["code"] == "address_not_allowed":
        yield None
        return
    if created.is_error:
        raise CannotStart(f"POST /v1/webhook_endpoints answered {created.status_code}: {created.text[:300]}")
    inbox = Inbox(created.json()["secret"])
    try:
        with _server(origin, inbox):
            yield inbox
    finally:
        api.delete(f"/v1/webhook_endpoints/{created.json()['id']}")


@contextmanager
def _server(origin: str, inbox: Inbox) -> Iterator[None]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", "0")))
            self.send_response(inbox.take(dict(self.headers.items()), body))
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    place = urlsplit(origin)
    try:
        server = ThreadingHTTPServer((place.hostname or "", place.port or 80), Handler)
    except OSError as taken:
        raise CannotStart(f"The demo's webhook receiver cannot listen at {origin}: {taken}.") from taken
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
