"""A compile's events over connections that break, repeat and leave out."""

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from gpu_runners import kolm
from gpu_runners.kolm.events import Lines, lines_of
from tests.gpu_runners.wire import Say, wire

STREAM = {"Content-Type": "text/event-stream; charset=utf-8"}


def rows(*numbers: int, last: str = "") -> list[dict[str, Any]]:
    found = [{"object": "event", "type": "note", "seq": n, "data": {"text": f"é\u2028{n}"}} for n in numbers]
    if last:
        found[-1]["type"] = f"compile.{last}"
    return found


def stream(*numbers: int, last: str = "", tail: bytes = b"") -> Say:
    blocks = (f"id: {row['seq']}\ndata: {json.dumps(row, ensure_ascii=False)}\n\n" for row in rows(*numbers, last=last))
    return Say(body=b"retry: 20\n\n: alive\n\n" + "".join(blocks).encode() + tail, headers=STREAM)


def page(*numbers: int, last: str = "") -> Say:
    return Say(body={"data": rows(*numbers, last=last), "has_more": False, "next_cursor": None})


def compile_in(status: str, sequence: int) -> Say:
    row = {"id": "cmp_1", "name": "x", "status": status, "budget_microusd": 1, "spent_microusd": 0}
    return Say(body=row | {"sequence": sequence})


@pytest.fixture
def follow() -> Callable[..., Any]:
    def act(*script: Say) -> tuple[list[int], list[str]]:
        with wire(*script) as server, kolm.Client("k", server.url) as client:
            client.transport.sleep, client.transport.rng = [].append, random.Random(1)
            seen = [event.seq for event in client.compiles.events("cmp_1")]
            after = [asked.headers["last-event-id"] for asked in server.asked if "last-event-id" in asked.headers]
        return seen, after

    return act


def test_a_stream_that_breaks_in_the_middle_of_an_event_goes_on_at_that_event(follow: Any) -> None:
    torn = b'id: 3\ndata: {"object": "event", "type": "no'
    script = [stream(1, 2, tail=torn), compile_in("running", 4), stream(3, 4, last="succeeded")]
    assert follow(*script, compile_in("succeeded", 4)) == ([1, 2, 3, 4], ["0", "2"])


def test_an_event_that_is_told_twice_is_given_out_once(follow: Any) -> None:
    script = [stream(1, 2), compile_in("running", 4), stream(2, 1, 3, 4, last="failed"), compile_in("failed", 4)]
    assert follow(*script)[0] == [1, 2, 3, 4]


def test_an_event_that_is_left_out_is_asked_for_before_those_behind_it(follow: Any) -> None:
    script = [stream(1, 3, 4), stream(2, 3, 4, last="canceled"), compile_in("canceled", 4)]
    assert follow(*script) == ([1, 2, 3, 4], ["0", "1"])


def test_the_end_of_a_first_try_is_not_the_end_of_a_resumed_compile(follow: Any) -> None:
    """Compile failed (2), was resumed (3), succeeded (4): read from the beginning, all four are told."""
    script = [stream(1, 2, last="failed"), compile_in("succeeded", 4), compile_in("succeeded", 4)]
    assert follow(*script, page(3, 4, last="succeeded"))[0] == [1, 2, 3, 4]


def test_where_no_stream_gets_through_the_list_is_asked(follow: Any) -> None:
    no_stream = Say(body={"data": []})
    assert follow(no_stream, no_stream, no_stream, page(1, 2, last="succeeded"), compile_in("succeeded", 2))[0] == [
        1,
        2,
    ]


def test_what_is_refused_ends_it() -> None:
    refused = Say(status=404, body={"code": "not_found", "detail": "There is no such compile."})
    with wire(refused) as server, kolm.Client("k", server.url) as client:
        events = client.compiles.events("cmp_1")
        with pytest.raises(kolm.NotFound):
            next(events)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_lines_are_the_same_however_the_bytes_were_cut(size: int, end: bytes) -> None:
    data = end.join([b"data: a\xc3\xa9", b"", "data: \u2028b".encode(), b""]) + b"no end"
    parts = [data[at : at + size] for at in range(0, len(data), size)]
    found = [line for line in lines_of(parts) if line]
    assert found == ["data: aé", "data: \u2028b"]


def test_the_server_says_how_long_to_wait_and_is_not_believed_beyond_reason() -> None:
    lines = Lines()
    for text, expected in ((b"retry: 1500\n", 1.5), (b"retry: 999999999\n", 10.0), (b"retry: soon\n", 10.0)):
        list(lines.read([text]))
        assert lines.retry_s == expected
