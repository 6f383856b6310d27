"""When a delivery is tried again, and when an endpoint is given up."""

import random
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.webhooks.schedule import JITTER, WAITS_S, Health, retry_after_s, wait_s

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)


@given(seed=st.integers(), tries=st.integers(min_value=1, max_value=9))
def test_every_wait_is_within_twenty_percent_of_the_schedule(seed: int, tries: int) -> None:
    wait = wait_s(tries, random.Random(seed))
    assert wait is not None
    assert WAITS_S[tries] * (1 - JITTER) <= wait <= WAITS_S[tries] * (1 + JITTER)


def test_ten_tries_take_seventy_five_hours_and_then_there_is_none() -> None:
    assert len(WAITS_S) == 10
    assert sum(WAITS_S) == 75 * 3600 + 35 * 60 + 5
    assert wait_s(10, random.Random(1)) is None


def test_waits_differ_so_that_what_failed_together_comes_back_apart() -> None:
    rng = random.Random(1)
    assert len({wait_s(3, rng) for _ in range(20)}) == 20


@given(asked=st.floats(min_value=0, max_value=1e12), tries=st.integers(min_value=1, max_value=9))
def test_a_receiver_can_put_off_the_next_attempt_by_a_day_and_never_hurry_it(asked: float, tries: int) -> None:
    wait = wait_s(tries, random.Random(1), retry_after_s=asked)
    plain = wait_s(tries, random.Random(1))
    assert wait is not None
    assert plain is not None
    assert wait == max(plain, min(asked, 86_400))


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("120", 120.0),
        (" 7 ", 7.0),
        (format_datetime(NOW + timedelta(minutes=3), usegmt=True), 180.0),
        (format_datetime(NOW - timedelta(minutes=3), usegmt=True), 0.0),
        ("", 0.0),
        ("soon", 0.0),
        ("-5", 0.0),
        ("9" * 400, 0.0),
        ("٣", 0.0),
        ("Mon, 99 Nov 2026 99:00:00 GMT", 0.0),
    ],
)
def test_retry_after_is_a_number_or_a_date_and_nothing_else(header: str, seconds: float) -> None:
    assert retry_after_s(header, NOW) == seconds


def failing(*hours: float) -> Health:
    """Of an endpoint that failed that many hours after the first failure."""
    health = Health()
    for hour in hours:
        health = health.after_failure(NOW + timedelta(hours=hour))
    return health


def test_one_bad_hour_starts_no_clock_however_many_events_fail() -> None:
    health = failing(*(minute / 60 for minute in range(60)))
    assert health.clock_since is None
    assert not health.is_over(NOW + timedelta(days=30))


def test_the_clock_starts_twelve_hours_after_the_first_failure_and_runs_five_days() -> None:
    health = failing(0, 1, 12)
    assert health.clock_since == NOW + timedelta(hours=12)
    assert not health.is_over(NOW + timedelta(hours=12, days=5) - timedelta(seconds=1))
    assert health.is_over(NOW + timedelta(hours=12, days=5))


def test_a_later_failure_does_not_set_the_clock_back() -> None:
    assert failing(0, 13, 20, 40).clock_since == NOW + timedelta(hours=13)
