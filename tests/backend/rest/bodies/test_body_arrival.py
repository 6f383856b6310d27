"""Whose body it is, how fast it comes, and beside how many others."""

import asyncio
import json
from typing import Any

import pytest

from backend.rest.bodies import body_arrival
from backend.rest.bodies.body_arrival import COUNTED_BYTES, Refused, Spools, count_bytes
from backend.rest.bodies.body_limits import STRANGERS_BYTES, limit_bodies
from backend.rest.bodies.body_senders import Area, SenderBook
from backend.rest.problems import Refusal

MISMATCH = Refusal(status=400, code="incomplete_body", detail="Too long.")
LARGE = COUNTED_BYTES + 1


def book() -> SenderBook:
    """/v1/ for who has the key "right", /app/ with a little for strangers."""
    asked = {"right": "tenant 1", "other": "tenant 2"}
    return SenderBook(
        [
            Area(prefix="/v1/", credential="authorization", find=lambda path, key: asked.get(key)),
            Area(
                prefix="/app/",
                credential="cookie",
                find=lambda path, key: asked.get(key),
                strangers_bytes=STRANGERS_BYTES,
            ),
        ]
    )


class Door:
    """The ASGI door before an application that reads the whole body and answers its length."""

    def __init__(self) -> None:
        self.n_read = 0
        self.answered = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self._door = limit_bodies(self._application, book())

    async def _application(self, scope: Any, receive: Any, send: Any) -> None:
        more = True
        n = 0
        while more:
            message = await receive()
            n, more = n + len(message["body"]), message["more_body"]
        await self.may_answer.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": str(n).encode()})

    async def post(self, body: bytes, *, path: str = "/v1/compiles", pause_s: float = 0.0, **headers: str) -> Any:
        """(status, headers, body of the answer)."""
        announced = {"content-length": str(len(body)), "content-type": "application/x-ndjson"} | headers
        raw = [(name.encode(), value.encode()) for name, value in announced.items()]
        scope = {"type": "http", "path": path, "headers": raw, "method": "POST"}
        left = [body[at : at + 1000] for at in range(0, len(body), 1000)]
        sent: list[Any] = []

        async def receive() -> Any:
            self.n_read += 1
            await asyncio.sleep(pause_s)
            piece = left.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(left)}

        async def send(message: Any) -> None:
            sent.append(message)

        await self._door(scope, receive, send)
        answer = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return sent[0]["status"], answer, sent[1]["body"]


@pytest.fixture
def quick_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_arrival, "PAUSE_S", 0.2)


def test_without_a_key_not_a_byte_of_a_body_is_read() -> None:
    async def walk() -> None:
        door = Door()
        for headers in ({}, {"authorization": "wrong"}):
            status, answer, body = await door.post(b"x" * 5000, **headers)
            # the application goes on without the body: it knows how to say what is missing
            assert (status, answer["connection"], body) == (200, "close", b"0")
        assert door.n_read == 0
        assert (await door.post(b"x" * 5000, authorization="right"))[2] == b"5000"

    asyncio.run(walk())


def test_a_stranger_gets_a_short_body_into_the_console_and_no_long_one() -> None:
    async def walk() -> None:
        door = Door()
        assert (await door.post(b"x" * 5000, path="/app/"))[2] == b"5000"
        status, _, body = await door.post(b"x" * (STRANGERS_BYTES + 1), path="/app/")
        assert (status, json.loads(body)["code"]) == (413, "payload_too_large")
        assert (await door.post(b"x" * (STRANGERS_BYTES + 1), path="/elsewhere"))[0] == 413
        assert (await door.post(b"x" * (STRANGERS_BYTES + 1), path="/app/", cookie="right"))[0] == 200

    asyncio.run(walk())


def test_one_sender_has_so_many_large_bodies_here_and_others_still_theirs(settings: Any) -> None:
    settings.KOLM_SPOOLS_PER_SENDER = 2

    async def walk() -> None:
        door = Door()
        door.may_answer.clear()
        held = [asyncio.create_task(door.post(b"x" * LARGE, authorization="right")) for _ in range(2)]
        await asyncio.sleep(0.3)
        status, answer, body = await door.post(b"x" * LARGE, authorization="right")
        assert (status, json.loads(body)["code"], answer["connection"]) == (429, "too_many_uploads", "close")
        small = asyncio.create_task(door.post(b"x", authorization="right"))
        other = asyncio.create_task(door.post(b"x" * LARGE, authorization="other"))
        await asyncio.sleep(0.3)
        door.may_answer.set()
        assert {(await task)[0] for task in (*held, small, other)} == {200}
        assert (await door.post(b"x" * LARGE, authorization="right"))[0] == 200  # all were given back

    asyncio.run(walk())


def test_bytes_are_bounded_by_sender_and_in_all(settings: Any) -> None:
    settings.KOLM_SPOOL_BYTES_PER_SENDER, settings.KOLM_SPOOL_BYTES = 2 * LARGE, 3 * LARGE
    spools = Spools()
    with spools.hold("a", LARGE), spools.hold("a", LARGE):
        with pytest.raises(Refused) as refused, spools.hold("a", LARGE):
            pass
        assert refused.value.refusal.code == "too_many_uploads"
        with spools.hold("b", LARGE):
            with pytest.raises(Refused) as refused, spools.hold("c", LARGE):
                pass
            assert (refused.value.refusal.status, refused.value.refusal.code) == (503, "uploads_busy")
            with spools.hold("c", COUNTED_BYTES):
                pass
        with spools.hold("c", LARGE):
            pass


def test_a_body_that_pauses_is_cut(quick_pace: None) -> None:
    status, _, body = asyncio.run(Door().post(b"x" * 3000, pause_s=5, authorization="right"))
    assert (status, json.loads(body)["code"], json.loads(body)["retryable"]) == (408, "body_too_slow", True)


def test_a_body_that_drips_is_cut_though_it_never_pauses(quick_pace: None) -> None:
    async def drip() -> Any:
        await asyncio.sleep(0.02)
        return {"type": "http.request", "body": b"x", "more_body": True}

    async def read() -> int:
        receive, n = count_bytes(drip, n_announced=10**6, mismatch=MISMATCH), 0
        while True:
            n += len((await receive())["body"])

    with pytest.raises(Refused) as refused:
        asyncio.run(asyncio.wait_for(read(), timeout=30))
    assert refused.value.refusal.code == "body_too_slow"


def test_after_the_body_the_caller_may_be_silent_for_long(quick_pace: None) -> None:
    coming = [{"type": "http.request", "body": b"x", "more_body": False}, {"type": "http.disconnect"}]

    async def receive() -> Any:
        if len(coming) == 1:
            await asyncio.sleep(0.6)
        return coming.pop(0)

    async def walk() -> None:
        bounded = count_bytes(receive, n_announced=1, mismatch=MISMATCH)
        assert (await bounded())["body"] == b"x"
        assert (await bounded())["type"] == "http.disconnect"

    asyncio.run(walk())


def test_who_was_found_is_remembered_and_who_was_not_is_asked_for_again() -> None:
    asked: list[str] = []

    def find(path: str, key: str) -> str | None:
        asked.append(key)
        return "tenant 1" if key == "right" else None

    area = Area(prefix="/v1/", credential="authorization", find=find)

    async def walk() -> None:
        senders = SenderBook([area])
        for key in ("right", "right", "wrong", "wrong", ""):
            await senders.sender_of(area, "/v1/compiles", {"authorization": key})

    asyncio.run(walk())
    assert asked == ["right", "wrong", "wrong"]
