"""The number of drafts to show: the expected saving of the first n, where drafts of one source succeed and fail
together and more accepted ones than are wanted save nothing."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Less than the 0.6 that verdicts are weighed with and that a single draft has to pay at: 0.25 to 0.4 were alike in the
# benchmark, 0.6 and 0.8 showed too few.
PLAN_CORRELATION = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOffer:
    """Drafts of one source that could be shown, in order: what the curve says of them, how many others were just shown
    and accepted, and what each costs to verify."""

    acceptance: float
    n_seen: int
    n_accepted: int
    verify_microusd: tuple[float, ...]


def expected_nets(
    sources: Sequence[SourceOffer], *, n_wanted: int, fresh_microusd: float, overhead_microusd: float
) -> list[float]:
    """E[min(accepted, wanted)] * fresh - verification - overhead, of showing the first n drafts, n = 1, 2, ...

    Three sources of one certain draft each, at 2 and a request at 1, two wanted at 10: 7, 15, 13.
    """
    worth = np.arange(n_wanted + 1) * fresh_microusd
    costs = itertools.accumulate(cost for source in sources for cost in source.verify_microusd)
    return [
        float(chances @ worth) - cost - overhead_microusd
        for chances, cost in zip(accepted_of_first(sources, most=n_wanted), costs, strict=True)
    ]


def accepted_of_first(sources: Sequence[SourceOffer], *, most: int) -> Iterator[NDArray[np.float64]]:
    """The distribution of how many of the first n drafts are accepted, n = 1, 2, ...: (most + 1,) chances of 0, 1, ...,
    the last of `most` or more. Of a source the number is beta-binomial (a Polya urn); sources are independent."""
    strength = 1 / PLAN_CORRELATION - 1
    totals = np.zeros(most + 1)
    totals[0] = 1.0
    for source in sources:
        n_drafts = len(source.verify_microusd)
        urn = source.acceptance * strength + source.n_accepted + np.arange(n_drafts + 1)
        joint = np.zeros((most + 1, n_drafts + 1))  # accepted in all, accepted of this source
        joint[:, 0] = totals
        for n_before in range(source.n_seen, source.n_seen + n_drafts):
            moved = joint * urn / (strength + n_before)
            joint -= moved
            joint[1:, 1:] += moved[:-1, :-1]
            joint[-1, 1:] += moved[-1, :-1]
            totals = joint.sum(axis=1)
            yield totals
