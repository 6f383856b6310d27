"""A bounded, uniform sample of rows that come one after another, in their order."""

import heapq
import random
from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class Reservoir(Generic[T]):
    """Keeps at most `most` of the rows added, each with the same chance, always the same ones for the same rows (each
    row draws a key; the largest keys stay)."""

    def __init__(self, most: int) -> None:
        self.n_added = 0
        self._most = most
        self._random = random.Random(0)
        self._heap: list[tuple[float, int, T]] = []

    def add(self, row: T) -> None:
        self.n_added += 1
        entry = (self._random.random(), self.n_added, row)
        if len(self._heap) < self._most:
            heapq.heappush(self._heap, entry)
        elif entry > self._heap[0]:
            heapq.heapreplace(self._heap, entry)

    def rows(self) -> list[T]:
        return [row for _, _, row in sorted(self._heap, key=lambda entry: entry[1])]


def sample_of(rows: Iterable[T], most: int) -> list[T]:
    reservoir: Reservoir[T] = Reservoir(most)
    for row in rows:
        reservoir.add(row)
    return reservoir.rows()
