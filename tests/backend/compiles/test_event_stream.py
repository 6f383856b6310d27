"""GET .../events: as a list, and as a stream that is resumed without gaps or doubles."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import connection
from django.test import AsyncClient, Client

from backend.compiles import event_stream, transitions
from backend.compiles.events import append_event
from backend.compiles.models import Compile
from backend.domain.lifecycle import CompileStatus
from backend.tenants.models import ApiKey
from backend.tenants.scope import tenant_scope
from tests.compile_factories import change, make_compile, public_id
from tests.factories import bearer, make_api_key, make_tenant

pytestmark = pytest.mark.usefixtures("committed_db")

SSE = {"Accept": "text/event-stream"}
PATIENCE_S = 20


class Setting:
    """A tenant, its key and its compile with `n` events."""

    def __init__(self, n: int) -> None:
        self.tenant = make_tenant()
        self.secret = make_api_key(self.tenant)
        self.row = make_compile(self.tenant)
        self.append(n - 1)

    def append(self, n: int = 1) -> None:
        with tenant_scope(self.tenant.id):
            for i in range(n):
                append_event(self.tenant.id, self.row.id, "step.progress", {"done": i, "text": "é\u2028\n"})

    @property
    def path(self) -> str:
        return f"/v1/compiles/{public_id(self.row)}/events"

    def end(self) -> None:
        change(self.row, status=CompileStatus.RUNNING)
        with tenant_scope(self.tenant.id):
            transitions.move(Compile.objects.get(id=self.row.id), CompileStatus.SUCCEEDED)


async def blocks(answer: Any) -> AsyncIterator[dict[str, str]]:
    """The blocks of an event stream as {field: value}, comments left out."""
    text = ""
    async for part in answer.streaming_content:
        text += part.decode()
        while "\n\n" in text:
            block, text = text.split("\n\n", 1)
            if not block.startswith(":"):
                yield dict(line.split(": ", 1) for line in block.split("\n"))


def play(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario(), PATIENCE_S)

    try:
        async_to_sync(bounded)()
    finally:
        connection.close()


async def read(scene: Setting, n: int | None = None, **headers: str) -> list[int]:
    """The numbers of the next `n` events of a new connection, of all where None."""
    answer = await AsyncClient().get(scene.path, headers=bearer(scene.secret) | SSE | headers)
    assert answer.status_code == 200
    stream = blocks(answer)
    numbers = []
    async for block in stream:
        if "id" in block:
            assert json.loads(block["data"])["seq"] == int(block["id"])
            numbers.append(int(block["id"]))
        if len(numbers) == n:
            break
    await stream.aclose()
    return numbers


def test_the_stream_of_an_ended_compile_is_its_whole_story_and_then_ends():
    scene = Setting(4)
    scene.end()

    async def scenario() -> None:
        answer = await AsyncClient().get(scene.path, headers=bearer(scene.secret) | SSE)
        assert answer["Content-Type"] == "text/event-stream; charset=utf-8"
        assert answer["Cache-Control"] == "no-store"
        assert answer["X-Request-Id"].startswith("req_")
        first, *rest = [block async for block in blocks(answer)]
        assert re.fullmatch(r"\d+", first["retry"])
        assert [int(block["id"]) for block in rest] == [1, 2, 3, 4, 5, 6]
        assert [block["event"] for block in rest[-2:]] == ["compile.status", "compile.succeeded"]
        assert json.loads(rest[1]["data"])["data"] == {"done": 0, "text": "é\u2028\n"}

    play(scenario)


@pytest.mark.parametrize("how", ["header", "query"])
def test_a_reader_that_comes_back_gets_what_it_missed_and_nothing_twice(how):
    scene = Setting(5)

    async def scenario() -> None:
        got = await read(scene, 2)
        await sync_to_async(scene.append)(2)
        await sync_to_async(scene.end)()
        if how == "header":
            got += await read(scene, **{"Last-Event-ID": str(got[-1])})
        else:
            scene_after = f"{scene.path}?after={got[-1]}"
            answer = await AsyncClient().get(scene_after, headers=bearer(scene.secret) | SSE)
            got += [int(block["id"]) async for block in blocks(answer) if "id" in block]
        assert got == list(range(1, 10))

    play(scenario)


def test_what_happens_while_a_reader_waits_comes_at_once(monkeypatch):
    """The announcement wakes it: far sooner than the next look."""
    monkeypatch.setattr(event_stream, "LOOK_AGAIN_S", 15.0)
    scene = Setting(1)

    async def scenario() -> None:
        answer = await AsyncClient().get(scene.path, headers=bearer(scene.secret) | SSE)
        stream = blocks(answer)
        assert "retry" in await anext(stream)
        assert (await anext(stream))["id"] == "1"
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        await sync_to_async(scene.append)()
        assert (await asyncio.wait_for(waiting, 5))["id"] == "2"
        await stream.aclose()

    play(scenario)


def test_without_redis_the_stream_goes_on_by_looking_again(settings, monkeypatch):
    monkeypatch.setattr(event_stream, "LOOK_AGAIN_S", 0.1)
    scene = Setting(1)
    settings.REDIS_URL = "redis://127.0.0.1:1"

    async def scenario() -> None:
        answer = await AsyncClient().get(scene.path, headers=bearer(scene.secret) | SSE)
        stream = blocks(answer)
        assert "retry" in await anext(stream)
        assert (await anext(stream))["id"] == "1"
        await sync_to_async(scene.append)()
        assert (await anext(stream))["id"] == "2"
        await stream.aclose()

    play(scenario)


def test_a_silent_stream_shows_that_it_lives_and_asks_to_be_opened_anew_in_time(monkeypatch):
    monkeypatch.setattr(event_stream, "LOOK_AGAIN_S", 0.05)
    monkeypatch.setattr(event_stream, "HEARTBEAT_S", 0.2)
    monkeypatch.setattr(event_stream, "MAX_STREAM_S", 1.0)
    scene = Setting(1)

    async def scenario() -> None:
        answer = await AsyncClient().get(scene.path, headers=bearer(scene.secret) | SSE)
        text = "".join([part.decode() async for part in answer.streaming_content])
        assert ": alive\n\n" in text
        assert text.endswith("event: reconnect\ndata: {}\n\n")

    play(scenario)


def test_the_same_rows_as_a_list(monkeypatch):
    monkeypatch.setattr(event_stream, "PAGE", 3)
    scene = Setting(5)
    first = Client().get(scene.path, headers=bearer(scene.secret)).json()
    assert [event["seq"] for event in first["data"]] == [1, 2, 3]
    assert (first["has_more"], first["next_cursor"]) == (True, "3")
    rest = Client().get(f"{scene.path}?after=3", headers=bearer(scene.secret)).json()
    assert [event["seq"] for event in rest["data"]] == [4, 5]
    assert (rest["has_more"], rest["next_cursor"]) == (False, None)


@pytest.mark.parametrize("headers", [{}, SSE])
def test_who_may_not_read_gets_a_problem_and_no_stream(headers):
    scene = Setting(1)
    stranger = make_api_key(make_tenant())
    blind = make_api_key(scene.tenant, scopes=["artifacts:read"])
    cases = [
        (bearer(stranger), scene.path, 404, "not_found"),
        (bearer(scene.secret), "/v1/compiles/cmp_x/events", 404, "not_found"),
        (bearer(blind), scene.path, 403, "missing_scope"),
        (bearer("sk_test_nonsense"), scene.path, 401, "invalid_api_key"),
        ({}, scene.path, 401, "missing_api_key"),
        (bearer(scene.secret) | {"Last-Event-ID": "x"}, scene.path, 400, "invalid_request"),
        (bearer(scene.secret), f"{scene.path}?after=-1", 400, "invalid_request"),
        (bearer(scene.secret), f"{scene.path}?after=99999999999", 400, "invalid_request"),
    ]
    for given, path, status, code in cases:
        answer = Client().get(path, headers=given | headers)
        assert (answer.status_code, answer.json()["code"]) == (status, code), (path, code)
        assert answer["Content-Type"] == "application/problem+json"
        assert ("WWW-Authenticate" in answer) == (status == 401)
    assert Client().post(scene.path, headers=bearer(scene.secret)).status_code == 405


def test_reading_events_counts_against_the_rate_limit_and_as_a_use_of_the_key(settings):
    scene = Setting(1)
    first = Client().get(scene.path, headers=bearer(scene.secret))
    assert first["RateLimit"].startswith('"key";r=')
    with tenant_scope(scene.tenant.id):
        assert ApiKey.objects.get().last_used_at is not None
    settings.KOLM_RATE_PER_KEY = 1
    limited = Client().get(scene.path, headers=bearer(scene.secret))
    assert (limited.status_code, limited.json()["code"]) == (429, "rate_limited")
    assert "Retry-After" in limited
