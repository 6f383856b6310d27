"""Clients of an OpenAI-compatible server: each asks, reads its stream to the end, and asks again.

Bare asyncio sockets: on two cores an HTTP client that takes a millisecond a chunk would be what is measured.
"""

import asyncio
import itertools
import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import numpy as np

Headers = Callable[[int], dict[str, str]]  # by the number of the request

_CONTENT = re.compile(rb'"content": ?"[^"]')  # not the chunk that opens a stream with the role alone

TEXTS = [
    f"The {thing} that I bought {days} days ago {fault}; order {1000 + 7 * n}."
    for n, (thing, days, fault) in enumerate(
        itertools.product(
            ("lamp", "chair", "kettle", "printer"), (2, 5, 9), ("is broken", "never came", "was billed twice")
        )
    )
]


@dataclass(slots=True, kw_only=True)
class Load:
    """What some clients got in `seconds`. Times in seconds; failures are statuses and what broke off."""

    n_clients: int
    seconds: float = 0.0
    n_tokens: int = 0
    first_s: list[float] = field(default_factory=list)
    total_s: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def tokens_per_s(self) -> float:
        return self.n_tokens / self.seconds

    def first_ms(self, percentile: float) -> float:
        return float(np.percentile(self.first_s, percentile)) * 1000 if self.first_s else float("nan")


async def load(
    url: str, model: Callable[[int], str], headers: Headers, *, n_clients: int, seconds: float, n_tokens: int
) -> Load:
    """Requests that began within `seconds` are read to their end and counted; the clock stops with the last one."""
    found, numbers = Load(n_clients=n_clients), itertools.count()
    began = time.perf_counter()

    async def client() -> None:
        while time.perf_counter() - began < seconds:
            number = next(numbers)
            body = {
                "model": model(number),
                "messages": [{"role": "user", "content": TEXTS[number % len(TEXTS)]}],
                "max_tokens": n_tokens,
                "temperature": 0,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
            try:
                await _ask(url, json.dumps(body).encode(), headers(number), found)
            except (OSError, asyncio.IncompleteReadError, ValueError) as error:
                found.failures.append(f"{type(error).__name__}: {error}"[:200])

    await asyncio.gather(*(client() for _ in range(n_clients)))
    found.seconds = time.perf_counter() - began
    return found


async def _ask(url: str, body: bytes, headers: dict[str, str], found: Load) -> None:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=1 << 20)
    lines = [f"POST {parts.path}/v1/chat/completions HTTP/1.1", f"Host: {parts.netloc}", f"Content-Length: {len(body)}"]
    lines += ["Content-Type: application/json", "Connection: close", *(f"{k}: {v}" for k, v in headers.items())]
    sent = time.perf_counter()
    try:
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        status = (await reader.readline()).decode()
        if " 200 " not in status:
            raise ValueError(f"{status.strip()}: {(await reader.read(4000))[-300:]!r}")
        first, n_tokens = 0.0, 0
        while line := await reader.readline():
            if not line.startswith(b"data: {"):
                continue
            if not first and _CONTENT.search(line):
                first = time.perf_counter() - sent
            if b'"completion_tokens"' in line and (usage := json.loads(line[6:]).get("usage")):
                n_tokens = int(usage["completion_tokens"])
        found.first_s.append(first)
        found.total_s.append(time.perf_counter() - sent)
        found.n_tokens += n_tokens
        if n_tokens == 0:
            raise ValueError("a stream without usage")
    finally:
        writer.close()


def median(loads: Sequence[Load]) -> Load:
    """The one whose throughput is in the middle."""
    return sorted(loads, key=lambda one: one.tokens_per_s)[len(loads) // 2]
