"""The schedule of retries, and when an endpoint is disabled.

Ten tries over 75 h 35 min (the schedule that Standard Webhooks recommends), each wait 20 % longer or shorter at random
so that what failed together does not come back together.
"""

import random
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime

WAITS_S: tuple[float, ...] = (0, 5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400)
JITTER = 0.2
LONGEST_RETRY_AFTER_S = 86_400.0
CLOCK_STARTS_AFTER = timedelta(hours=12)
DISABLED_AFTER = timedelta(days=5)


def wait_s(tries: int, rng: random.Random, *, retry_after_s: float = 0.0) -> float | None:
    """Seconds until the next attempt after `tries` attempts, None after the last. A receiver's Retry-After makes the
    wait longer, up to a day, never shorter."""
    if tries >= len(WAITS_S):
        return None
    planned = WAITS_S[tries] * rng.uniform(1 - JITTER, 1 + JITTER)
    return max(planned, min(retry_after_s, LONGEST_RETRY_AFTER_S))


def retry_after_s(header: str, now: datetime) -> float:
    """Seconds of a Retry-After header (a number or a date), 0 for what is neither.

    >>> retry_after_s("120", datetime.now())
    120.0
    """
    text = header.strip()
    if text.isascii() and text.isdigit() and len(text) < 10:
        return float(text)
    try:
        at = parsedate_to_datetime(text)
        return max(0.0, (at - now).total_seconds())
    except (ValueError, TypeError, OverflowError):  # TypeError: a date without a zone
        return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The health of an endpoint: the first failure since its last success, and since when the clock runs."""

    failing_since: datetime | None = None
    clock_since: datetime | None = None

    def after_failure(self, now: datetime) -> "Health":
        """The clock starts at the first failure that comes twelve hours after the first of all: one bad hour, however
        many events fall into it, starts none."""
        since = self.failing_since or now
        clock = self.clock_since or (now if now - since >= CLOCK_STARTS_AFTER else None)
        return Health(failing_since=since, clock_since=clock)

    def is_over(self, now: datetime) -> bool:
        """Every attempt of five days on the clock has failed."""
        return self.clock_since is not None and now - self.clock_since >= DISABLED_AFTER
