"""A small model of the same tokenizer that drafts for all sequences at once, greedily, one forward pass a token.

It keeps keys of its own for each sequence, and takes up what was written since it was asked last with the next pass. A
sequence gets its drafts while there is room for its keys; its prompt is read when it is asked for the first time.
"""

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from gpu_runners.engine.model_runner import ModelRunner
from gpu_runners.speculation.batch import BatchDrafter
from gpu_runners.speculation.drafter import Drafter
from gpu_runners.speculation.packs import PackShelf
from gpu_runners.speculation.vocabulary import token_texts

if TYPE_CHECKING:
    from gpu_runners.models.causal_base import CausalBase

_KV_BYTES = 1 << 30
# unread tokens of a sequence from which sequences are read one by one: in one pass all would be as wide as the longest
_LONG = 32
SURE = 8  # bins of how sure the small model is of a token


@dataclass(slots=True, eq=False)
class _Shadow:
    """A sequence of the small model: what `ModelRunner.forward` and a KV slot need. `n_cached` of `tokens` have keys,
    `n_sure` of them were not drafted."""

    owner: "weakref.ref[Drafter]"
    tokens: list[int] = field(default_factory=list)
    n_sure: int = 0
    adapter: None = None
    pool: Any = None
    slot: int = -1
    n_cached: int = 0
    draft: list[int] = field(default_factory=list)

    def take_up(self, written: Sequence[int], drafted: Sequence[int]) -> None:
        """Forget what was drafted and did not come. The last token is always read, for what follows it."""
        tokens = [*written, *drafted]
        n, most = self.n_sure, min(self.n_cached, len(tokens) - 1)
        while n < most and self.tokens[n] == tokens[n]:
            n += 1
        self.tokens, self.n_sure, self.n_cached = tokens, len(written), min(n, most)


class ModelDrafts:
    """Used by the engine's own thread alone."""

    def __init__(
        self,
        base: "CausalBase",
        *,
        device: str = "cpu",
        dtype: str = "float32",
        max_sequences: int = 32,
        kv_tokens: int = 0,
    ) -> None:
        """Raises JobFailed(unsupported_base)."""
        self._runner = ModelRunner(base, device=torch.device(device), dtype=getattr(torch, dtype), merged=None)
        room = kv_tokens or min(max_sequences * base.context, _KV_BYTES // self._runner.kv_bytes_per_token)
        self._context = min(base.context, room)
        self._pools = self._runner.pools(budget=room, longest=self._context, max_sequences=max_sequences)
        self._shadows: dict[int, _Shadow] = {}

    @torch.inference_mode()
    def next_tokens(self, drafters: Sequence[Drafter], written: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
        """The small model's choice after `written` and the draft of each, and how sure it is of it in eighths."""
        shadows = [self._shadows[id(drafter)] for drafter in drafters]
        for shadow, drafter, tokens in zip(shadows, drafters, written, strict=True):
            shadow.take_up(tokens, drafter.draft)
        logits = self._step(shadows)
        sure, chosen = torch.softmax(logits.float(), dim=-1).max(dim=-1)
        return [
            (int(token), min(int(p * SURE), SURE - 1)) for token, p in zip(chosen.tolist(), sure.tolist(), strict=True)
        ]

    def has_place(self, drafter: Drafter, limit: int) -> bool:
        """Make room if need be, and say whether there is room for an answer of at most `limit` tokens with its
        prompt."""
        if id(drafter) in self._shadows:
            return True
        if limit > self._context:
            return False
        if not self._pools.has_room(limit):
            self._sweep()
            if not self._pools.has_room(limit):
                return False
        shadow = self._shadows[id(drafter)] = _Shadow(weakref.ref(drafter))
        self._pools.add(shadow, limit)
        return True

    def close(self, drafter: Drafter) -> None:
        shadow = self._shadows.pop(id(drafter), None)
        if shadow is not None:
            self._pools.remove(shadow)

    def _step(self, shadows: Sequence[_Shadow]) -> torch.Tensor:
        """(n, V) logits after each one's last token."""
        unread = max(len(shadow.tokens) - shadow.n_cached for shadow in shadows)
        if unread > _LONG or 2 * len(shadows) < len(self._shadows):
            chunks: list[Any] = [(shadow, len(shadow.tokens) - shadow.n_cached) for shadow in shadows]
            return self._runner.forward(self._pools, chunks, None)[1]
        return self._decode(shadows)

    def _decode(self, shadows: Sequence[_Shadow]) -> torch.Tensor:
        """Run all sequences of the pools in one pass where they lie, those that were not asked too: with many that is
        cheaper than to read some one by one."""
        asked = {id(shadow): i for i, shadow in enumerate(shadows)}
        whole = {key: shadow.tokens for key, shadow in self._shadows.items()}
        places, n_logits = [0] * len(shadows), 0
        for pool in self._pools.by_capacity.values():
            pool.n_decoding = len(pool.sequences)
            for shadow in pool.sequences:
                shadow.n_cached = min(shadow.n_cached, len(shadow.tokens) - 1)
                begin = shadow.n_cached
                if id(shadow) in asked:
                    shadow.draft = shadow.tokens[begin + 1 :]
                    places[asked[id(shadow)]] = n_logits + len(shadow.draft)
                shadow.tokens = shadow.tokens[: begin + 1]
                n_logits += 1 + len(shadow.draft)
        try:
            _, logits = self._runner.forward(self._pools, [], None)
        finally:
            for pool in self._pools.by_capacity.values():
                pool.n_decoding = 0
            for key, shadow in self._shadows.items():
                shadow.n_cached += len(shadow.draft)
                shadow.tokens, shadow.draft = whole[key], []
        return logits[torch.tensor(places, device=logits.device)]

    def _sweep(self) -> None:
        """Free the slots of sequences that ended without `close`."""
        for key in [key for key, shadow in self._shadows.items() if shadow.owner() is None]:
            self._pools.remove(self._shadows.pop(key))


def open_drafts(
    base: "CausalBase",
    *,
    draft_base: "CausalBase | None" = None,
    device: str = "cpu",
    dtype: str = "float32",
    max_running: int = 32,
    clock: Callable[[], float] = perf_counter,
) -> BatchDrafter:
    """The drafts of an engine that runs `base`, whose steps `clock` times. Raises JobFailed(unsupported_base)
    where `draft_base` cannot be run."""
    models = None
    if draft_base is not None:
        models = ModelDrafts(draft_base, device=device, dtype=dtype, max_sequences=max_running)
    shelf = PackShelf(lambda: token_texts(base), tokenizer_sha256=base.tokenizer_sha256)
    return BatchDrafter(shelf, models=models, end_ids=base.eos_ids, n_vocab=base.vocab_size, clock=clock)
