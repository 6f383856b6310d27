"""Keys and values of the running rows, in lanes: one preallocated block a layer for all rows that need about the same
room, so that a decoding step reads them where they lie and a long row costs the short ones nothing.

A row's room is known when it is admitted (prompt and most new tokens), so it never moves to another lane. In a lane the
rows lie without gaps: those that decode come first, those that still read their prompts follow.
"""

from typing import Any

import torch

SMALLEST = 64


class Lane:
    """`keys[layer]` and `values[layer]` are (places, heads, capacity, width); row i of `rows` lies at place i, and the
    first `n_decoding` of them decode."""

    def __init__(
        self, capacity: int, *, n_layers: int, n_heads: int, width: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.capacity, self._shape = capacity, (n_heads, capacity, width)
        self._dtype, self._device = dtype, device
        self.rows: list[Any] = []
        self.n_decoding = 0
        self.n_places = 0
        self.keys: list[torch.Tensor] = [self._empty(0) for _ in range(n_layers)]
        self.values: list[torch.Tensor] = [self._empty(0) for _ in range(n_layers)]

    def add(self, row: Any) -> None:
        """Behind all others; `grow` first where the lane is full."""
        self.rows.append(row)
        row.lane, row.slot = self, len(self.rows) - 1

    def start_decoding(self, row: Any) -> None:
        first = self.n_decoding
        if row.slot != first:
            self._swap(row.slot, first)
        self.n_decoding += 1

    def remove(self, row: Any) -> None:
        """The last decoding row fills a decoding row's gap, and the last row that reads fills what it leaves."""
        at, last = row.slot, len(self.rows) - 1
        if at < self.n_decoding:
            self.n_decoding -= 1
            self._move(self.n_decoding, at)
            at = self.n_decoding
        self._move(last, at)
        self.rows.pop()
        row.lane, row.slot = None, -1

    def wipe(self, row: Any) -> None:
        """Zeros behind what is known of a row: what stands there is not finite."""
        for block in (*self.keys, *self.values):
            block[row.slot, :, row.n_cached :] = 0

    def grow(self, n_places: int) -> None:
        kept = len(self.rows)
        for blocks in (self.keys, self.values):
            for layer, block in enumerate(blocks):
                new = self._empty(n_places)
                new[:kept] = block[:kept]
                blocks[layer] = new
        self.n_places = n_places

    def _empty(self, n_places: int) -> torch.Tensor:
        # zeros: attention reads places that no token was written to under a mask, and 0 * NaN is NaN
        return torch.zeros((n_places, *self._shape), dtype=self._dtype, device=self._device)

    def _move(self, source: int, target: int) -> None:
        if source == target:
            return
        row = self.rows[source]
        self.rows[target], row.slot = row, target
        for block in (*self.keys, *self.values):
            block[target, :, : row.n_cached] = block[source, :, : row.n_cached]

    def _swap(self, a: int, b: int) -> None:
        for block in (*self.keys, *self.values):
            block[[a, b]] = block[[b, a]]
        self.rows[a], self.rows[b] = self.rows[b], self.rows[a]
        self.rows[a].slot, self.rows[b].slot = a, b


class Lanes:
    """All lanes. `n_tokens` is the room that rows hold, which the engine keeps within `budget`; what is allocated is at
    most twice that."""

    def __init__(
        self,
        *,
        budget: int,
        longest: int,
        max_rows: int,
        n_layers: int,
        n_heads: int,
        width: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.budget, self._longest, self._max_rows = budget, longest, max_rows
        self._new = {"n_layers": n_layers, "n_heads": n_heads, "width": width, "dtype": dtype, "device": device}
        self.by_capacity: dict[int, Lane] = {}
        self.n_tokens = 0

    def room_for(self, n_tokens: int) -> int:
        """The capacity of the lane for rows of at most `n_tokens`: the next power of two."""
        return min(max(SMALLEST, 1 << (n_tokens - 1).bit_length()), self._longest)

    def has_room(self, n_tokens: int) -> bool:
        return self.n_tokens + self.room_for(n_tokens) <= self.budget

    def add(self, row: Any, n_tokens: int) -> None:
        """`n_tokens` at most `longest`."""
        capacity = self.room_for(n_tokens)
        if capacity not in self.by_capacity:
            self.by_capacity[capacity] = Lane(capacity, **self._new)  # type: ignore[arg-type]
        lane = self.by_capacity[capacity]
        if len(lane.rows) == lane.n_places:
            lane.grow(min(max(1, 2 * lane.n_places), self._max_rows))
        lane.add(row)
        self.n_tokens += capacity
        if sum(one.capacity * one.n_places for one in self.by_capacity.values()) > 2 * self.budget:
            self.by_capacity = {c: one for c, one in self.by_capacity.items() if one.rows}

    def remove(self, row: Any) -> None:
        self.n_tokens -= row.lane.capacity
        row.lane.remove(row)
