"""How many examples hypothesis tries: 20 a property daily, 300 with HYPOTHESIS_PROFILE=full (`make test-all`).

The daily ones are the same every day, so that a change is judged by what it changes; the nightly ones are new each
night, and look for what nobody has thought of. A property says nothing of it, unless it needs more than others do:
`@times(7)`. None has a deadline: what else the machine does is not what is tested. `one_in` does the same for cases
that are written down.
"""

import os
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

FAST, FULL = "fast", "full"
settings.register_profile(
    FAST,
    max_examples=20,
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(FULL, settings.get_profile(FAST), max_examples=300, derandomize=False)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", FAST)
settings.load_profile(PROFILE)
IS_FULL = PROFILE == FULL
if not IS_FULL:  # hypothesis draws from the constants of whatever modules are loaded: of what ran before, that is
    providers._get_local_constants = Constants


def times(factor: int, **others: Any) -> settings:
    """The profile with `factor` times as many examples, and hypothesis' `others`."""
    return settings(max_examples=factor * settings.default.max_examples, **others)


def one_in(every: int, cases: Iterable[Any]) -> list[Any]:
    """Cases for `parametrize`: the first of each `every` is tried daily, the others in the nightly tier."""
    marks = pytest.mark.nightly
    return [case if i % every == 0 else pytest.param(*_arguments(case), marks=marks) for i, case in enumerate(cases)]


def _arguments(case: Any) -> tuple[Any, ...]:
    return case if isinstance(case, tuple) else (case,)
