"""The event stream under concurrent writers and readers that lose their connection: every number once, in order."""

import json
import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.acceptance.books import uuid_of
from tests.acceptance.deployment import Customer, Deployment, Row, eventually
from tests.acceptance.event_writers import __name__ as WRITERS
from tests.acceptance.specs import asks, small_spec
from tests.acceptance.teacher_server import TeacherServer

pytestmark = pytest.mark.timeout(120)
N_WRITERS, N_EVENTS = 8, 40


def test_readers_that_reconnect_see_every_event_once_and_in_order(
    deployment: Deployment, customer: Customer, teacher: TeacherServer
) -> None:
    compile_id = customer.compile(small_spec("events", teacher=asks(teacher.url, "stuck-events")))
    eventually(lambda: teacher.turns["stuck-events"] >= 1, within_s=60)
    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read_to_the_end, customer, compile_id, random.Random(seed)) for seed in (1, 2)]
        arguments = (str(customer.tenant_id), str(uuid_of(compile_id)), str(N_WRITERS), str(N_EVENTS))
        writers = deployment.python("-m", WRITERS, *arguments)
        assert writers.wait(timeout=60) == 0
        assert customer.api.post(f"/v1/compiles/{compile_id}/cancel").status_code == 202
        seen = [reader.result(timeout=30) for reader in readers]
    compile = customer.ended(compile_id, within_s=5)
    for events, n_connections in seen:
        assert [event["seq"] for event in events] == list(range(1, compile["sequence"] + 1))
        assert n_connections > 5
    assert seen[0][0] == seen[1][0] == customer.events(compile_id)
    notes = [event["data"] for event in seen[0][0] if event["type"] == "note"]
    assert Counter(note["writer"] for note in notes) == dict.fromkeys(range(N_WRITERS), N_EVENTS)
    for writer in range(N_WRITERS):
        assert [note["n"] for note in notes if note["writer"] == writer] == list(range(N_EVENTS))


def read_to_the_end(customer: Customer, compile_id: str, rng: random.Random) -> tuple[list[Row], int]:
    """All events by way of many connections, each cut after a few of them; (events, connections)."""
    events: list[Row] = []
    n_connections = 0
    with httpx.Client(base_url=customer.api.base_url, headers=customer.api.headers, timeout=40) as client:
        while not (events and events[-1]["type"] == "compile.canceled"):
            n_connections += 1
            last = events[-1]["seq"] if events else 0
            for event in part_of_stream(client, compile_id, last, n_most=rng.randint(1, 40)):
                events.append(event)
    return events, n_connections


def part_of_stream(client: httpx.Client, compile_id: str, last: int, *, n_most: int) -> Iterator[Row]:
    headers = {"Accept": "text/event-stream", "Last-Event-ID": str(last)}
    with client.stream("GET", f"/v1/compiles/{compile_id}/events", headers=headers) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        number = None
        for line in response.iter_lines():
            if line.startswith("id: "):
                number = int(line[4:])
            elif line.startswith("data: ") and number is not None:
                event: Row = json.loads(line[6:])
                assert event["seq"] == number
                yield event
                n_most -= 1
                number = None
            if n_most == 0:
                return
