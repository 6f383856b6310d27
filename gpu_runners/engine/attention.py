"""Attention of ragged steps: the new tokens of all rows lie end to end in one sequence without padding, and each row
sees its own keys alone.

Registered with transformers as an attention function, so that the base's own modules (projections, norms, rotary
positions) compute everything else. The plan of a step travels as the keyword argument `step` of the model's forward.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from gpu_runners.engine.kv import KVSlotPool
from gpu_runners.engine.segments import Segment

NAME = "kolm_lanes"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeBatch:
    """The new tokens of a KV slot pool's decoding rows, end to end from `begin` on: `places` (n,) is the row of each,
    `positions` (n,) where it comes."""

    pool: KVSlotPool
    begin: int
    n: int
    places: torch.Tensor
    positions: torch.Tensor
    segments: Sequence[Segment]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillChunk:
    """A chunk of one row's prompt: `n` tokens from position `start`."""

    pool: KVSlotPool
    slot: int
    begin: int
    n: int
    start: int


@dataclass(slots=True)
class Step:
    """The layout of one forward pass for attention; masks are made once for all layers."""

    decoding: Sequence[DecodeBatch]
    reading: Sequence[PrefillChunk]
    masks: dict[tuple[int, int | None], torch.Tensor | None] = field(default_factory=dict)

    def mask(
        self, part: Segment | PrefillChunk, window: int | None, like: torch.Tensor, times: int = 1
    ) -> torch.Tensor | None:
        """Make the mask: for a segment (n, 1, q, longest) with q = 1 or width * times; for a chunk (n, start + n), or
        None: simply causal from 0. `like` gives type and device."""
        key = part.begin, window
        if key not in self.masks:
            self.masks[key] = _mask(part, window, like, times)
        return self.masks[key]


def _mask(part: Segment | PrefillChunk, window: int | None, like: torch.Tensor, times: int) -> torch.Tensor | None:
    if isinstance(part, Segment):
        keys = torch.arange(part.longest, device=like.device)
        queries = part.positions[:, None, :, None]
        if part.width > 1:
            queries = queries.repeat_interleave(times, dim=2)
    else:
        if part.start == 0 and (window is None or window >= part.n):
            return None
        keys = torch.arange(part.start + part.n, device=like.device)
        queries = keys[part.start :, None]
    seen = keys <= queries
    if window is not None:
        seen &= keys > queries - window
    return torch.zeros(seen.shape, dtype=like.dtype, device=like.device).masked_fill_(~seen, float("-inf"))


def attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    step: Step,
    **ignored: Any,
) -> tuple[torch.Tensor, None]:
    """`query` (1, heads, T, width), `key` and `value` (1, key heads, T, width) of the step's T tokens; gives (1, T,
    heads, width)."""
    layer, (_, heads, total, _) = module.layer_idx, query.shape
    out = query.new_empty((total, heads, value.shape[-1]))
    q, k, v = query[0].transpose(0, 1), key[0].transpose(0, 1), value[0].transpose(0, 1)  # (T, heads, width)
    for pool in step.decoding:
        span = slice(pool.begin, pool.begin + pool.n)
        pool.pool.keys[layer][pool.places, :, pool.positions] = k[span]
        pool.pool.values[layer][pool.places, :, pool.positions] = v[span]
        for segment in pool.segments:
            mask = step.mask(segment, sliding_window, query, heads // k.shape[1])
            span = slice(segment.begin, segment.begin + segment.n_tokens)
            out[span] = _decode(pool.pool, segment, layer, q[span], mask, scaling)
    for chunk in step.reading:
        mask = step.mask(chunk, sliding_window, query)
        span = slice(chunk.begin, chunk.begin + chunk.n)
        out[span] = _read(chunk, layer, q[span], k[span], v[span], mask, scaling)
    return out[None], None


def _decode(
    pool: KVSlotPool, segment: Segment, layer: int, q: torch.Tensor, mask: torch.Tensor | None, scaling: float | None
) -> torch.Tensor:
    """`q` (tokens, heads, width); the query heads of one key head are rows of its queries, as a row's drafted tokens
    are, so that keys are read in place."""
    _, heads, width = q.shape
    rows = slice(segment.first, segment.first + segment.n)
    keys, values = pool.keys[layer][rows, :, : segment.longest], pool.values[layer][rows, :, : segment.longest]
    n_key_heads, times = keys.shape[1], heads // keys.shape[1]
    if segment.width == 1:
        q = q.view(segment.n, n_key_heads, times, width)
    else:
        if segment.at is not None:
            q = q.new_zeros((segment.n * segment.width, heads, width)).index_copy_(0, segment.at, q)
        q = q.view(segment.n, segment.width, n_key_heads, times, width).transpose(1, 2).flatten(2, 3)
    seen = scaled_dot_product_attention(q, keys, values, attn_mask=mask, scale=scaling)
    if segment.width > 1:
        seen = seen.view(segment.n, n_key_heads, segment.width, times, -1).transpose(1, 2)
    seen = seen.reshape(segment.n * segment.width, heads, -1)
    return seen if segment.at is None else seen.index_select(0, segment.at)


def _read(
    chunk: PrefillChunk,
    layer: int,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    scaling: float | None,
) -> torch.Tensor:
    keys, values = chunk.pool.keys[layer][chunk.slot], chunk.pool.values[layer][chunk.slot]
    end = chunk.start + chunk.n
    keys[:, chunk.start : end] = k.transpose(0, 1)
    values[:, chunk.start : end] = v.transpose(0, 1)
    times = q.shape[1] // k.shape[1]
    seen = scaled_dot_product_attention(
        q.transpose(0, 1)[None],
        keys[None, :, :end].repeat_interleave(times, dim=1),
        values[None, :, :end].repeat_interleave(times, dim=1),
        attn_mask=mask,
        is_causal=mask is None and chunk.n > 1,
        scale=scaling,
    )
    return seen[0].transpose(0, 1)


def register() -> None:
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register(NAME, attend)
