"""A reader of the event stream: the ASGI application as its server drives it, a hang-up included."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from asgiref.testing import ApplicationCommunicator

from backend.asgi import application


class Reader:
    """One open connection. `status` and `headers` of the answer, then `block()` after `block()`."""

    def __init__(self, path: str, headers: dict[str, str]) -> None:
        path, _, query = path.partition("?")
        raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(b"host", b"localhost"), (b"accept", b"text/event-stream"), *raw],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        self._server = ApplicationCommunicator(application, scope)
        self._text = ""
        self._is_over = False

    async def open(self) -> None:
        await self._server.send_input({"type": "http.request"})
        start = await self._server.receive_output(10)
        self.status: int = start["status"]
        self.headers = {name.decode().lower(): value.decode() for name, value in start["headers"]}

    async def block(self, *, within_s: float = 10) -> dict[str, str] | None:
        """The next block as {field: value}, comments too (under ""); None at the end of the stream."""
        while "\n\n" not in self._text:
            if self._is_over:
                return None
            message = await self._server.receive_output(within_s)
            self._text += message.get("body", b"").decode()
            self._is_over = not message.get("more_body", False)
        block, self._text = self._text.split("\n\n", 1)
        return dict(line.split(": ", 1) if line[0] != ":" else ("", line[1:].strip()) for line in block.split("\n"))

    async def numbers(self, n: int | None = None) -> list[int]:
        """The numbers of the next `n` events, of all where None."""
        found: list[int] = []
        while (n is None or len(found) < n) and (block := await self.block()) is not None:
            if "id" in block:
                assert json.loads(block["data"])["seq"] == int(block["id"])
                found.append(int(block["id"]))
        return found

    async def is_silent(self, for_s: float) -> bool:
        return bool(await self._server.receive_nothing(timeout=for_s))

    async def hang_up(self) -> None:
        await self._server.send_input({"type": "http.disconnect"})
        await self._server.wait(timeout=5)


@asynccontextmanager
async def reading(path: str, headers: dict[str, str]) -> AsyncIterator[Reader]:
    reader = Reader(path, headers)
    await reader.open()
    try:
        yield reader
    finally:
        await reader.hang_up()


def bounded(scenario: Any, *, within_s: float = 20) -> Any:
    return asyncio.run(asyncio.wait_for(scenario, within_s))
