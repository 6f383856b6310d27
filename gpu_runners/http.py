"""The retries of this machine's processes: what went wrong, and how long to wait.

Unreachable  no answer, 5xx, 429, bytes that were damaged on the way (422) or came out of order (409): try again later
Refused      any other 4xx: this side is wrong (bad token, malformed report); trying again cannot help
"""

import random


class Unreachable(Exception):
    pass


class Refused(Exception):
    pass


def backoff_s(attempt: int, *, rng: random.Random, cap_s: float = 15.0) -> float:
    """Full jitter: uniform in [0, min(cap, 0.25 * 2^attempt)], at least 50 ms. Runners that lost the same server do not
    return together."""
    return max(0.05, rng.uniform(0, min(cap_s, 0.25 * 2 ** min(attempt, 10))))
