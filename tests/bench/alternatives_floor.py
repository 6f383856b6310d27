"""`python -m tests.bench.alternatives_floor`: how often the floor `alternatives` refuses a model, by what it is really
worth beside the alternative. Prints the table of decision 0032: exact, by summing over all outcomes of so many held-out
rows. The two answer differently (one right, the other wrong) on a share `DISCORDANT` of the rows, or 4 points more than
the difference where that alone is as large; both are right on nine tenths of the others.
"""

import sys
from functools import cache
from math import exp, lgamma, log

from backend.domain.evaluation.paired import Paired

DISCORDANT = 0.10
BOTH_RIGHT = 0.9
ROWS = (20, 50, 100, 200)
DIFFERENCES = (0.02, 0.0, -0.02, -0.05, -0.12)  # model less alternative
NEGLIGIBLE = -30.0  # of a log-probability


def refused(n: int, difference: float) -> float:
    """The probability that the whole 95 % interval of the model's difference on `n` held-out rows lies below 0."""
    discordant = max(DISCORDANT, abs(difference) + 0.04)
    better, worse = (discordant + difference) / 2, (discordant - difference) / 2
    total = 0.0
    for first in range(n + 1):
        for second in range(n + 1 - first):
            same = n - first - second
            weight = _log_ways(first, second, same) + first * log(better) + second * log(worse)
            weight += same * log(1 - discordant)
            if weight > NEGLIGIBLE and _high_ppm(first, second, same) < 0:
                total += exp(weight)
    return total


def _log_ways(*counts: int) -> float:
    return lgamma(sum(counts) + 1) - sum(lgamma(count + 1) for count in counts)


@cache
def _high_ppm(first: int, second: int, same: int) -> int:
    both = round(BOTH_RIGHT * same)
    return Paired(both=both, first=first, second=second, neither=same - both, confidence=0.95).high_ppm


def main() -> int:
    print("| held-out rows |" + "".join(f" {100 * one:+.0f} points |" for one in DIFFERENCES))
    print("|---" * (1 + len(DIFFERENCES)) + "|")
    for n in ROWS:
        print(f"| {n} |" + "".join(f" {100 * refused(n, one):.1f} % |" for one in DIFFERENCES))
    return 0


if __name__ == "__main__":
    sys.exit(main())
