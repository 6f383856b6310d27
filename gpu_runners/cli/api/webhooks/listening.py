"""`kolm webhooks listen`: the account's events, forwarded to a URL on this machine as an endpoint would get them.

Events are read from the feed (`GET /v1/webhook_events/feed`), in which none ever appears before one that was shown,
and signed here with a secret that is printed at the start. Each is forwarded once, in order. Where nobody listens at
the URL, the event waits for the receiver; where the receiver answers, whatever it answers, the event has been
delivered. A request that broke off may have arrived, and is not sent again.
"""

import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from gpu_runners.cli.api.connection import Connect, run_command
from gpu_runners.cli.display.printing import print_json
from gpu_runners.cli.exit_codes import USAGE
from gpu_runners.cli.terminal import fail
from gpu_runners.kolm import Client, KolmError, Unreadable
from gpu_runners.kolm.webhooks import BadSignature, new_secret, sign

FEED = "/v1/webhook_events/feed"
POLL_S = 1.0
LONGEST_POLL_S = 15.0  # while kolm does not answer
RECEIVER_POLL_S = 0.5  # while nobody listens at the URL
TIMEOUT_S = 15.0  # as the installation's own deliveries


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """`status` 0: the request broke off, `error` says how."""

    event: str
    type: str
    status: int
    latency_ms: int
    error: str = ""


@dataclass(slots=True, kw_only=True)
class Forwarder:
    """Signs and posts one event after another."""

    http: httpx.Client
    url: str
    secret: str
    is_waiting: bool = False

    def forward(self, event: dict[str, Any]) -> Delivered:
        """Returns when the receiver has answered, or a request that reached it has broken off."""
        while True:
            stamp, body = int(time.time()), event["body"].encode()
            headers = {
                "Content-Type": "application/json",
                "User-Agent": "kolm-cli",
                "webhook-id": event["id"],
                "webhook-timestamp": str(stamp),
                "webhook-signature": sign(self.secret, id=event["id"], timestamp=stamp, body=body),
            }
            started = time.monotonic()
            try:
                status, error = self.http.post(self.url, content=body, headers=headers).status_code, ""
            except (httpx.ConnectError, httpx.ConnectTimeout) as fault:
                self._wait_for_receiver(fault)
                continue
            except httpx.HTTPError as fault:
                status, error = 0, type(fault).__name__
            self.is_waiting = False
            latency_ms = round((time.monotonic() - started) * 1000)
            return Delivered(event=event["id"], type=event["type"], status=status, latency_ms=latency_ms, error=error)

    def _wait_for_receiver(self, fault: Exception) -> None:
        if not self.is_waiting:
            print(f"kolm: nothing is listening at {self.url} ({fault}); waiting for it.", file=sys.stderr, flush=True)
            self.is_waiting = True
        time.sleep(RECEIVER_POLL_S)


def listen(
    url: str, *, types: Sequence[str], secret: str | None, state: str | None, as_json: bool, connect: Connect
) -> int:
    """Listen until interrupted. Exit 2 where the URL or the secret makes no sense."""
    if not url.startswith(("http://", "https://")):
        return fail(f"--forward takes a URL such as http://localhost:3000/webhooks, not {url!r}.", code=USAGE)
    signing = secret or new_secret()
    try:
        sign(signing, id="evt_x", timestamp=0, body=b"")
    except (ValueError, BadSignature):
        return fail("--secret takes a whsec_ secret: base64 after the prefix.", code=USAGE)

    def act(client: Client) -> None:
        with httpx.Client(timeout=TIMEOUT_S, trust_env=False, follow_redirects=False) as http:
            forwarder = Forwarder(http=http, url=url, secret=signing)
            begin = _begin(client, state)
            _say_ready(client, url, signing, as_json=as_json)
            _remember(state, begin)
            for event in events_from(client, begin):
                delivered = forwarder.forward(event) if matches(types, event["type"]) else None
                _remember(state, event["id"])  # first: who reads the line may end this process at once
                if delivered is not None:
                    _print_delivery(delivered, as_json=as_json)

    return run_command(act, connect)


def events_from(client: Client, cursor: str) -> Iterator[dict[str, Any]]:
    """Every event behind the cursor, oldest first, for ever; an event's id is the cursor behind it. A deployment that
    is away is waited for."""
    pause_s = POLL_S
    while True:
        try:
            page = client.get(FEED, {"after": cursor})
        except KolmError as error:
            if not error.retryable:
                raise
            print(f"kolm: {error}", file=sys.stderr, flush=True)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_POLL_S)
            continue
        pause_s = POLL_S
        for event in page["data"]:
            cursor = event["id"]
            yield event
        if not page["has_more"]:
            time.sleep(POLL_S)


def matches(types: Sequence[str], type: str) -> bool:
    """
    >>> matches(["compile.*"], "compile.succeeded"), matches(["*"], "webhook.test"), matches(["compile.failed"], "x.y")
    (True, True, False)
    """
    return type in types or "*" in types or f"{type.partition('.')[0]}.*" in types


def _begin(client: Client, state: str | None) -> str:
    """The cursor that an earlier run left, else from now on."""
    if state is not None and Path(state).exists():
        try:
            return str(json.loads(Path(state).read_text(encoding="utf-8"))["after"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Unreadable(f"{state} is no state of `kolm webhooks listen` ({error}); remove it.") from error
    return str(client.get(FEED)["next_cursor"])


def _remember(state: str | None, cursor: str) -> None:
    if state is None:
        return
    path = Path(state)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump({"after": cursor}, file)
    Path(temporary).replace(path)


def _say_ready(client: Client, url: str, secret: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"object": "listening", "api": client.base_url, "forward": url, "secret": secret})
        return
    print(f"Ready: events of {client.base_url} go to {url}.\nSigning secret: {secret}  (Ctrl-C ends)", flush=True)


def _print_delivery(delivered: Delivered, *, as_json: bool) -> None:
    if as_json:
        print_json({"object": "forwarded", "event": delivered.event, "type": delivered.type, "status": delivered.status,
                    "latency_ms": delivered.latency_ms, "error": delivered.error or None})  # fmt: skip
        return
    at, answer = time.strftime("%H:%M:%S"), str(delivered.status) if delivered.status else delivered.error
    with contextlib.suppress(UnicodeEncodeError):
        print(f"{at}  {delivered.type:<28} {delivered.event}  → {answer}  {delivered.latency_ms} ms", flush=True)
