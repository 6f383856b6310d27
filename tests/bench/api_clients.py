"""Clients that ask one thing again and again over connections that stay open, as a process of its own:
`python -m tests.bench.api_clients PORT N_CLIENTS SECONDS OPERATION KEYS.json` prints what it measured as JSON.

HTTP/1.1 over asyncio's sockets: the clients share two cores with what they measure.
"""

import asyncio
import json
import sys
import time
import uuid
from pathlib import Path
from typing import Any

SPEC = {
    "name": "router",
    "task": "Does the customer ask for money back?",
    "output": {"type": "label", "labels": [{"name": "refund"}, {"name": "other"}]},
    "examples": {
        "inline": [{"input": f"message number {i}", "output": ("refund", "other")[i % 2]} for i in range(24)],
        "holdout": 0.5,
    },
    "gate": {"min_heldout": 5},
    "teacher": {"provider": "grammar", "model": "kolm-grammar-1"},
    "budget": {"usd": 1},
}


class Client:
    def __init__(self, port: int, row: dict[str, str], operation: str) -> None:
        self._port, self._row, self._operation = port, row, operation
        self.latencies: list[float] = []
        self.statuses: dict[int, int] = {}

    async def run(self, until: float) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            while time.perf_counter() < until:
                started = time.perf_counter()
                writer.write(self._request())
                status = await self._read(reader)
                self.latencies.append(time.perf_counter() - started)
                self.statuses[status] = self.statuses.get(status, 0) + 1
        finally:
            writer.close()
            await writer.wait_closed()

    def _request(self) -> bytes:
        method, path, body = "GET", "/v1/compiles?limit=20", b""
        if self._operation == "get":
            path = f"/v1/compiles/{self._row['id']}"
        elif self._operation == "create":
            method, path, body = "POST", "/v1/compiles", json.dumps(SPEC).encode()
        lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {self._row['key']}"]
        if body:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
            lines += [f"Idempotency-Key: {uuid.uuid4()}"]
        return ("\r\n".join(lines) + "\r\n\r\n").encode() + body

    async def _read(self, reader: asyncio.StreamReader) -> int:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = next((line.split(":")[1] for line in head.split("\r\n") if line.startswith("content-length:")), None)
        if length is not None:
            await reader.readexactly(int(length))
        else:
            while size := int((await reader.readuntil(b"\r\n")).strip(), 16):
                await reader.readexactly(size + 2)
            await reader.readexactly(2)
        return int(head.split(" ", 2)[1])


async def main(port: int, n: int, seconds: float, operation: str, rows: list[dict[str, str]]) -> dict[str, Any]:
    clients = [Client(port, rows[i % len(rows)], operation) for i in range(n)]
    started = time.perf_counter()
    await asyncio.gather(*(client.run(started + seconds) for client in clients))
    statuses: dict[int, int] = {}
    for client in clients:
        for status, count in client.statuses.items():
            statuses[status] = statuses.get(status, 0) + count
    latencies = sorted(latency for client in clients for latency in client.latencies)
    return {"latencies": latencies, "statuses": statuses, "seconds": time.perf_counter() - started}


if __name__ == "__main__":
    port, n, seconds, operation, keys = sys.argv[1:]
    rows = json.loads(Path(keys).read_text())
    print(json.dumps(asyncio.run(main(int(port), int(n), float(seconds), operation, rows))))
