"""GET .../events: as a list, and as a stream that is resumed without gaps or doubles."""

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from asgiref.sync import sync_to_async
from django.conf import settings as django_settings
from django.db import connection
from django.test import Client

from backend.compiles.api import event_stream
from backend.compiles.booking import Fenced
from backend.compiles.events import append_event
from backend.compiles.lifecycle import transitions
from backend.compiles.models import Compile
from backend.domain.lifecycle import CompileStatus
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import ApiKey
from tests.backend.compiles.api.sse import bounded, reading
from tests.compile_factories import change, make_compile, public_id
from tests.factories import bearer, make_api_key, make_tenant

pytestmark = pytest.mark.usefixtures("committed_db")

SSE = {"Accept": "text/event-stream"}


class Scene:
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

    def open(self, query: str = "", **headers: str) -> Any:
        return reading(self.path + query, bearer(self.secret) | headers)

    def end(self) -> None:
        change(self.row, status=CompileStatus.RUNNING)
        with tenant_scope(self.tenant.id):
            transitions.move(Fenced.around(Compile.objects.get(id=self.row.id)), CompileStatus.SUCCEEDED)


async def elsewhere(act: Any, *arguments: Any) -> None:
    """Do something with the database beside the stream, on a connection of its own."""

    def acting() -> None:
        try:
            act(*arguments)
        finally:
            connection.close()

    await sync_to_async(acting, thread_sensitive=False)()


@pytest.fixture(autouse=True)
def no_connection_stays_open(committed_db: None) -> Iterator[None]:
    yield
    connection.close()


def test_the_stream_of_an_ended_compile_is_its_whole_story_and_then_ends():
    scene = Scene(4)
    scene.end()

    async def scenario() -> None:
        async with scene.open() as reader:
            assert reader.status == 200
            assert reader.headers["content-type"] == "text/event-stream; charset=utf-8"
            assert reader.headers["cache-control"] == "no-store"
            assert reader.headers["x-request-id"].startswith("req_")
            first = await reader.block()
            assert re.fullmatch(r"\d+", first["retry"])
            story = [await reader.block() for _ in range(6)]
            assert await reader.block() is None
        assert [int(block["id"]) for block in story] == [1, 2, 3, 4, 5, 6]
        assert [block["event"] for block in story[-2:]] == ["compile.status", "compile.succeeded"]
        assert json.loads(story[1]["data"])["data"] == {"done": 0, "text": "é\u2028\n"}

    bounded(scenario())


@pytest.mark.parametrize("how", ["header", "query"])
def test_a_reader_that_comes_back_gets_what_it_missed_and_nothing_twice(how):
    scene = Scene(5)

    async def scenario() -> None:
        async with scene.open() as reader:
            got = await reader.numbers(2)
        await elsewhere(scene.append, 2)
        await elsewhere(scene.end)
        query, headers = (f"?after={got[-1]}", {}) if how == "query" else ("", {"Last-Event-ID": str(got[-1])})
        async with scene.open(query, **headers) as reader:
            got += await reader.numbers()
        assert got == list(range(1, 10))

    bounded(scenario())


def test_what_happens_while_a_reader_waits_comes_at_once(monkeypatch):
    """The announcement wakes it: far sooner than the next look."""
    monkeypatch.setattr(event_stream, "LOOK_AGAIN_S", 15.0)
    scene = Scene(1)

    async def scenario() -> None:
        async with scene.open() as reader:
            assert await reader.numbers(1) == [1]
            assert await reader.is_silent(for_s=0.3)
            await elsewhere(scene.append)
            assert (await reader.block(within_s=5))["id"] == "2"

    bounded(scenario())


def test_without_redis_the_stream_goes_on_by_looking_again(settings, monkeypatch):
    monkeypatch.setattr(event_stream, "LOOK_AGAIN_S", 0.1)
    scene = Scene(1)
    settings.REDIS_URL = "redis://127.0.0.1:1"

    async def scenario() -> None:
        async with scene.open() as reader:
            assert await reader.numbers(1) == [1]
            await elsewhere(scene.append)
            assert (await reader.block())["id"] == "2"

    bounded(scenario())


def test_a_silent_stream_shows_that_it_lives_and_asks_to_be_opened_anew_in_time(monkeypatch):
    monkeypatch.setattr(event_stream, "LOOK_AGAIN_S", 0.05)
    monkeypatch.setattr(event_stream, "HEARTBEAT_S", 0.2)
    monkeypatch.setattr(event_stream, "MAX_STREAM_S", 60.0)
    scene = Scene(1)

    async def scenario() -> None:
        async with scene.open(**{"Last-Event-ID": "1"}) as reader:
            assert "retry" in await reader.block()
            assert await reader.block() == {"": "alive"}
            monkeypatch.setattr(event_stream, "MAX_STREAM_S", 0.0)
            while (block := await reader.block()) == {"": "alive"}:
                pass
            assert block == {"event": "reconnect", "data": "{}"}
            assert await reader.block() is None

    bounded(scenario())


def test_a_reader_that_hangs_up_leaves_no_subscription_behind():
    scene = Scene(1)
    with redis.Redis.from_url(django_settings.REDIS_URL) as client:
        topic = f"kolm:wake:{scene.row.id}"

        async def scenario() -> None:
            async with scene.open() as reader:
                await reader.numbers(1)
                assert client.pubsub_numsub(topic) == [(topic.encode(), 1)]
            for _ in range(50):
                if client.pubsub_numsub(topic) == [(topic.encode(), 0)]:
                    return
                await asyncio.sleep(0.05)
            raise AssertionError("the subscription outlives its reader")

        bounded(scenario())


@pytest.mark.nightly
def test_thirty_readers_that_come_and_go_each_get_every_event_once():
    scene = Scene(1)

    async def read() -> list[int]:
        got: list[int] = []
        while not got or got[-1] < 63:
            async with scene.open(**{"Last-Event-ID": str(got[-1] if got else 0)}) as reader:
                got += await reader.numbers(9)
        return got

    async def write() -> None:
        for _ in range(20):
            await elsewhere(scene.append, 3)
        await elsewhere(scene.end)

    async def scenario() -> None:
        *stories, _ = await asyncio.gather(*(read() for _ in range(30)), write())
        assert stories == [list(range(1, 64))] * 30

    bounded(scenario(), within_s=60)


def test_the_same_rows_as_a_list(monkeypatch):
    monkeypatch.setattr(event_stream, "PAGE", 3)
    scene = Scene(5)
    first = Client().get(scene.path, headers=bearer(scene.secret)).json()
    assert [event["seq"] for event in first["data"]] == [1, 2, 3]
    assert (first["has_more"], first["next_cursor"]) == (True, "3")
    rest = Client().get(f"{scene.path}?after=3", headers=bearer(scene.secret)).json()
    assert [event["seq"] for event in rest["data"]] == [4, 5]
    assert (rest["has_more"], rest["next_cursor"]) == (False, None)


@pytest.mark.parametrize("headers", [{}, SSE])
def test_who_may_not_read_gets_a_problem_and_no_stream(headers):
    scene = Scene(1)
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
    scene = Scene(1)
    settings.KOLM_RATE_PER_KEY = 1
    first = Client().get(scene.path, headers=bearer(scene.secret))  # the minute's only one
    assert first.status_code == 200
    assert first["RateLimit"].startswith('"key";r=')
    with tenant_scope(scene.tenant.id):
        assert ApiKey.objects.get().last_used_at is not None
    limited = Client().get(scene.path, headers=bearer(scene.secret))
    assert (limited.status_code, limited.json()["code"]) == (429, "rate_limited")
    assert "Retry-After" in limited
