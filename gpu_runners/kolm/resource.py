"""One resource of the API: the ways in which its methods ask."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .pages import Pages
from .rows import T, build
from .transport import Transport

PAGE = 100


@dataclass(frozen=True, slots=True)
class Resource:
    transport: Transport

    def _get(self, path: str, **query: Any) -> Any:
        return self.transport.send("GET", path, query=query).json()

    def _post(self, path: str, body: Any = None, *, idempotency_key: str | None = None) -> Any:
        sent = {} if body is None else body
        return self.transport.send("POST", path, json=sent, idempotency_key=idempotency_key).json()

    def _pages(self, cls: type[T], path: str, *, limit: int | None, **query: Any) -> Iterator[T]:
        """All rows, newest first, page after page as they are asked for; at most `limit`."""
        return Pages(self._walk(cls, path, limit=limit, **query))

    def _walk(self, cls: type[T], path: str, *, limit: int | None, **query: Any) -> Iterator[T]:
        after, left = None, limit
        while left is None or left > 0:
            size = PAGE if left is None else min(left, PAGE)
            page = self._get(path, limit=size, after=after, **query)
            for row in page["data"]:
                yield build(cls, row)
            left = None if left is None else left - len(page["data"])
            after = page["next_cursor"]
            if after is None:
                return

    def _all(self, cls: type[T], path: str, **query: Any) -> list[T]:
        return [build(cls, row) for row in self._get(path, **query)["data"]]
