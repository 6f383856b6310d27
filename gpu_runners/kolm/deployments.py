"""Deployments, and asking them: OpenAI-compatible chats with an artifact."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import httpx

from .errors import error_of
from .resource import Resource
from .rows import Json, Row, build
from .transport import check, not_reachable

CHAT = "/v1/chat/completions"
PATIENCE_S = 150.0  # for each piece of an answer: a server may have to load the base first, and the API waits 120 s
Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment(Row):
    """A name under which an artifact answers. What it did in the last day, what ran and its history are there where one
    deployment was asked for."""

    id: str
    name: str
    state: str
    artifact: str
    task_type: str = ""
    base: Json | None = None
    previous_artifact: str | None = None
    canary: Json | None = None
    idle_minutes: int = 0
    pinned: bool = False
    max_concurrent: int = 0
    shadow: Json | None = None
    drift: Json | None = None
    tags: Json | None = None
    version: int = 1
    created_at: datetime | None = None
    updated_at: datetime | None = None
    last_24h: Sequence[Json] = ()
    ran: Sequence[Json] = ()
    history: Sequence[Json] = ()


class Deployments(Resource):
    def list(self, *, limit: int | None = None) -> Iterator[Deployment]:
        return self._pages(Deployment, "/v1/deployments", limit=limit)

    def get(self, id: str) -> Deployment:
        return build(Deployment, self._get(f"/v1/deployments/{id}"))

    def create(self, name: str, artifact: str, *, idempotency_key: str | None = None, **settings: Any) -> Deployment:
        """`settings` are the API's: canary, idle_minutes, pinned, max_concurrent, shadow, drift, tags."""
        body = {"name": name, "artifact": artifact, **settings}
        return build(Deployment, self._post("/v1/deployments", body, idempotency_key=idempotency_key))

    def change(self, id: str, **settings: Any) -> Deployment:
        return build(Deployment, self.transport.send("PATCH", f"/v1/deployments/{id}", json=settings).json())

    def promote(self, id: str, artifact: str | None = None) -> Deployment:
        """The canary, or the artifact that is named, answers everything from here on."""
        body = {} if artifact is None else {"artifact": artifact}
        return build(Deployment, self._post(f"/v1/deployments/{id}/promote", body))

    def rollback(self, id: str) -> Deployment:
        return build(Deployment, self._post(f"/v1/deployments/{id}/rollback"))

    def drain(self, id: str) -> Deployment:
        return build(Deployment, self._post(f"/v1/deployments/{id}/drain"))

    def start(self, id: str) -> Deployment:
        return build(Deployment, self._post(f"/v1/deployments/{id}/start"))

    def hours(self, id: str, *, hours: int = 24) -> Sequence[Json]:
        """Counters by hour and artifact, oldest first."""
        rows: list[Json] = self._get(f"/v1/deployments/{id}/hours", hours=hours)["data"]
        return rows

    def delete(self, id: str) -> None:
        self.transport.send("DELETE", f"/v1/deployments/{id}")


class Chats(Resource):
    """OpenAI's bodies in, OpenAI's bodies out. A request that may have arrived is not sent again: it would be answered,
    and billed, twice."""

    def create(self, model: str, messages: Sequence[Message] | str, **options: Any) -> dict[str, Any]:
        """The whole answer. `model` is a deployment's name, or a `dep_...` or `art_...` id; a text for `messages` is
        one message of the user's."""
        body = _body(model, messages, options)
        timeout = _patient(self.transport.http)
        answer: dict[str, Any] = self.transport.send("POST", CHAT, json=body, max_attempts=1, timeout=timeout).json()
        return answer

    def text(self, model: str, messages: Sequence[Message] | str, **options: Any) -> str:
        """The answer's text alone."""
        return str(self.create(model, messages, **options)["choices"][0]["message"]["content"] or "")

    def stream(self, model: str, messages: Sequence[Message] | str, **options: Any) -> Iterator[dict[str, Any]]:
        """The chunks as they come. Closing the iterator ends the answer on the server too."""
        http = self.transport.http
        body = _body(model, messages, options) | {"stream": True}
        try:
            with http.stream("POST", CHAT, json=body, timeout=_patient(http)) as response:
                if response.status_code >= 400:
                    response.read()
                yield from _chunks(check(response))
        except httpx.HTTPError as error:
            raise not_reachable(http, error) from error


def _patient(http: httpx.Client | httpx.AsyncClient) -> httpx.Timeout:
    usual = http.timeout
    return httpx.Timeout(connect=usual.connect, read=PATIENCE_S, write=usual.write, pool=usual.pool)


def _body(model: str, messages: Sequence[Message] | str, options: Mapping[str, Any]) -> dict[str, Any]:
    turns = [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)
    return {"model": model, "messages": turns, **options}


def _chunks(response: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in response.iter_lines():
        if not line.startswith("data:"):
            continue
        data = line[5:].strip()
        if data == "[DONE]":
            return
        chunk = json.loads(data)
        if "error" in chunk:  # what goes wrong after the first token has no status any more
            raise error_of(502, chunk, url=str(response.request.url))
        yield chunk
