"""The rule for trying a failed call to a teacher again, and for how long to wait before it. Pure: time and chance come
in as arguments."""

import random
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

RETRIED_STATUS = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})
MAX_ATTEMPTS = 8
MAX_BILLED_FAILURES = 2  # broken answers may be billed all the same; a third would only be paid for too
FIRST_DELAY_S = 0.5
MAX_DELAY_S = 20.0
MAX_RETRY_AFTER_S = 60.0


def is_retried(status: int) -> bool:
    """A 4xx other than those listed will be the same answer next time; asking again only costs."""
    return status in RETRIED_STATUS or status >= 500


def delay_s(attempt: int, retry_after_s: float | None, rng: random.Random) -> float:
    """Full jitter (a uniform share of 0.5, 1, 2, ... 20 s) on top of what the server asked for, which is honoured up
    to a minute.

    `attempt` counts from 0. Jitter goes on top of Retry-After and never below it: a storm of clients told "2 s" must
    not return as one.
    """
    jitter = rng.uniform(0.0, min(MAX_DELAY_S, FIRST_DELAY_S * 2.0**attempt))
    if retry_after_s is None:
        return jitter
    return min(retry_after_s, MAX_RETRY_AFTER_S) + min(jitter, 1.0)


def parse_retry_after(value: str | None, now: datetime) -> float | None:
    """Seconds to wait, from delta-seconds or an HTTP date; None where the header is missing or nonsense."""
    if value is None or not value.isascii():
        return None
    value = value.strip()
    try:
        seconds = float(value)
    except ValueError:
        try:
            when = parsedate_to_datetime(value)
        except (ValueError, OverflowError):  # a year, or a time zone, of twenty digits
            return None
        seconds = ((when if when.tzinfo else when.replace(tzinfo=UTC)) - now).total_seconds()
    return max(0.0, seconds) if seconds == seconds else None
