"""One request over the wire, and again where that is safe and may help.

Asked again: no answer at all, 429 and 502 to 504 (as long as Retry-After says), and 409 while a request under the same
Idempotency-Key is still being worked on. A POST carries such a key always, so that it does its work once however often
it arrives. A DELETE that may have arrived is not sent again.
"""

import random
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from .errors import KolmError, NotReachable, error_of

MAX_ATTEMPTS = 4
LONGEST_PAUSE_S = 60.0  # a server that asks for more is reported, not waited for
Query = Mapping[str, Any]


def backoff_s(attempt: int, rng: random.Random, *, cap_s: float = 15.0) -> float:
    """Full jitter: uniform in [0, min(cap, 0.25 * 2^attempt)], at least 50 ms."""
    return max(0.05, rng.uniform(0, min(cap_s, 0.25 * 2 ** min(attempt, 10))))


@dataclass(slots=True, kw_only=True)
class Transport:
    http: httpx.Client
    max_attempts: int = MAX_ATTEMPTS
    sleep: Callable[[float], None] = time.sleep
    rng: random.Random = field(default_factory=random.Random)

    def send(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        json: Any = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
        max_attempts: int | None = None,
        timeout: httpx.Timeout | None = None,
    ) -> httpx.Response:
        """The answer, when it is one below 400. Raises KolmError."""
        sent = dict(headers or {})
        if method == "POST":
            sent["Idempotency-Key"] = idempotency_key or str(uuid.uuid4())
        params = {name: _text(value) for name, value in (query or {}).items() if value is not None}
        more: dict[str, Any] = {"json": json} if content is None else {"content": content}
        if timeout is not None:
            more["timeout"] = timeout
        last = max_attempts or self.max_attempts
        attempt = 0
        while True:
            attempt += 1
            try:
                # an address with a query of its own (a cursor) keeps it
                return check(self.http.request(method, path, params=params or None, headers=sent, **more))
            except httpx.HTTPError as error:
                failure: KolmError = not_reachable(self.http, error)
                is_safe = method != "DELETE" or isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            except KolmError as error:
                failure, is_safe = error, _is_worth_asking_again(error)
            if not is_safe or attempt >= last:
                raise failure
            pause_s = self._pause_s(attempt, failure)
            if pause_s > LONGEST_PAUSE_S:
                raise failure
            self.sleep(pause_s)

    def _pause_s(self, attempt: int, error: KolmError) -> float:
        """The pause that the server asks for and a little more, so that those it sent away do not return together."""
        return (error.retry_after_s or 0.0) + backoff_s(attempt, self.rng)


def check(response: httpx.Response) -> httpx.Response:
    if response.status_code < 400:
        return response
    try:
        document = response.json()
    except ValueError:
        document = None
    raise error_of(
        response.status_code,
        document,
        url=str(response.request.url),
        retry_after_s=_retry_after_s(response.headers.get("Retry-After")),
    )


def not_reachable(http: httpx.Client | httpx.AsyncClient, error: Exception) -> NotReachable:
    why = str(error) or type(error).__name__
    return NotReachable(
        f"{http.base_url} does not answer ({why}). Is kolm up, and --api or KOLM_API_URL right?", retryable=True
    )


def _is_worth_asking_again(error: KolmError) -> bool:
    if error.status == 409:
        return error.code == "idempotency_in_flight"
    return error.status in (429, 502, 503, 504) and error.retryable


def _retry_after_s(value: str | None) -> float | None:
    """Seconds from now of a Retry-After header: a number or a date."""
    if value is None:
        return None
    if value.strip().isascii() and value.strip().isdigit():
        return float(value)
    try:
        at = parsedate_to_datetime(value)
    except ValueError:
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return max(0.0, (at - datetime.now(UTC)).total_seconds())


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return str(value)
