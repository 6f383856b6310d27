"""A tenant with generative artifacts and deployments, the far side of the gateway's wire (an ASGI app that keeps the
contract of `domain.serving.wire` on loopback), and the web process itself on a port, for what only a socket shows."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import uvicorn
from django.conf import settings
from django.test import Client

from backend.artifacts.models import Artifact
from backend.blobs import put_blob
from backend.compiles.models import Compile
from backend.domain.serving.wire import Grant, ServerRegistration, UsageRow, grant_key, read_grant
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from backend.usage import holds
from tests.compile_factories import make_compile, public_id
from tests.factories import bearer, make_api_key, make_tenant

BASE = {"id": "kolm-tiny-1", "sha256": "b" * 64}
MESSAGES = [{"role": "user", "content": "where is my parcel?"}]


def make_generative(
    row: Compile,
    *,
    version: int = 1,
    base: dict[str, str] = BASE,
    task_type: str = "json",
    accuracy_ppm: int = 950_000,
    member: str = "prompt.json",
) -> Artifact:
    """An artifact whose manifest is a generative one's, or that of another student by a `member` of its own; its bytes
    are not read by anybody here."""
    members = [{"path": member, "size": 300, "sha256": "0" * 64}]
    with tenant_scope(row.tenant_id):
        data = f"{row.id}/{version}".encode()
        return Artifact.objects.create(
            tenant_id=row.tenant_id,
            compile_id=row.id,
            name=row.name,
            version=version,
            sha256=put_blob(row.tenant_id, data),
            size_bytes=len(data),
            manifest={"base": base, "task_type": task_type, "members": members},
            k_score_ppm=900_000,
            evaluation={"accuracy_ppm": accuracy_ppm},
        )


@dataclass(kw_only=True)
class World:
    """`call` is a request by the tenant's key."""

    tenant: Tenant
    secret: str
    compile: Compile
    artifact: Artifact
    spec: dict[str, Any]

    def call(self, method: str, path: str, body: Any = None, *, secret: str | None = None, **headers: str) -> Any:
        data = b"" if body is None and method == "GET" else json.dumps({} if body is None else body).encode()
        return Client().generic(
            method, path, data, content_type="application/json", headers=bearer(secret or self.secret) | headers
        )

    def deploy(self, name: str = "router", **fields: Any) -> dict[str, Any]:
        answer = self.call("POST", "/v1/deployments", {"name": name, "artifact": public_id(self.artifact)} | fields)
        assert answer.status_code == 201, answer.content
        return answer.json()

    def another(self, version: int = 2, **fields: Any) -> Artifact:
        return make_generative(_compiled(self.tenant, self.spec), version=version, **fields)


def _compiled(tenant: Tenant, spec: dict[str, Any]) -> Compile:
    row = make_compile(tenant, **spec)
    with tenant_scope(tenant.id):
        holds.release(tenant.id, row.id)  # it is over: what is held from here on, serving holds
    return row


def make_world(*, spec: dict[str, Any] | None = None, **fields: Any) -> World:
    tenant = make_tenant()
    compile = _compiled(tenant, spec or {})
    secret = make_api_key(tenant)
    return World(
        tenant=tenant, secret=secret, compile=compile, artifact=make_generative(compile, **fields), spec=spec or {}
    )


# --- servers on loopback ------------------------------------------------------------------------------------

App = Callable[..., Awaitable[None]]


