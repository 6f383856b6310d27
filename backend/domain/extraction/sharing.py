"""Values that several elements of a list of objects have from one place of the text: "two red and three blue mugs"."""

from collections.abc import Sequence
from typing import TypeVar

from backend.domain.extraction.plan import Sharing

Read = TypeVar("Read")
Extent = tuple[int, int]  # start and end of an element in the text


def with_shared(way: Sharing, reads: Sequence[Read], extents: Sequence[Extent]) -> list[Read]:
    """Give each element without a read of a leaf (a false one) that of another element.

    >>> with_shared(Sharing.AFTER, ["", "mugs", ""], [(0, 7), (12, 27), (28, 30)])
    ['mugs', 'mugs', '']
    """
    sources = donors(way, reads, extents)
    return [read if source is None else reads[source] for read, source in zip(reads, sources, strict=True)]


def donors(way: Sharing, reads: Sequence[object], extents: Sequence[Extent]) -> list[int | None]:
    """The number of the element whose read each one shares, None where it has its own or gets none."""
    there = [nth for nth, read in enumerate(reads) if read]
    return [None if read else _donor(way, nth, there, extents) for nth, read in enumerate(reads)]


def _donor(way: Sharing, nth: int, there: Sequence[int], extents: Sequence[Extent]) -> int | None:
    """The number of the element whose value the nth has too."""
    before = max((other for other in there if other < nth), default=None)
    after = min((other for other in there if other > nth), default=None)
    match way:
        case Sharing.EITHER:
            return after if before is None else before
        case Sharing.AFTER:
            return after
        case Sharing.BEFORE:
            return before
        case Sharing.ONLY:
            return there[0] if len(there) == 1 else None
        case Sharing.NEAREST:
            return min(there, key=lambda other: (_gap(extents[nth], extents[other]), other), default=None)


def _gap(one: Extent, other: Extent) -> int:
    """The number of characters between two elements."""
    return max(other[0] - one[1], one[0] - other[1])
