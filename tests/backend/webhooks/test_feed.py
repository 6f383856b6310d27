"""The feed: a reader that follows it misses nothing, whatever commits late."""

import threading
from typing import Any

import pytest
from django.db import connection

from backend.domain.ids import Prefix, encode_id
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant
from backend.webhooks.emit import emit
from tests.factories import bearer, make_api_key, make_tenant
from tests.webhook_factories import eventually, make_event

pytestmark = pytest.mark.usefixtures("committed_db")


def ask(secret: str, after: str | None = None) -> dict[str, Any]:
    from django.test import Client

    query = "" if after is None else f"?after={after}"
    answer = Client().get(f"/v1/webhook_events/feed{query}", headers=bearer(secret))
    assert answer.status_code == 200, answer.content
    return answer.json()  # type: ignore[no-any-return]


def follow(secret: str, cursor: str) -> tuple[list[str], str]:
    seen: list[str] = []
    while True:
        page = ask(secret, cursor)
        seen += [event["id"] for event in page["data"]]
        cursor = page["next_cursor"]
        if not page["has_more"]:
            return seen, cursor


def test_from_here_on_and_from_the_start() -> None:
    tenant = make_tenant()
    secret = make_api_key(tenant)
    empty = ask(secret)
    assert (empty["data"], empty["next_cursor"]) == ([], "start")
    events = [encode_id(Prefix.WEBHOOK_EVENT, make_event(tenant, number=n).id) for n in range(3)]
    eventually(lambda: follow(secret, "start")[0] == events)
    now = ask(secret)
    assert (now["data"], now["next_cursor"]) == ([], events[-1])
    assert follow(secret, events[0])[0] == events[1:]
    assert ask(secret, events[-1]) == {"object": "list", "data": [], "has_more": False, "next_cursor": events[-1]}


def test_more_than_a_page_comes_in_pages() -> None:
    tenant = make_tenant()
    secret = make_api_key(tenant)
    with tenant_scope(tenant.id):
        for n in range(205):
            emit(tenant.id, "compile.queued", {"object": {"object": "compile", "n": n}})
    eventually(lambda: len(follow(secret, "start")[0]) == 205)


@pytest.mark.parametrize("cursor", ["x", "evt_", "evt_01m7ycv54jf0sa3fej7e6jfafp", "%00"])
def test_a_cursor_that_names_nothing_is_refused(cursor: str) -> None:
    from django.test import Client

    secret = make_api_key(make_tenant())
    answer = Client().get(f"/v1/webhook_events/feed?after={cursor}", headers=bearer(secret))
    assert answer.status_code == 400


def test_what_commits_late_is_not_lost() -> None:
    """An event that was written first and committed last: a reader by time or by id would have passed it."""
    tenant = make_tenant()
    secret = make_api_key(tenant)
    written, may_commit = threading.Event(), threading.Event()

    def write_and_wait() -> None:
        with tenant_scope(tenant.id):
            emit(tenant.id, "compile.queued", {"object": {"object": "compile"}})
            written.set()
            may_commit.wait(10)
        connection.close()

    late = threading.Thread(target=write_and_wait)
    late.start()
    assert written.wait(10)
    make_event(tenant)
    seen, cursor = follow(secret, "start")
    may_commit.set()
    late.join()
    eventually(lambda: len(follow(secret, "start")[0]) == 2)
    seen += follow(secret, cursor)[0]
    assert len(seen) == len(set(seen)) == 2


def test_eight_writers_and_one_reader_lose_and_double_nothing() -> None:
    tenant = make_tenant()
    secret = make_api_key(tenant)
    n_writers, n_each = 8, 25

    def write(tenant: Tenant) -> None:
        for _ in range(n_each):
            make_event(tenant)
        connection.close()

    writers = [threading.Thread(target=write, args=(tenant,)) for _ in range(n_writers)]
    for writer in writers:
        writer.start()
    seen: list[str] = []
    cursor = "start"
    while len(seen) < n_writers * n_each:
        new, cursor = follow(secret, cursor)
        seen += new
        if not any(writer.is_alive() for writer in writers) and not new:
            break
    for writer in writers:
        writer.join()

    def look() -> bool:
        nonlocal cursor
        new, cursor = follow(secret, cursor)
        seen.extend(new)
        return len(seen) >= n_writers * n_each

    eventually(look)
    assert len(seen) == len(set(seen)) == n_writers * n_each
