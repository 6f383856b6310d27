"""How many examples hypothesis tries: 20 a property daily, 300 with HYPOTHESIS_PROFILE=full (`make test-all`).

A property says nothing of it, unless it needs more than others do: `@times(7)`. None has a deadline: what else the
machine does is not what is tested.
"""

import os
from collections.abc import Sequence
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings

FAST, FULL = "fast", "full"
settings.register_profile(
    FAST, max_examples=20, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(FULL, settings.get_profile(FAST), max_examples=300)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", FAST)
settings.load_profile(PROFILE)
IS_FULL = PROFILE == FULL
T = TypeVar("T")


def times(factor: int, **others: Any) -> settings:
    """The profile with `factor` times as many examples, and hypothesis' `others`."""
    return settings(max_examples=factor * settings.default.max_examples, **others)


def daily(everything: Sequence[T], every: int) -> Sequence[T]:
    """Each `every`-th of a list that only the full profile goes through whole."""
    return everything if IS_FULL else everything[::every]
