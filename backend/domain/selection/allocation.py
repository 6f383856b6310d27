"""The allocation of one K over labels, by largest remainder."""

from collections.abc import Sequence

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
