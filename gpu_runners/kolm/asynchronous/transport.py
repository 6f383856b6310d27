"""The asyncio face of transport.py, of which it is made: see tests/gpu_runners/kolm/async_sources.py."""

import asyncio
import random
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from ..errors import KolmError
from ..transport import (
    LONGEST_PAUSE_S,
    MAX_ATTEMPTS,
    Query,
    _is_worth_asking_again,
    _text,
    backoff_s,
    check,
    not_reachable,
)


@dataclass(slots=True, kw_only=True)
class Transport:
    http: httpx.AsyncClient
    max_attempts: int = MAX_ATTEMPTS
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    rng: random.Random = field(default_factory=random.Random)

    async def send(
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
                return check(await self.http.request(method, path, params=params or None, headers=sent, **more))
            except httpx.HTTPError as error:
                failure: KolmError = not_reachable(self.http, error)
                is_safe = method != "DELETE" or isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            except KolmError as error:
                failure, is_safe = (error, _is_worth_asking_again(error))
            if not is_safe or attempt >= last:
                raise failure
            pause_s = self._pause_s(attempt, failure)
            if pause_s > LONGEST_PAUSE_S:
                raise failure
            await self.sleep(pause_s)

    def _pause_s(self, attempt: int, error: KolmError) -> float:
        """The pause that the server asks for and a little more, so that those it sent away do not return together."""
        return (error.retry_after_s or 0.0) + backoff_s(attempt, self.rng)
