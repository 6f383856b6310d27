"""A reader of a compile's event stream that loses its connection again and again, and asks for the rest with
`Last-Event-ID`."""

import json
import random
import time
from collections.abc import Iterator
from contextlib import suppress

import httpx

from tests.acceptance.deployment import TERMINAL, Customer, Row

LAST = frozenset(f"compile.{status}" for status in TERMINAL)


def read_to_the_end(
    customer: Customer, compile_id: str, rng: random.Random, *, within_s: float
) -> tuple[list[Row], int]:
    """All events up to the terminal one by way of many connections, each cut after at most 40 events; (events,
    connections). A server that is away for a moment is asked again."""
    events: list[Row] = []
    n_connections = 0
    deadline = time.monotonic() + within_s
    with httpx.Client(base_url=customer.api.base_url, headers=customer.api.headers, timeout=20) as client:
        while not (events and events[-1]["type"] in LAST):
            assert time.monotonic() < deadline, f"no end after {len(events)} events"
            n_connections += 1
            last = events[-1]["seq"] if events else 0
            with suppress(httpx.TransportError):
                for event in _part_of_stream(client, compile_id, last, n_most=rng.randint(1, 40)):
                    events.append(event)
    return events, n_connections


def _part_of_stream(client: httpx.Client, compile_id: str, last: int, *, n_most: int) -> Iterator[Row]:
    headers = {"Accept": "text/event-stream", "Last-Event-ID": str(last)}
    with client.stream("GET", f"/v1/compiles/{compile_id}/events", headers=headers) as response:
        if response.status_code == 503:  # a part of the deployment is being started again
            time.sleep(0.2)
            return
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        number = 0
        for line in response.iter_lines():
            name, _, value = line.partition(": ")
            if name == "id":
                number = int(value)
            elif name == "data" and value != "{}":
                event: Row = json.loads(value)
                assert event["seq"] == number
                yield event
                n_most -= 1
            if n_most == 0:
                return
