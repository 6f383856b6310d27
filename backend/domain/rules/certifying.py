"""The precision of a list, measured on pairs that it was not made from."""

from collections.abc import Sequence
from dataclasses import dataclass

from backend.domain.beta import betaincinv

PPM = 1_000_000
N_LISTS = 8
N_LISTS_OF_FEW = 3
FEW = 400


def low_ppm(right: int, answered: int, miss: float) -> int:
    """The one-sided lower bound of Clopper and Pearson 1934, in ppm, rounded down: the precision below which so many
    right answers have a chance of less than `miss`. 0 for nothing answered.

    >>> low_ppm(59, 59, 0.05)
    950492
    """
    return int(betaincinv(right, answered - right + 1, miss) * PPM) if right else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The counts of a list on held-out pairs."""

    n: int
    answered: int
    right: int

    @property
    def coverage_ppm(self) -> int:
        return self.answered * PPM // self.n if self.n else 0

    @property
    def precision_ppm(self) -> int:
        return self.right * PPM // self.answered if self.answered else 0


def longest_certified(judged: Sequence[Judged], *, precision: float, miss: float) -> tuple[int, float]:
    """Find of lists from the shortest to the longest the last whose precision is above `precision` but with a chance of
    `miss` (-1: none), and the chance with which it was tested.

    The fallback procedure of Wiens 2003: each list has an equal part of `miss`, and a list that passes hands what it
    was tested with on to the next; so the chance that any list below `precision` passes is at most `miss`."""
    best, tested = -1, miss
    own = miss / max(len(judged), 1)
    at_hand = 0.0
    for number, one in enumerate(judged):
        at_hand += own
        if low_ppm(one.right, one.answered, at_hand) >= precision * PPM:
            best, tested = number, at_hand
        else:
            at_hand = 0.0
    return best, tested


def list_sizes(n_rules: int, *, n_heldout: int) -> list[int]:
    """Return how many rules each of the lists tried has: the longest, and each two thirds of the next. Few pairs judge
    fewer lists, each half of the next: what the first must show grows with how many there are.

    >>> list_sizes(400, n_heldout=2_000), list_sizes(400, n_heldout=200)
    ([23, 35, 52, 79, 118, 177, 266, 400], [100, 200, 400])
    """
    if n_heldout < FEW:
        return sorted({n_rules >> power for power in range(N_LISTS_OF_FEW)} - {0})
    return sorted({n_rules * 2**power // 3**power for power in range(N_LISTS)} - {0})
