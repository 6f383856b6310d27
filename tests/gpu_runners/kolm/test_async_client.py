"""The asyncio client: made of the other one's sources, and over the wire as good as it."""

import asyncio
import inspect
import os
import random
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from gpu_runners import kolm
from tests.gpu_runners.cli.api.small_api import EVENTS, SmallApi, small_api
from tests.gpu_runners.kolm.async_sources import TARGET, modules
from tests.gpu_runners.wire import Say, wire

SPEC = Path(__file__).parents[3] / "examples" / "refund-router.yaml"
BUSY = Say(status=503, body={"code": "unavailable", "detail": "Soon.", "retryable": True})
UPLOAD = {"id": "upl_0", "purpose": "captures", "sha256": "", "size_bytes": 1, "n_rows": 1}


def run(url: str, act: Callable[[kolm.AsyncClient], Awaitable[Any]], *, pauses: list[float] | None = None) -> Any:
    async def sleep(pause_s: float) -> None:
        if pauses is not None:
            pauses.append(pause_s)

    async def whole() -> Any:
        async with kolm.AsyncClient("kolm_sk_test", url) as client:
            client.transport.rng, client.transport.sleep = random.Random(1), sleep
            return await act(client)

    return asyncio.run(whole())


def test_it_is_what_the_sources_make() -> None:
    for name, text in modules().items():
        written = (TARGET / name).read_text(encoding="utf-8")
        assert written == text, "make it anew: python -m tests.gpu_runners.kolm.async_sources"


def test_it_has_every_resource_and_every_method_of_the_other() -> None:
    def methods_of(client: object) -> dict[str, set[str]]:
        resources = {name: value for name, value in vars(client).items() if hasattr(value, "_get")}
        return {
            name: {each for each, _ in inspect.getmembers(value, inspect.ismethod)} for name, value in resources.items()
        }

    with kolm.Client("k", "http://127.0.0.1:9") as client:
        assert methods_of(kolm.AsyncClient("k", "http://127.0.0.1:9")) == methods_of(client)


def test_a_compile_is_started_followed_over_broken_streams_and_given_back() -> None:
    with small_api() as api:
        api.break_after = 3
        seen: list[str] = []

        async def act(client: kolm.AsyncClient) -> kolm.Compile:
            return await client.compiles.create(str(SPEC), wait=True, on_event=lambda event: seen.append(event.type))

        done = run(api.url, act)
    assert done.has_succeeded
    assert len(seen) == len(EVENTS) + 2
    assert api.n_streams > 1


def test_the_events_of_many_compiles_come_at_the_same_time() -> None:
    async def count(client: kolm.AsyncClient) -> int:
        n = 0
        async with aclosing(client.compiles.log("cmp_1")) as events:  # type: ignore[type-var]
            async for _ in events:
                n += 1
        return n

    async def act(client: kolm.AsyncClient) -> list[int]:
        return await asyncio.gather(*(count(client) for _ in range(5)))

    with small_api() as api:
        assert run(api.url, act) == [len(EVENTS) + 2] * 5


def test_a_list_fetches_its_pages_as_it_is_walked() -> None:
    pages = [
        Say(body={"data": [UPLOAD] * 2, "next_cursor": "upl_1"}),
        Say(body={"data": [UPLOAD], "next_cursor": None}),
    ]

    async def act(client: kolm.AsyncClient) -> list[str]:
        return [row.id async for row in client.uploads.list()]

    with wire(*pages) as server:
        assert run(server.url, act) == ["upl_0"] * 3
        assert server.asked[1].path == "/v1/uploads?limit=100&after=upl_1"


def test_it_asks_again_with_the_same_key_and_pauses_without_blocking() -> None:
    pauses: list[float] = []
    with wire(BUSY, Say(cuts=True), Say(body={"id": "x"})) as server:
        assert run(server.url, lambda client: client.post("/v1/things", {"a": 1}), pauses=pauses) == {"id": "x"}
        assert len({asked.headers["idempotency-key"] for asked in server.asked}) == 1
    assert len(pauses) == 2


def test_errors_are_the_same() -> None:
    with wire(Say(status=404, body={"code": "not_found", "detail": "No."})) as server, pytest.raises(kolm.NotFound):
        run(server.url, lambda client: client.compiles.get("cmp_1"))
    with pytest.raises(kolm.NotReachable, match="does not answer"):
        run("http://127.0.0.1:9", lambda client: client.compiles.get("cmp_1"))


def test_a_chat_streams_and_an_artifact_is_checked(tmp_path: Path) -> None:
    chunk = b'data: {"choices": [{"delta": {"content": "%s"}}]}\n\n'
    body = chunk % b"two " + chunk % b"lamps" + b"data: [DONE]\n\n"

    async def chat(client: kolm.AsyncClient) -> str:
        parts = [one["choices"][0]["delta"]["content"] async for one in client.chats.stream("orders", "hi")]
        return "".join(parts)

    with wire(Say(body=body, headers={"Content-Type": "text/event-stream"})) as server:
        assert run(server.url, chat) == "two lamps"

    def download(api: SmallApi) -> bytes:
        return bytes(run(api.url, lambda client: client.artifacts.download("art_1", tmp_path / "a.kolm")))

    with small_api() as api:
        assert download(api) == api.artifact == (tmp_path / "a.kolm").read_bytes()
        api.corrupts = True
        with pytest.raises(kolm.KolmError, match="announced sha256"):
            download(api)


def test_other_tasks_go_on_while_a_spec_is_read_from_disk(tmp_path: Path) -> None:
    pipe = tmp_path / "spec.yaml"
    os.mkfifo(pipe)

    async def act(client: kolm.AsyncClient) -> dict[str, Any]:
        reading = asyncio.create_task(client.compiles.document(pipe))
        await asyncio.to_thread(pipe.write_text, "name: read-later\n")  # begins while the other end is being read
        return await asyncio.wait_for(reading, timeout=30)

    assert run("http://127.0.0.1:9", act) == {"name": "read-later"}


def test_rows_of_a_cursor_are_walked_in_the_thread_that_made_it() -> None:
    threads: set[int] = set()

    def rows() -> Iterator[str]:
        for text in ("first", "second"):
            threads.add(threading.get_ident())
            yield text

    with wire(Say(status=201, body=UPLOAD)) as api:
        run(api.url, lambda client: client.uploads.create(rows(), purpose="captures"))
    assert threads == {threading.get_ident()}
