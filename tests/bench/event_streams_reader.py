"""A thousand readers of event streams in one process: HTTP/1.1 over asyncio's sockets, because the readers share two
cores with what they measure. Each hangs up at random moments, waits as long as `retry:` said, and comes back with
`Last-Event-ID`."""

import asyncio
import contextlib
import json
import random
import time
from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class Reader:
    """`seen` is every number in the order of arrival. Latencies in seconds: `live` of events written while the
    connection was open, `late` of those that were waiting when it opened."""

    port: int
    path: str
    key: str
    rng: random.Random
    cut_every_s: float
    seen: list[int] = field(default_factory=list)
    live: list[tuple[float, float]] = field(default_factory=list)
    late: list[tuple[float, float]] = field(default_factory=list)
    n_connections: int = 0
    n_cuts: int = 0
    n_refused: int = 0
    retry_s: float = 1.0
    is_done: bool = False
    opened_at: float = 0.0
    caught_up_at: float = 0.0

    async def run(self, start_in_s: float) -> None:
        await asyncio.sleep(start_in_s)
        while not self.is_done:
            cut_in_s = self.rng.expovariate(1 / self.cut_every_s)
            try:
                async with asyncio.timeout(cut_in_s):
                    await self._connect()
            except TimeoutError:
                self.n_cuts += 1
            except (OSError, asyncio.IncompleteReadError, ValueError):
                self.n_refused += 1
            self.opened_at = 0.0
            if not self.is_done:
                await asyncio.sleep(self.retry_s * self.rng.uniform(0.9, 1.1))

    async def _connect(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            last = self.seen[-1] if self.seen else 0
            lines = (f"GET {self.path} HTTP/1.1", "Host: 127.0.0.1", "Accept: text/event-stream",
                     f"Authorization: Bearer {self.key}", f"Last-Event-ID: {last}")  # fmt: skip
            writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200"):
                raise ValueError(head.split(b"\r\n", 1)[0])
            self.n_connections += 1
            self.opened_at = time.time()
            await self._read(reader)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        """Chunks until the stream ends; a chunk may hold several blocks, or a part of one."""
        text = b""
        while not self.is_done:
            size = int((await reader.readuntil(b"\r\n")).strip(), 16)
            if size == 0:
                return
            text += (await reader.readexactly(size + 2))[:-2]
            *blocks, text = text.split(b"\n\n")
            for block in blocks:
                self._take(block.decode())

    def _take(self, block: str) -> None:
        values = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
        if "retry" in values:
            self.retry_s = int(values["retry"]) / 1000
        if "id" not in values:
            return
        now, row = time.time(), json.loads(values["data"])
        self.seen.append(int(values["id"]))
        written = row["data"].get("t")
        if written is not None:
            (self.live if written >= self.opened_at else self.late).append((now, now - written))
        self.is_done = row["type"] == "last"
