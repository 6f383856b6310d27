"""The allocation of one count over strata, by largest remainder: of K over labels by how many rows each has, and of N,
K or a training set by the shares that a spec declares.

The two are kept apart: picks of before are reproduced only by the first, whose seats for the smallest strata come out
of the largest one.
"""

from collections.abc import Sequence
from fractions import Fraction

from backend.domain.errors import InvalidInput


def allocate_largest_remainder(k: int, sizes: Sequence[int]) -> list[int]:
    """K for each stratum: in proportion to `sizes` by largest remainder, at least one each while K allows, never more
    than there are. The earlier stratum wins a tie. Sums to min(k, sum(sizes)).

    >>> allocate_largest_remainder(5, [90, 9, 1])
    [3, 1, 1]
    """
    if k < 0 or any(size < 0 for size in sizes):
        raise InvalidInput("K and the sizes of strata are counts of 0 or more.")
    total = sum(sizes)
    k = min(k, total)
    if k == 0:
        return [0] * len(sizes)
    wanted = [k * size / total for size in sizes]
    seats = [i for i in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)) if sizes[i] > 0]
    if k <= len(seats):
        return [int(i in seats[:k]) for i in range(len(sizes))]
    shares = [min(size, max(1, int(share))) for size, share in zip(sizes, wanted, strict=True)]
    while sum(shares) != k:  # off by less than one for each stratum
        step = 1 if sum(shares) < k else -1
        open_to = [i for i in seats if (shares[i] < sizes[i] if step > 0 else shares[i] > 1)]
        shares[max(open_to, key=lambda i: (step * (wanted[i] - shares[i]), -i))] += step
    return shares


def allocate_by_shares(
    total: int, shares: Sequence[float], *, least: Sequence[int] | None = None, most: Sequence[int] | None = None
) -> list[int]:
    """Whole counts in proportion to `shares`, whatever these sum to, that add up to `total`: each at least `least` (one
    while the total allows, the largest shares first) and at most `most` (no bound). What a bound takes from one stratum
    is divided among the others in proportion. The remainders' seats go to the largest, of equal ones to the earlier.

    Where `most` has not room for the total, everybody gets it. Raises InvalidInput for a total that `least` exceeds,
    and for what is negative.

    >>> allocate_by_shares(48, [0.5, 0.3, 0.15, 0.05])
    [24, 15, 7, 2]
    >>> allocate_by_shares(48, [0.5, 0.3, 0.15, 0.05], most=[12, 12, 24, 24])
    [12, 12, 18, 6]
    """
    weights = [Fraction(str(share)) for share in shares]  # 0.1 is a tenth, not the float nearest to it
    room = [total] * len(weights) if most is None else list(most)
    if total < 0 or any(weight < 0 for weight in weights) or any(bound < 0 for bound in (*room, *(least or ()))):
        raise InvalidInput("Totals, shares and bounds are 0 or more.")
    total = min(total, sum(room))
    floors = _one_each(total, weights, room) if least is None else list(least)
    if sum(floors) > total or any(low > high for low, high in zip(floors, room, strict=True)):
        raise InvalidInput(f"{total} cannot be divided so that each part has its least, {sum(floors)} in all.")
    wanted = _within_bounds(total, weights, floors, room)
    counts = [int(each) for each in wanted]
    by_remainder = sorted(range(len(wanted)), key=lambda i: (counts[i] - wanted[i], i))
    for i in by_remainder[: total - sum(counts)]:
        counts[i] += 1
    return counts


def _one_each(total: int, weights: Sequence[Fraction], room: Sequence[int]) -> list[int]:
    open_to = [i for i in range(len(weights)) if room[i] > 0 and weights[i] > 0]
    first = sorted(open_to, key=lambda i: (-weights[i], i))[:total]
    return [int(i in first) for i in range(len(weights))]


def _within_bounds(
    total: int, weights: Sequence[Fraction], least: Sequence[int], most: Sequence[int]
) -> list[Fraction]:
    """The fractions of the total in proportion to the weights within the bounds, exactly. Each turn fixes those at the
    bounds that pull the sum away from the total, as flexible lengths are resolved in CSS (Flexible Box Layout 1,
    section 9.7), and divides what is left."""
    fixed: dict[int, Fraction] = {}
    while len(fixed) < len(weights):
        open_to = [i for i in range(len(weights)) if i not in fixed]
        left = total - sum(fixed.values(), Fraction(0))
        weight = sum(weights[i] for i in open_to)
        wanted = {i: left * weights[i] / weight if weight else left / len(open_to) for i in open_to}
        clipped = {i: min(max(wanted[i], Fraction(least[i])), Fraction(most[i])) for i in open_to}
        excess = sum(clipped.values()) - left
        for i in open_to:
            pull = clipped[i] - wanted[i]
            if excess == 0 or (pull > 0 if excess > 0 else pull < 0):
                fixed[i] = clipped[i]
    return [fixed[i] for i in range(len(weights))]
