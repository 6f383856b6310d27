"""A request to an ASGI application, as its server makes one: announced by its headers, its body in parts."""

import asyncio
from typing import Any


def send_to(
    application: Any, *parts: bytes, path: str = "/v1/compiles", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """The status, headers and body that the application answers to a POST; after its body the caller waits."""
    headers = {"host": "localhost"} | headers
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "path": path, "headers": raw, "method": "POST", "query_string": b"", "http_version": "1.1"}
    scope |= {"scheme": "http", "client": ("127.0.0.1", 1), "server": ("localhost", 80)}
    coming = [{"type": "http.request", "body": part, "more_body": i < len(parts) - 1} for i, part in enumerate(parts)]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return coming.pop(0) if coming else await asyncio.sleep(3600, {"type": "http.disconnect"})

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    asyncio.run(application(scope, receive, send))
    answer = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], answer, b"".join(message.get("body", b"") for message in sent[1:])
