"""The asyncio face of resource.py, of which it is made: see tests/gpu_runners/kolm/async_sources.py."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from ..resource import PAGE
from ..rows import T, build
from .transport import Transport


@dataclass(frozen=True, slots=True)
class Resource:
    transport: Transport

    async def _get(self, path: str, **query: Any) -> Any:
        return (await self.transport.send("GET", path, query=query)).json()

    async def _post(self, path: str, body: Any = None, *, idempotency_key: str | None = None) -> Any:
        sent = {} if body is None else body
        return (await self.transport.send("POST", path, json=sent, idempotency_key=idempotency_key)).json()

    def _pages(self, cls: type[T], path: str, *, limit: int | None, **query: Any) -> AsyncIterator[T]:
        """All rows, newest first, page after page as they are asked for; at most `limit`."""
        return self._walk(cls, path, limit=limit, **query)

    async def _walk(self, cls: type[T], path: str, *, limit: int | None, **query: Any) -> AsyncIterator[T]:
        after, left = (None, limit)
        while left is None or left > 0:
            size = PAGE if left is None else min(left, PAGE)
            page = await self._get(path, limit=size, after=after, **query)
            for row in page["data"]:
                yield build(cls, row)
            left = None if left is None else left - len(page["data"])
            after = page["next_cursor"]
            if after is None:
                return

    async def _all(self, cls: type[T], path: str, **query: Any) -> list[T]:
        return [build(cls, row) for row in (await self._get(path, **query))["data"]]
