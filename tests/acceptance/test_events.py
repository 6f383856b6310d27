"""The event stream under concurrent writers and readers that lose their connection: every number once, in order."""

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.acceptance.books import uuid_of
from tests.acceptance.deployment import Customer, Deployment, eventually
from tests.acceptance.event_reader import read_to_the_end
from tests.acceptance.event_writers import __name__ as WRITERS
from tests.acceptance.specs import asks, small_spec
from tests.acceptance.teacher_server import TeacherServer

pytestmark = pytest.mark.timeout(120)
N_WRITERS, N_EVENTS = 8, 40


@pytest.mark.nightly
def test_readers_that_reconnect_see_every_event_once_and_in_order(
    deployment: Deployment, customer: Customer, teacher: TeacherServer
) -> None:
    compile_id = customer.compile(small_spec("events", teacher=asks(teacher.url, "stuck-events")))
    eventually(lambda: teacher.turns["stuck-events"] >= 1, within_s=60)
    with ThreadPoolExecutor(2) as pool:
        rngs = (random.Random(1), random.Random(2))
        readers = [pool.submit(read_to_the_end, customer, compile_id, rng, within_s=80) for rng in rngs]
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
