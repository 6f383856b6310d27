"""/app/compiles/<id>/events: the story of a compile for whoever is logged in, resumed without gaps or doubles."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client

from backend.compiles.booking import Fenced
from backend.compiles.events import append_event
from backend.compiles.lifecycle import transitions
from backend.compiles.models import Compile
from backend.domain.lifecycle import CompileStatus
from backend.domain.roles import Role
from backend.tenants.isolation import tenant_scope
from tests.backend.compiles.api.sse import bounded, reading
from tests.compile_factories import change, make_compile, public_id
from tests.factories import make_member, make_tenant

pytestmark = pytest.mark.usefixtures("committed_db")


class Scene:
    """A tenant with a compile of `n` events, and a person's browser."""

    def __init__(self, n: int, role: Role = Role.VIEWER) -> None:
        self.tenant = make_tenant()
        self.row = make_compile(self.tenant)
        self.browser = Client()
        self.browser.force_login(make_member(self.tenant, role))
        self.append(n - 1)

    def append(self, n: int = 1) -> None:
        with tenant_scope(self.tenant.id):
            for i in range(n):
                append_event(self.tenant.id, self.row.id, "step.progress", {"done": i})

    def end(self) -> None:
        change(self.row, status=CompileStatus.RUNNING)
        with tenant_scope(self.tenant.id):
            transitions.move(Fenced.around(Compile.objects.get(id=self.row.id)), CompileStatus.SUCCEEDED)

    @property
    def path(self) -> str:
        return f"/app/compiles/{public_id(self.row)}/events"

    def open(self, query: str = "", *, browser: Client | None = None, **headers: str) -> Any:
        cookies = (browser or self.browser).cookies
        cookie = f"{settings.SESSION_COOKIE_NAME}={cookies[settings.SESSION_COOKIE_NAME].value}" if cookies else ""
        return reading(self.path + query, {"Cookie": cookie} | headers)


@pytest.fixture(autouse=True)
def no_connection_stays_open(committed_db: None) -> Iterator[None]:
    yield
    connection.close()


def test_the_whole_story_and_then_the_end():
    scene = Scene(4)
    scene.end()

    async def scenario() -> None:
        async with scene.open() as reader:
            assert reader.status == 200
            assert reader.headers["content-type"] == "text/event-stream; charset=utf-8"
            assert await reader.numbers() == [1, 2, 3, 4, 5, 6]

    bounded(scenario())


@pytest.mark.parametrize("how", ["header", "query"])
def test_who_comes_back_gets_what_was_missed_and_nothing_twice(how):
    scene = Scene(5)
    scene.end()

    async def scenario() -> None:
        async with scene.open() as reader:
            got = await reader.numbers(2)
        query, headers = ("?after=2", {}) if how == "query" else ("", {"Last-Event-ID": "2"})
        async with scene.open(query, **headers) as reader:
            got += await reader.numbers()
        assert got == list(range(1, 8))

    bounded(scenario())


def test_an_open_stream_holds_no_connection():
    scene = Scene(2)

    async def scenario() -> None:
        async with scene.open() as reader:
            await reader.numbers(2)
            await reader.is_silent(0.3)
            assert _borrowed() == before

    connection.ensure_connection()
    before = _borrowed()
    bounded(scenario())


def _borrowed() -> int:
    """Connections of the pool that somebody has; without a pool, sessions of this database."""
    if connection.pool is not None:
        stats = connection.pool.get_stats()
        return int(stats["pool_size"] - stats["pool_available"])
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        return int(cursor.fetchone()[0])


def test_as_a_list_for_who_cannot_stream():
    scene = Scene(3)
    answer = scene.browser.get(f"{scene.path}?after=1", headers={"Accept": "application/json"})
    assert [event["seq"] for event in answer.json()["data"]] == [2, 3]


def test_who_may_not_read_gets_a_problem_and_no_stream():
    scene, other = Scene(1), Scene(1)
    cases = [
        (Client(), scene.path, 401, "not_logged_in"),
        (other.browser, scene.path, 404, "not_found"),
        (scene.browser, "/app/compiles/cmp_x/events", 404, "not_found"),
        (scene.browser, f"{scene.path}?after=x", 400, "invalid_request"),
    ]
    for browser, path, status, code in cases:
        answer = browser.get(path, headers={"Accept": "text/event-stream"})
        assert (answer.status_code, answer.json()["code"]) == (status, code), path
        assert answer["Content-Type"] == "application/problem+json"
    assert scene.browser.post(scene.path).status_code == 405
