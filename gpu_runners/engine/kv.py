"""The KV cache: keys and values of the running sequences, in slot pools. A pool is one preallocated block a layer for
all sequences that need about the same room, so that a decoding step reads them where they lie and a long sequence costs
the short ones nothing.

A sequence's room is known when it is admitted (prompt and most new tokens), so it never moves to another pool. In a
pool the sequences lie without gaps: those that decode come first, those in prefill follow. Decoding is then one
attention call over `keys[layer][:n_decoding]`, a view and no copy.
"""

from typing import Any

import torch

SMALLEST = 64


class KVSlotPool:
    """KV slots of one capacity. `keys[layer]` and `values[layer]` are (slots, key heads, capacity, head width);
    sequence i of `sequences` lies in slot i, and the first `n_decoding` of them decode."""

    def __init__(
        self, capacity: int, *, n_layers: int, n_heads: int, width: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.capacity, self._shape = capacity, (n_heads, capacity, width)
        self._dtype, self._device = dtype, device
        self.sequences: list[Any] = []
        self.n_decoding = 0
        self.n_places = 0
        self.keys: list[torch.Tensor] = [self._empty(0) for _ in range(n_layers)]
        self.values: list[torch.Tensor] = [self._empty(0) for _ in range(n_layers)]

    def add(self, sequence: Any) -> None:
        """Put a sequence behind all others; `grow` first where the pool is full."""
        self.sequences.append(sequence)
        sequence.pool, sequence.slot = self, len(self.sequences) - 1

    def start_decoding(self, sequence: Any) -> None:
        first = self.n_decoding
        if sequence.slot != first:
            self._swap(sequence.slot, first)
        self.n_decoding += 1

    def remove(self, sequence: Any) -> None:
        """Free a slot: the last decoding sequence fills a decoding one's gap, the last one in prefill what that
        leaves."""
        at, last = sequence.slot, len(self.sequences) - 1
        if at < self.n_decoding:
            self.n_decoding -= 1
            self._move(self.n_decoding, at)
            at = self.n_decoding
        self._move(last, at)
        self.sequences.pop()
        sequence.pool, sequence.slot = None, -1

    def wipe(self, sequence: Any) -> None:
        """Write zeros behind the cached tokens of a sequence: what stands there is not finite."""
        for block in (*self.keys, *self.values):
            block[sequence.slot, :, sequence.n_cached :] = 0

    def grow(self, n_places: int) -> None:
        kept = len(self.sequences)
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
        sequence = self.sequences[source]
        self.sequences[target], sequence.slot = sequence, target
        for block in (*self.keys, *self.values):
            block[target, :, : sequence.n_cached] = block[source, :, : sequence.n_cached]

    def _swap(self, a: int, b: int) -> None:
        for block in (*self.keys, *self.values):
            block[[a, b]] = block[[b, a]]
        self.sequences[a], self.sequences[b] = self.sequences[b], self.sequences[a]
        self.sequences[a].slot, self.sequences[b].slot = a, b


class KVSlotPools:
    """The pools of all capacities. `n_tokens` is the room that sequences hold, which the engine keeps within `budget`;
    what is allocated is at most twice that."""

    def __init__(
        self,
        *,
        budget: int,
        longest: int,
        max_sequences: int,
        n_layers: int,
        n_heads: int,
        width: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.budget, self._longest, self._max_sequences = budget, longest, max_sequences
        self._new = {"n_layers": n_layers, "n_heads": n_heads, "width": width, "dtype": dtype, "device": device}
        self.by_capacity: dict[int, KVSlotPool] = {}
        self.n_tokens = 0

    def room_for(self, n_tokens: int) -> int:
        """The capacity of the pool for sequences of at most `n_tokens`: the next power of two."""
        return min(max(SMALLEST, 1 << (n_tokens - 1).bit_length()), self._longest)

    def has_room(self, n_tokens: int) -> bool:
        return self.n_tokens + self.room_for(n_tokens) <= self.budget

    def add(self, sequence: Any, n_tokens: int) -> None:
        """`n_tokens` at most `longest`."""
        capacity = self.room_for(n_tokens)
        if capacity not in self.by_capacity:
            self.by_capacity[capacity] = KVSlotPool(capacity, **self._new)  # type: ignore[arg-type]
        pool = self.by_capacity[capacity]
        if len(pool.sequences) == pool.n_places:
            pool.grow(min(max(1, 2 * pool.n_places), self._max_sequences))
        pool.add(sequence)
        self.n_tokens += capacity
        if sum(one.capacity * one.n_places for one in self.by_capacity.values()) > 2 * self.budget:
            self.by_capacity = {c: one for c, one in self.by_capacity.items() if one.sequences}

    def remove(self, sequence: Any) -> None:
        self.n_tokens -= sequence.pool.capacity
        sequence.pool.remove(sequence)
