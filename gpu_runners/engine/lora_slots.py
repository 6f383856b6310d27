"""Many LoRA adapters on one base, in one forward pass: every adapted linear layer holds the matrices of all slots, and
each row takes those of its own.

Punica's and S-LoRA's idea (arXiv 2310.18547, 2311.03285) without their kernels: the decoding rows' A are gathered
(once a row, however many drafted tokens it has) and multiplied as a batch, and their rows of B are summed where they
lie (an embedding bag), which costs a third of multiplying with gathered ones; the chunks of prompts are multiplied one
by one. The last slot is zeros and stays so: a row without adapter adds exactly 0. No product mixes two rows, so what
one adapter overflows to is nobody else's.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.functional import embedding_bag, linear

from gpu_runners.engine.segments import padded_places

RANK_STEP = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """An adapter that fits the base, in RAM: A (r, in) and B (out, r) by module, B with the scaling in it. `stretch` of
    a DoRA is by how much it lengthens each output, less 1: (out,) by module."""

    key: str
    rank: int
    pairs: Mapping[str, tuple[torch.Tensor, torch.Tensor]]
    stretch: Mapping[str, torch.Tensor] = field(default_factory=dict)


@dataclass(slots=True)
class Use:
    """The slots that the tokens of a step take. `same`: all of them this one. Else `decoding` (n,) of the rows that
    decode with their t tokens, the step's first, and (begin, end, slot) of each chunk behind them that has an adapter.
    The decoding rows have `width` places each; `at` (t,) says which are taken, None: all."""

    is_bare: bool = True
    same: int | None = None
    decoding: torch.Tensor | None = None
    width: int = 1
    at: torch.Tensor | None = None
    slots: torch.Tensor | None = None  # (t,)
    bags: torch.Tensor | None = None  # (t, r) the rows of all slots' B that each token sums
    chunks: Sequence[tuple[int, int, int]] = ()


class SlotLinear(torch.nn.Module):
    """The frozen layer and the slots' matrices: `a` (slots + 1, r, in), `b` (slots + 1, r, out), and `stretch`
    (slots + 1, out) once there is a DoRA. The last slot is zeros."""

    def __init__(self, inner: torch.nn.Linear, use: Use, *, n_slots: int, rank: int) -> None:
        super().__init__()
        self.inner, self._use = inner, use
        weight = inner.weight
        self.a = weight.new_zeros((n_slots + 1, rank, inner.in_features))
        self.b = weight.new_zeros((n_slots + 1, rank, inner.out_features))
        self.stretch: torch.Tensor | None = None

    @property
    def weight(self) -> torch.Tensor:
        return self.inner.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.inner(x)
        use = self._use
        if use.is_bare:
            return y
        if use.same is not None:
            self._add(x[0], y[0], use.same)
            return y
        if use.decoding is not None and use.bags is not None and use.slots is not None:
            t = len(use.bags)
            inside = self._inside(x[0, :t], use.decoding, use.width, use.at)
            added = embedding_bag(use.bags, self.b.flatten(0, 1), per_sample_weights=inside, mode="sum")
            y[0, :t] += added if self.stretch is None else self._stretch(added, y[0, :t], use.slots)
        for begin, end, slot in use.chunks:
            self._add(x[0, begin:end], y[0, begin:end], slot)
        return y

    def _inside(self, x: torch.Tensor, slots: torch.Tensor, width: int, at: torch.Tensor | None) -> torch.Tensor:
        """(t, r) what each decoding row's A makes of its tokens `x` (t, in)."""
        if at is not None:
            x = x.new_zeros((len(slots) * width, x.shape[1])).index_copy_(0, at, x)
        # index_select: a[slots] takes ten times as long on a CPU
        a = self.a.index_select(0, slots).transpose(1, 2)
        inside = torch.bmm(x.view(len(slots), width, -1), a).flatten(0, 1)
        return inside if at is None else inside.index_select(0, at)

    def _add(self, x: torch.Tensor, y: torch.Tensor, slot: int) -> None:
        """Add to `y` (n, out) in place what one adapter makes of `x` (n, in)."""
        added = linear(x, self.a[slot]) @ self.b[slot]
        y += added if self.stretch is None else self._stretch(added, y, slot)

    def _stretch(self, added: torch.Tensor, y: torch.Tensor, slots: torch.Tensor | int) -> torch.Tensor:
        assert self.stretch is not None
        whole = added + y if self.inner.bias is None else added + y - self.inner.bias
        return added + self.stretch[slots] * whole

    def fill(self, slot: int, adapter: Prepared, path: str) -> None:
        self.a[slot].zero_()
        self.b[slot].zero_()
        if path in adapter.pairs:
            a, b = adapter.pairs[path]
            self.a[slot, : adapter.rank] = a
            self.b[slot, : adapter.rank] = b.T
        if path in adapter.stretch and self.stretch is None:
            self.stretch = self.a.new_zeros((self.a.shape[0], self.b.shape[2]))
        if self.stretch is not None:
            self.stretch[slot] = adapter.stretch.get(path, 0.0)

    def widen(self, rank: int) -> None:
        for name in ("a", "b"):
            old = getattr(self, name)
            new = old.new_zeros((old.shape[0], rank, old.shape[2]))
            new[:, : old.shape[1]] = old
            setattr(self, name, new)


