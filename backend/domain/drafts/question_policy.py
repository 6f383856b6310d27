"""The questions about pooled drafts: how many the first one asks about, and whether another one pays.

A question costs its beginning (the task, the slices), whatever it asks. So the first one goes as far down selection's
order as it takes until as many valid candidates are expected as will be picked, and another one has to be cheaper than
writing what is still missing then.
"""

import itertools
from collections.abc import Sequence


def n_to_ask(expected: Sequence[float], k: int) -> int:
    """The number of a pool's first candidates among which `k` are expected to be valid; `expected` has the chance of
    each in the order in which selection prefers them, 1 for those that are no unverified drafts.

    >>> n_to_ask([1.0, 0.5, 0.5, 0.9, 1.0, 0.8], 3), n_to_ask([0.5, 0.5], 3)
    (5, 2)
    """
    sums = itertools.accumulate(expected)
    return next((n for n, total in enumerate(sums, start=1) if total >= k - 1e-9), len(expected))


def is_worth_asking_again(
    n_missing: int, *, fresh_microusd: float, verify_microusd: float, overhead_microusd: float
) -> bool:
    """Say whether asking about other drafts costs less than writing the picks that a compile is missing, where what is
    verified does not suffice: `overhead_microusd` is that of the whole question."""
    return overhead_microusd + n_missing * verify_microusd < n_missing * fresh_microusd
