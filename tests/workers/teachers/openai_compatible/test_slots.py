"""A teacher that answers 429 is asked for less at the same time, and for more again when it answers."""

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.workers.teachers.hostile import HostileTeacher, answer, completion_body
from tests.workers.teachers.openai_compatible.test_endpoint_faults import teacher_at
from tests.workers.teachers.openai_compatible.test_teacher import REQUEST
from workers.teachers.openai_compatible import retry
from workers.teachers.openai_compatible.slots import ROUNDS, Slots

NOW = 0.0  # do not wait
GOOD = answer(200, json.dumps(completion_body("yes")).encode())


def take(slots: Slots, n: int) -> list[int]:
    tickets = [slots.acquire(NOW) for _ in range(n)]
    assert None not in tickets
    return [ticket for ticket in tickets if ticket is not None]


def test_no_more_than_the_slots_are_in_flight() -> None:
    slots = Slots(2)
    take(slots, 2)
    assert slots.acquire(NOW) is None
    slots.release()
    assert slots.acquire(NOW) is not None


def test_a_burst_of_429s_halves_once_and_the_next_one_again_down_to_one() -> None:
    slots = Slots(8)
    seen = []
    for _ in range(5):
        tickets = take(slots, slots.now)
        for ticket in tickets:
            slots.slow_down(ticket)
            slots.release()
        seen.append(slots.now)
    assert seen == [4, 2, 1, 1, 1]


def test_they_come_back_one_at_a_time_and_not_beyond_what_the_spec_says() -> None:
    slots = Slots(4)
    (ticket,) = take(slots, 1)
    slots.slow_down(ticket)
    slots.release()
    n_answers = {}
    for n in range(1, 200):
        slots.note_answer()
        n_answers.setdefault(slots.now, n)
    assert n_answers == {2: 1, 3: 2 * ROUNDS, 4: 2 * ROUNDS + 3 * ROUNDS}


def test_calls_that_were_in_flight_when_it_was_halved_end_before_others_begin() -> None:
    slots = Slots(4)
    tickets = take(slots, 4)
    slots.slow_down(tickets[0])
    for is_free in (False, False, True):
        slots.release()
        assert (slots.acquire(NOW) is not None) == is_free


def test_one_that_waits_gets_the_slot_that_comes_free() -> None:
    slots = Slots(1)
    take(slots, 1)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(slots.acquire, 5.0)
        slots.release()
        assert waiting.result() == 0


class Crowd:
    """Answers 429 to whoever comes while another call is being answered."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.n_refused = 0

    def __call__(self, connection: socket.socket, over: threading.Event) -> None:
        if not self._lock.acquire(blocking=False):
            self.n_refused += 1
            answer(429, b"{}", retry_after_ms="20")(connection, over)
            return
        try:
            time.sleep(0.03)
            GOOD(connection, over)
        finally:
            self._lock.release()


def test_a_teacher_that_takes_one_call_at_a_time_is_asked_for_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_DELAY_S", 0.01)
    monkeypatch.setattr(retry, "MAX_ATTEMPTS", 50)
    crowd = Crowd()
    with HostileTeacher(crowd) as hostile, ThreadPoolExecutor(8) as pool:
        teacher = teacher_at(hostile.base_url, concurrency=8)
        calls = [pool.submit(teacher.complete, REQUEST, deadline_s=20) for _ in range(8)]
        assert [call.result().choices[0].text for call in calls] == ["yes"] * 8
        assert crowd.n_refused > 0
        assert teacher._slots.now < 8
        teacher.close()


def test_a_429_within_a_200_counts_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_DELAY_S", 0.01)
    busy = answer(200, b'{"error": {"code": 429, "message": "slow down"}}')
    with HostileTeacher(busy, GOOD) as hostile:
        teacher = teacher_at(hostile.base_url, concurrency=4)
        teacher.complete(REQUEST, deadline_s=20)
        assert teacher._slots.now == 2
        teacher.close()
