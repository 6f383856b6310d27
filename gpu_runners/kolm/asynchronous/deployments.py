"""The asyncio face of deployments.py, of which it is made: see tests/gpu_runners/kolm/async_sources.py."""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx

from ..deployments import CHAT, Deployment, Message, _body, _patient
from ..errors import error_of
from ..rows import Json, build
from ..transport import check, not_reachable
from .resource import Resource


class Deployments(Resource):
    def list(self, *, limit: int | None = None) -> AsyncIterator[Deployment]:
        return self._pages(Deployment, "/v1/deployments", limit=limit)

    async def get(self, id: str) -> Deployment:
        return build(Deployment, await self._get(f"/v1/deployments/{id}"))

    async def create(
        self, name: str, artifact: str, *, idempotency_key: str | None = None, **settings: Any
    ) -> Deployment:
        """`settings` are the API's: canary, idle_minutes, pinned, max_concurrent, shadow, drift, tags."""
        body = {"name": name, "artifact": artifact, **settings}
        return build(Deployment, await self._post("/v1/deployments", body, idempotency_key=idempotency_key))

    async def change(self, id: str, **settings: Any) -> Deployment:
        return build(Deployment, (await self.transport.send("PATCH", f"/v1/deployments/{id}", json=settings)).json())

    async def promote(self, id: str, artifact: str | None = None) -> Deployment:
        """The canary, or the artifact that is named, answers everything from here on."""
        body = {} if artifact is None else {"artifact": artifact}
        return build(Deployment, await self._post(f"/v1/deployments/{id}/promote", body))

    async def rollback(self, id: str) -> Deployment:
        return build(Deployment, await self._post(f"/v1/deployments/{id}/rollback"))

    async def drain(self, id: str) -> Deployment:
        return build(Deployment, await self._post(f"/v1/deployments/{id}/drain"))

    async def start(self, id: str) -> Deployment:
        return build(Deployment, await self._post(f"/v1/deployments/{id}/start"))

    async def hours(self, id: str, *, hours: int = 24) -> Sequence[Json]:
        """Counters by hour and artifact, oldest first."""
        rows: list[Json] = (await self._get(f"/v1/deployments/{id}/hours", hours=hours))["data"]
        return rows

    async def delete(self, id: str) -> None:
        await self.transport.send("DELETE", f"/v1/deployments/{id}")


class Chats(Resource):
    """OpenAI's bodies in, OpenAI's bodies out. A request that may have arrived is not sent again: it would be answered,
    and billed, twice."""

    async def create(self, model: str, messages: Sequence[Message] | str, **options: Any) -> dict[str, Any]:
        """The whole answer. `model` is a deployment's name, or a `dep_...` or `art_...` id; a text for `messages` is
        one message of the user's."""
        body = _body(model, messages, options)
        timeout = _patient(self.transport.http)
        answer: dict[str, Any] = (
            await self.transport.send("POST", CHAT, json=body, max_attempts=1, timeout=timeout)
        ).json()
        return answer

    async def text(self, model: str, messages: Sequence[Message] | str, **options: Any) -> str:
        """The answer's text alone."""
        return str((await self.create(model, messages, **options))["choices"][0]["message"]["content"] or "")

    async def stream(
        self, model: str, messages: Sequence[Message] | str, **options: Any
    ) -> AsyncIterator[dict[str, Any]]:
        """The chunks as they come. Closing the iterator ends the answer on the server too."""
        http = self.transport.http
        body = _body(model, messages, options) | {"stream": True}
        try:
            async with http.stream("POST", CHAT, json=body, timeout=_patient(http)) as response:
                if response.status_code >= 400:
                    await response.aread()
                async for one in _chunks(check(response)):
                    yield one
        except httpx.HTTPError as error:
            raise not_reachable(http, error) from error


async def _chunks(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    async for line in response.aiter_lines():
        if not line.startswith("data:"):
            continue
        data = line[5:].strip()
        if data == "[DONE]":
            return
        chunk = json.loads(data)
        if "error" in chunk:
            raise error_of(502, chunk, url=str(response.request.url))
        yield chunk