@contextmanager
def served(app: App) -> Iterator[str]:
    """The app behind a real socket; gives its address."""
    config = uvicorn.Config(
        app, host="127.0.0.1", port=0, log_level="error", lifespan="off", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        if not thread.is_alive():
            raise RuntimeError("uvicorn did not start")
        threading.Event().wait(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(10)


def chunk(text: str) -> bytes:
    return f"data: {json.dumps({'choices': [{'index': 0, 'delta': {'content': text}}]})}\n\n".encode()


@dataclass(kw_only=True)
class FarSide:
    """A serving runner as far as the gateway sees one. `pieces` are streamed one after another; `gate`, when it is
    given, holds all but the first back until it is set; `status` refuses; `dies_after` cuts the connection."""

    pieces: tuple[bytes, ...] = (chunk("it is "), chunk("here"), b"data: [DONE]\n\n")
    status: int = 200
    retry_after: str = ""
    dies_after: int | None = None
    gate: threading.Event | None = None
    grants: list[Grant] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    disconnected: threading.Event = field(default_factory=threading.Event)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        data, more = b"", True
        while more:
            message = await receive()
            data, more = data + message.get("body", b""), message.get("more_body", False)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        token = headers["authorization"].removeprefix("Bearer ")
        self.tokens.append(token)
        self.grants.append(read_grant(token, grant_key(settings.KOLM_RUNNER_TOKEN), now=0))
        self.bodies.append(json.loads(data))
        if self.status != 200:
            return await self._refuse(send)
        is_stream = bool(self.bodies[-1].get("stream"))
        kind = b"text/event-stream" if is_stream else b"application/json"
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
        if not is_stream:
            text = json.dumps({"choices": [{"message": {"content": '{"label": "refund"}'}}]}).encode()
            return await send({"type": "http.response.body", "body": text})
        await self._stream(receive, send)
        return None

    async def _stream(self, receive: Any, send: Any) -> None:
        gone = asyncio.create_task(receive())
        for number, piece in enumerate(self.pieces):
            if number == self.dies_after:
                raise ConnectionResetError  # uvicorn closes the connection in the middle of the body
            while number and self.gate is not None and not self.gate.is_set():
                if gone.done():
                    self.disconnected.set()
                    return
                await asyncio.sleep(0.005)
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        gone.cancel()
        await send({"type": "http.response.body", "body": b""})

    async def _refuse(self, send: Any) -> None:
        body = json.dumps({"error": {"message": "no room", "type": "x", "code": "full"}}).encode()
        headers = [(b"content-type", b"application/json")]
        if self.retry_after:
            headers.append((b"retry-after", self.retry_after.encode()))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def usage(self, nth: int = -1, **changes: Any) -> UsageRow:
        """What this server would tell of one of its requests."""
        row = UsageRow(
            grant=self.tokens[nth],
            part=0,
            model=self.grants[nth].sha256,
            prompt_tokens=120,
            cached_tokens=20,
            completion_tokens=30,
            drafted_tokens=10,
            accepted_tokens=8,
            finish_reason="stop",
            first_token_us=40_000,
            total_us=200_000,
        )
        return replace(row, **changes)


_addresses: list[str] = []


@contextmanager
def web_process() -> Iterator[str]:
    """The web process's ASGI application on a port: requests through it share one event loop, as in production."""
    from backend.asgi import application

    with served(application) as url:
        _addresses.append(url)
        yield url
        _addresses.remove(url)


def chat(world: World, model: str = "router", *, secret: str | None = None, **more: Any) -> httpx.Response:
    """POST /v1/chat/completions over a socket."""
    body = {"model": model, "messages": MESSAGES} | more
    headers = bearer(secret or world.secret)
    return httpx.post(f"{_addresses[-1]}/v1/chat/completions", json=body, headers=headers, timeout=30, trust_env=False)


def runner(path: str, body: Any) -> Any:
    """A server's call to the backend."""
    headers = bearer(settings.KOLM_RUNNER_TOKEN)
    return Client().post(f"/internal/runner/{path}", json.dumps(body), content_type="application/json", headers=headers)


def say_hello(url: str, *, name: str = "s1", **changes: Any) -> Any:
    told = ServerRegistration(
        name=name,
        url=url,
        bases=[BASE],
        engine={"name": "torch", "version": "1"},
        max_running=8,
        n_running=0,
        n_waiting=0,
        adapters=[],
        draining=False,
    )
    return runner("servers", replace(told, **changes).to_json())


def tell_usage(*rows: UsageRow, server: str = "srv_x") -> dict[str, Any]:
    answer = runner("usage", {"server": server, "rows": [row.to_json() for row in rows]})
    assert answer.status_code == 200, answer.content
    return answer.json()
