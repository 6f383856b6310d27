"""New ids rise, whatever the clock does, and never meet."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from backend.domain.ids import Prefix, decode_id
from backend.rest import new_ids
from backend.rest.new_ids import new_id, new_uuid7


def test_ten_thousand_in_a_row_rise():
    made = [new_uuid7() for _ in range(10_000)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)
    assert {value.version for value in made} == {7}


def test_threads_never_meet():
    with ThreadPoolExecutor(8) as threads:
        made = [id for batch in threads.map(lambda _: [new_uuid7() for _ in range(500)], range(8)) for id in batch]
    assert len(set(made)) == len(made)


def test_a_clock_that_steps_back_does_not_turn_the_order(monkeypatch):
    before = new_uuid7()
    monkeypatch.setattr(new_ids.time, "time_ns", lambda: 0)
    assert new_uuid7() > before


def test_a_full_millisecond_borrows_the_next(monkeypatch):
    now_ms = 1_800_000_000_000
    monkeypatch.setattr(new_ids.time, "time_ns", lambda: now_ms * 1_000_000)
    monkeypatch.setattr(new_ids, "_last", (now_ms, (1 << 74) - 1))
    made = new_uuid7()
    assert made.int >> 80 == now_ms + 1


@pytest.mark.parametrize("prefix", list(Prefix))
def test_a_new_id_reads_back(prefix):
    assert decode_id(prefix, new_id(prefix)).version == 7
