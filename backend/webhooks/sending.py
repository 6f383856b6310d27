"""One attempt over the wire: the signed request through the pinned transport, and what came of it. No database here."""

import time
from typing import Any

import httpx
from django.conf import settings

from backend.domain.webhooks.signing import signed_headers
from backend.outbound import OutboundRefused, OutboundTimeout, Watch, open_client, watching
from backend.webhooks.messages import Message, Outcome

TOTAL_S = 15.0
BODY_CAP = 65_536
KEPT_HEAD = 2_048  # of the response, in the log
_KEPT_HEADERS = ("content-type", "content-length", "location", "retry-after", "server")
_FAILURES: tuple[tuple[type[Exception], str], ...] = (
    (OutboundRefused, "address_not_allowed"),
    (OutboundTimeout, "timeout"),
    (httpx.TimeoutException, "connect_timeout"),
    (httpx.ConnectError, "connect_failed"),
    (httpx.RemoteProtocolError, "not_http"),
    (httpx.TransportError, "connection_broken"),
    (httpx.InvalidURL, "address_not_allowed"),
)


def send(message: Message, *, total_s: float = TOTAL_S, client: httpx.Client | None = None) -> Outcome:
    """Never raises for anything that the receiver does."""
    headers = signed_headers(message.secrets, message.id, int(time.time()), message.body)
    headers |= {"content-type": "application/json", "user-agent": "kolm-webhooks/1"}
    outcome = Outcome(request_headers=headers)
    started = time.monotonic()
    try:
        with watching(Watch(deadline_at=started + total_s)):
            if client is None:
                with new_client() as own:
                    _exchange(own, message, outcome)
            else:
                _exchange(client, message, outcome)
    except tuple(kind for kind, _ in _FAILURES) as failed:
        outcome.error = next(word for kind, word in _FAILURES if isinstance(failed, kind))
        outcome.detail = str(failed)[:300]
    outcome.latency_ms = round((time.monotonic() - started) * 1000)
    return outcome


def new_client(**options: Any) -> httpx.Client:
    """Each attempt opens its own connection, so that each one's address is judged."""
    return open_client(allowed_origins=frozenset(settings.KOLM_ALLOW_PRIVATE_WEBHOOKS), **options)


def _exchange(client: httpx.Client, message: Message, outcome: Outcome) -> None:
    sent = outcome.request_headers | {"connection": "close"}
    with client.stream("POST", message.url, content=message.body, headers=sent) as response:
        outcome.status_code = response.status_code
        kept = {name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers}
        outcome.response_headers = {name: value[:300] for name, value in kept.items()}
        _judge(outcome)
        for chunk in response.iter_raw():
            if len(outcome.response_head) < KEPT_HEAD:
                outcome.response_head = (outcome.response_head + chunk)[:KEPT_HEAD]
            outcome.response_bytes += len(chunk)
            if outcome.response_bytes > BODY_CAP:  # enough: the status has said it
                outcome.response_is_cut = True
                return


def _judge(outcome: Outcome) -> None:
    """2xx alone is success; a redirect is not followed."""
    status = outcome.status_code or 0
    if 300 <= status < 400:
        outcome.error = "redirect"
    elif status == 410:
        outcome.error = "gone"
    elif not 200 <= status < 300:
        outcome.error = "http_error"
