"""Who waits holds no database connection: streams and long polls far beyond the pool leave it free for the others.

Driven through the ASGI application itself: Django's test client has no thread a request, which is what held them.
"""

import asyncio
import json
from contextlib import asynccontextmanager
from typing import Any

import pytest
from django.conf import settings

from backend.asgi import application
from backend.runner_jobs.models import RunnerJob
from tests.compile_factories import make_compile, public_id
from tests.factories import make_api_key, make_tenant

pytestmark = pytest.mark.usefixtures("committed_db")

N_WAITING = 14  # the pool has 8


class Call:
    """One request over ASGI whose client stays connected until `hang_up`."""

    def __init__(self, method: str, path: str, token: str, *, body: Any = None, accept: str = "*/*") -> None:
        self.status: int | None = None
        self.text = b""
        self.has_begun, self._gone = asyncio.Event(), asyncio.Event()
        self._body = b"" if body is None else json.dumps(body).encode()
        headers = {"host": "localhost", "authorization": f"Bearer {token}", "accept": accept}
        if body is not None:
            headers |= {"content-type": "application/json", "content-length": str(len(self._body))}
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "path": path,
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
            "scheme": "http",
        }
        self._is_read = False
        self.task = asyncio.ensure_future(application(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if not self._is_read:
            self._is_read = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        self.text += message.get("body", b"")
        if message.get("body"):
            self.has_begun.set()

    async def hang_up(self) -> None:
        self._gone.set()
        await self.task


@asynccontextmanager
async def open_calls(calls: list[Call]):
    try:
        yield calls
    finally:
        await asyncio.gather(*(call.hang_up() for call in calls))


def play(scenario: Any) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario(), 40)

    asyncio.run(bounded())  # not async_to_sync, which would bring all threads back to this one


@pytest.fixture
def scene() -> tuple[str, str]:
    tenant = make_tenant()
    return make_api_key(tenant), f"/v1/compiles/{public_id(make_compile(tenant))}"


def test_open_event_streams_hold_no_connection(scene):
    secret, path = scene

    async def scenario() -> None:
        calls = [Call("GET", f"{path}/events", secret, accept="text/event-stream") for _ in range(N_WAITING)]
        async with open_calls(calls):
            await asyncio.wait_for(asyncio.gather(*(call.has_begun.wait() for call in calls)), 20)
            await asyncio.sleep(0.3)
            assert [call.status for call in calls] == [200] * N_WAITING
            assert all(b"event: compile.status" in call.text for call in calls)
            for _ in range(3):
                other = Call("GET", path, secret)
                await asyncio.wait_for(other.has_begun.wait(), 3)
                assert other.status == 200
                await other.hang_up()

    play(scenario)


def test_runners_that_wait_for_work_hold_no_connection(scene):
    secret, path = scene
    RunnerJob.objects.all().delete()
    body = {"runner": "idle", "kinds": ["distill"], "wait_s": 20}

    async def scenario() -> None:
        calls = [
            Call("POST", "/internal/runner/claim", settings.KOLM_RUNNER_TOKEN, body=body) for _ in range(N_WAITING)
        ]
        async with open_calls(calls):
            await asyncio.sleep(1.5)
            assert [call.status for call in calls] == [None] * N_WAITING
            other = Call("GET", path, secret)
            await asyncio.wait_for(other.has_begun.wait(), 3)
            assert other.status == 200
            await other.hang_up()

    play(scenario)
