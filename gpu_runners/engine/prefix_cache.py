"""Keys and values of what prompts have in common, so that a task's instructions are read once.

Of one tenant, cache salt and adapter alone. What two prompts begin with is kept when the second of them is read; later
prompts begin where it ends. Nothing of a prompt that shares less than `LEAST` tokens with another one is kept.
"""

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

LEAST = 16  # tokens
_RECENT = 4  # prompts of one owner that the next one is compared with, and prefixes of one owner
_OWNERS = 512
Owner = tuple[str, str, str]
Tokens = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True, eq=False)
class _Prefix:
    """`keys` and `values` by layer, (heads, n, width)."""

    tokens: Tokens
    keys: list[torch.Tensor]
    values: list[torch.Tensor]


@dataclass(slots=True)
class _Known:
    recent: deque[Tokens] = field(default_factory=lambda: deque(maxlen=_RECENT))
    prefixes: list[_Prefix] = field(default_factory=list)  # least recently used first


class PrefixCache:
    """Used by the engine's own thread alone. `budget`: tokens of all prefixes; the owner that was away longest leaves
    first."""

    def __init__(self, *, budget: int) -> None:
        self._budget = budget
        self._known: OrderedDict[Owner, _Known] = OrderedDict()

    @property
    def n_tokens(self) -> int:
        return sum(len(one.tokens) for known in self._known.values() for one in known.prefixes)

    def reuse(self, sequence: Any) -> None:
        """Copy the longest known prefix of a new sequence's prompt into its KV slot; at least one token stays to be
        read."""
        known = self._known.get(_owner(sequence))
        if known is None:
            return
        tokens = np.array(sequence.tokens[:-1])
        best, n = None, LEAST - 1
        for prefix in known.prefixes:
            shared = _n_shared(prefix.tokens, tokens)
            if shared > n:
                best, n = prefix, shared
        if best is None:
            return
        known.prefixes.remove(best)
        known.prefixes.append(best)
        for layer, (keys, values) in enumerate(zip(best.keys, best.values, strict=True)):
            sequence.pool.keys[layer][sequence.slot, :, :n] = keys[:, :n]
            sequence.pool.values[layer][sequence.slot, :, :n] = values[:, :n]
        sequence.n_cached = n
        sequence.n_reused = min(n, len(sequence.request.prompt))

    def keep(self, sequence: Any) -> None:
        """Keep what a prompt that was just read shares with an earlier one, if that is more than was known."""
        owner, tokens = _owner(sequence), np.array(sequence.request.prompt)
        known = self._known.setdefault(owner, _Known())
        self._known.move_to_end(owner)
        n = max((_n_shared(other, tokens) for other in known.recent), default=0)
        known.recent.append(tokens)
        if n >= sequence.n_reused + LEAST and n <= self._budget:
            blocks = [
                [block[sequence.slot, :, :n].clone() for block in side]
                for side in (sequence.pool.keys, sequence.pool.values)
            ]
            known.prefixes = [one for one in known.prefixes if _n_shared(one.tokens, tokens[:n]) < len(one.tokens)]
            known.prefixes = [*known.prefixes[1 - _RECENT :], _Prefix(tokens[:n], *blocks)]
        while len(self._known) > _OWNERS or (self.n_tokens > self._budget and len(self._known) > 1):
            self._known.popitem(last=False)
        if self.n_tokens > self._budget:
            del known.prefixes[:-1]

    def forget(self, adapter: str) -> None:
        for owner in [owner for owner in self._known if owner[2] == adapter]:
            del self._known[owner]

    def clear(self) -> None:
        self._known.clear()


def _owner(sequence: Any) -> Owner:
    return (
        sequence.request.tenant,
        sequence.request.cache_salt,
        "" if sequence.adapter is None else sequence.adapter.key,
    )


def _n_shared(a: Tokens, b: Tokens) -> int:
    """Count the tokens that both begin with."""
    n = min(len(a), len(b))
    other = np.flatnonzero(a[:n] != b[:n])
    return int(other[0]) if len(other) else n
