"""When to try again, and when not to."""

import random
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.teachers.openai_compatible.retry import (
    MAX_DELAY_S,
    MAX_RETRY_AFTER_S,
    delay_s,
    is_retried,
    parse_retry_after,
)

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)


@given(st.integers(0, 50), st.none() | st.floats(0, 1e9), st.integers())
def test_a_pause_is_never_shorter_than_asked_for_up_to_a_minute_nor_without_end(
    attempt: int, retry_after_s: float | None, seed: int
) -> None:
    pause = delay_s(attempt, retry_after_s, random.Random(seed))
    assert min(retry_after_s or 0.0, MAX_RETRY_AFTER_S) <= pause <= max(MAX_DELAY_S, MAX_RETRY_AFTER_S + 1)


def test_pauses_spread_over_the_whole_range() -> None:
    rng = random.Random(1)
    pauses = [delay_s(3, None, rng) for _ in range(1000)]
    assert min(pauses) < 0.1
    assert max(pauses) > 3.9


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("3", 3.0),
        (" 1.5 ", 1.5),
        ("Sat, 21 Nov 2026 12:00:07 GMT", 7.0),
        ("Sat, 21 Nov 2026 11:59:00 GMT", 0.0),
        ("Sat, 21 Nov 99999999999999999999 12:00:07 GMT", None),
        ("Sat, 21 Nov 2026 12:00:07 +99999999999999", None),
        ("-4", 0.0),
        ("soon", None),
        ("nan", None),
        ("", None),
        ("３", None),
        (None, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(header: str | None, seconds: float | None) -> None:
    assert parse_retry_after(header, NOW) == seconds


def test_only_passing_failures_are_retried() -> None:
    assert [s for s in range(400, 500) if is_retried(s)] == [408, 409, 425, 429]
    assert all(is_retried(s) for s in range(500, 600))