class LoraSlots:
    """`n_slots` adapters at a time. Not thread-safe: the engine's own thread uses it."""

    def __init__(self, model: torch.nn.Module, *, n_slots: int) -> None:
        self.n_slots, self.rank = n_slots, 0
        self.loads = self.evictions = 0
        self._model, self._use = model, Use()
        self._layers: dict[str, SlotLinear] = {}
        self._slot_of: OrderedDict[str, int] = OrderedDict()  # least recently used first
        self._pins: dict[str, int] = {}
        self._doomed: set[str] = set()

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self._slot_of)

    def has_place(self, key: str) -> bool:
        return (
            key in self._slot_of or len(self._slot_of) < self.n_slots or any(k not in self._pins for k in self._slot_of)
        )

    def pin(self, adapter: Prepared) -> bool:
        """Put an adapter into a slot, if it is not there, and hold it. False: all slots are held by running rows."""
        key = adapter.key
        if key not in self._slot_of:
            slot = self._free_slot()
            if slot is None:
                return False
            self._fill(slot, adapter)
            self._slot_of[key] = slot
            self.loads += 1
        self._doomed.discard(key)
        self._slot_of.move_to_end(key)
        self._pins[key] = self._pins.get(key, 0) + 1
        return True

    def unpin(self, key: str) -> None:
        self._pins[key] -= 1
        if not self._pins[key]:
            del self._pins[key]
            if key in self._doomed:
                self.forget(key)

    def forget(self, key: str) -> None:
        """Empty the adapter's slot, at once or when its last row has ended."""
        if key in self._pins:
            self._doomed.add(key)
        elif key in self._slot_of:
            self._doomed.discard(key)
            del self._slot_of[key]

    def use(
        self,
        decoding: Sequence[tuple[str | None, int]],
        chunks: Sequence[tuple[str | None, int]],
        device: torch.device,
    ) -> None:
        """The adapters of the next forward pass: its decoding rows, then its chunks, with their numbers of tokens."""
        use = self._use
        slots = [self._slot(key) for key, _ in decoding]
        counts = [n for _, n in decoding]
        behind, begin = [], sum(counts)
        for key, n in chunks:
            behind.append((begin, begin + n, self._slot(key)))
            begin += n
        used = {*slots, *(slot for _, _, slot in behind)}
        use.is_bare = used <= {self.n_slots}
        use.same = used.pop() if len(used) == 1 else None
        adapted = any(slot != self.n_slots for slot in slots)
        use.decoding = torch.tensor(slots, device=device) if adapted and use.same is None else None
        if use.decoding is not None:
            use.width = max(counts)
            use.at = padded_places(counts, use.width, device)
            use.slots = (
                use.decoding if use.width == 1 else use.decoding.repeat_interleave(torch.tensor(counts, device=device))
            )
            use.bags = use.slots[:, None] * self.rank + torch.arange(self.rank, device=device)
        use.chunks = [chunk for chunk in behind if chunk[2] != self.n_slots]

    def _slot(self, key: str | None) -> int:
        return self.n_slots if key is None else self._slot_of[key]

    def _free_slot(self) -> int | None:
        taken = set(self._slot_of.values())
        if len(taken) < self.n_slots:
            return min(set(range(self.n_slots)) - taken)
        for key in self._slot_of:
            if key not in self._pins:
                self.evictions += 1
                return self._slot_of.pop(key)
        return None

    def _fill(self, slot: int, adapter: Prepared) -> None:
        rank = -(-adapter.rank // RANK_STEP) * RANK_STEP
        if rank > self.rank:
            self.rank = rank
            for layer in self._layers.values():
                layer.widen(rank)
        for path in adapter.pairs.keys() - self._layers.keys():
            self._layers[path] = self._adapt(path)
        for path, layer in self._layers.items():
            layer.fill(slot, adapter, path)

    def _adapt(self, path: str) -> SlotLinear:
        parent, _, name = path.rpartition(".")
        holder: Any = self._model.get_submodule(parent)
        layer = SlotLinear(getattr(holder, name), self._use, n_slots=self.n_slots, rank=self.rank)
        setattr(holder, name, layer)
        return layer


def linear_shapes(model: torch.nn.Module) -> dict[str, tuple[int, int]]:
    """(in, out) of every linear layer that an adapter may change: those inside the layers, not the head."""
    return {
        path: (layer.in_features, layer.out_features)
        for path, layer in model.named_modules()
        if isinstance(layer, torch.nn.Linear) and ".layers." in f".{path}."
    }


def merge(model: torch.nn.Module, pairs: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Add each delta (out, in) to its layer's weight, in float32."""
    for path, delta in pairs:
        weight = model.get_submodule(path).weight
        assert isinstance(weight, torch.Tensor)
        weight.data = (weight.data.float() + delta.to(weight.device)).to(weight.dtype)
