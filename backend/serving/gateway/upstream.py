"""Asking a server, as bytes: what it sends is passed on as it comes. httpx is imported by the first request."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx

CONNECT_S = 2.0
SILENT_S = 120.0  # between two pieces, or until the first one: a full server lets requests wait
MAX_ANSWER_BYTES = 16_000_000
MAX_ERROR_BYTES = 64_000


class UpstreamUnavailable(Exception):
    """The server did not answer, or stopped in the middle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer that has begun: `first` was read already, so that a server that dies before it can be replaced."""

    status: int
    content_type: str
    retry_after: str
    first: bytes
    _response: Any
    _pieces: AsyncIterator[bytes]

    async def rest(self) -> AsyncIterator[bytes]:
        """Read the next piece. Raises UpstreamUnavailable."""
        import httpx

        try:
            async for piece in self._pieces:
                yield piece
        except httpx.HTTPError as error:
            raise UpstreamUnavailable(type(error).__name__) from error

    async def whole(self, most: int = MAX_ANSWER_BYTES) -> bytes:
        """Read everything. Raises UpstreamUnavailable, for an answer that is too long too."""
        parts, size = [self.first], len(self.first)
        async for piece in self.rest():
            parts.append(piece)
            size += len(piece)
            if size > most:
                raise UpstreamUnavailable("its answer is too long")
        return b"".join(parts)

    async def close(self) -> None:
        """Also tells the server, if it is not done, that nobody reads any more."""
        await self._response.aclose()


async def ask(url: str, body: bytes, *, grant: str, request_id: str) -> Answer:
    """POST to a server and return with its first bytes. Raises UpstreamUnavailable."""
    import httpx

    headers = {
        "Authorization": f"Bearer {grant}",
        "Content-Type": "application/json",
        "Accept-Encoding": "identity",
        "X-Request-Id": request_id,
    }
    client = _client()
    try:
        response = await client.send(client.build_request("POST", url, content=body, headers=headers), stream=True)
    except httpx.HTTPError as error:
        raise UpstreamUnavailable(type(error).__name__) from error
    try:
        pieces = response.aiter_raw()
        first = await anext(pieces, b"")
    except httpx.HTTPError as error:
        await response.aclose()
        raise UpstreamUnavailable(type(error).__name__) from error
    except BaseException:
        await asyncio.shield(response.aclose())
        raise
    return Answer(
        status=response.status_code,
        content_type=response.headers.get("content-type", "application/json"),
        retry_after=response.headers.get("retry-after", ""),
        first=first,
        _response=response,
        _pieces=pieces,
    )


def error_in(data: bytes) -> str:
    """The sentence of an OpenAI-shaped error; "" where there is none."""
    try:
        value = json.loads(data)
        message = value["error"]["message"]
    except (ValueError, KeyError, TypeError):
        return ""
    return str(message)[:2_000]


_clients: "dict[int, tuple[asyncio.AbstractEventLoop, httpx.AsyncClient]]" = {}


def _client() -> "httpx.AsyncClient":
    """One for each event loop: the web process has one, tests have several."""
    import httpx

    loop = asyncio.get_running_loop()
    kept = _clients.get(id(loop))
    if kept is None or kept[0] is not loop:
        for key in [key for key, (other, _) in _clients.items() if other.is_closed()]:
            del _clients[key]
        client = httpx.AsyncClient(
            timeout=httpx.Timeout(SILENT_S, connect=CONNECT_S, pool=CONNECT_S),
            limits=httpx.Limits(max_connections=2_000, max_keepalive_connections=200, keepalive_expiry=10.0),
            trust_env=False,
            follow_redirects=False,
        )
        kept = _clients[id(loop)] = (loop, client)
    return kept[1]
