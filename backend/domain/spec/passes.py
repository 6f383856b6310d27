"""The passes of an encoder's training over its pairs where a spec is silent, and how fast it learns then.

A fit of a few pairs would end after a handful of steps, far from what it can reach: it goes over them until it has made
140 steps, in at most 20 passes, and learns the slower for it. Measured in docs/benchmarks/label.md, "Few rows".
"""

from math import ceil, sqrt

PASSES, MOST_PASSES = 7, 20
FEWEST_STEPS = 140
LEARNING_RATE = 0.002  # of 7 passes
SPAN_STEPS, LEAST_SPAN_PASSES, MOST_SPAN_PASSES = 750, 6, 20  # measured in docs/benchmarks/spans.md


def passes(n_pairs: int, batch_size: int) -> int:
    """Return the passes over `n_pairs`, of steps of `batch_size` pairs.

    >>> [passes(n, 16) for n in (16, 96, 150, 200, 334)]
    [20, 20, 14, 11, 7]
    """
    steps = ceil(max(1, n_pairs) / batch_size)
    return min(MOST_PASSES, max(PASSES, ceil(FEWEST_STEPS / steps)))


def span_passes(n_pairs: int, batch_size: int) -> int:
    """Return the passes of a span student's training, which learns where things stand and needs more of them.

    >>> [span_passes(n, 16) for n in (100, 400, 1200, 14_000)]
    [20, 20, 10, 6]
    """
    steps = ceil(max(1, n_pairs) / batch_size)
    return min(MOST_SPAN_PASSES, max(LEAST_SPAN_PASSES, ceil(SPAN_STEPS / steps)))


def learning_rate(n_passes: int) -> float:
    """Return the peak learning rate of so many passes: as the root of their number.

    >>> learning_rate(7), learning_rate(20)
    (0.002, 0.001183)
    """
    return round(LEARNING_RATE * sqrt(PASSES / max(PASSES, n_passes)), 6)
