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

from gpu_runners.generation.kv import Lane

NAME = "kolm_lanes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """The rows 0..n-1 of a lane with one new token each, at `begin` of the step's tokens. `places` is (n,) the row's
    number, `positions` (n,) where its token comes, `longest` the number of keys that are looked at."""

    lane: Lane
    begin: int
    n: int
    places: torch.Tensor
    positions: torch.Tensor
    longest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A chunk of one row's prompt: `n` tokens from position `start`."""

    lane: Lane
    slot: int
    begin: int
    n: int
    start: int


@dataclass(slots=True)
class Step:
    """What attention has to know of one forward pass; masks are made once for all layers."""

    decoding: Sequence[Decoding]
    reading: Sequence[Reading]
    masks: dict[tuple[int, int | None], torch.Tensor | None] = field(default_factory=dict)

    def mask(self, part: int, window: int | None, dtype: torch.dtype) -> torch.Tensor | None:
        if (part, window) not in self.masks:
            self.masks[part, window] = self._mask(part, window, dtype)
        return self.masks[part, window]

    def _mask(self, part: int, window: int | None, dtype: torch.dtype) -> torch.Tensor | None:
        """For a decoding lane (n, 1, 1, longest); for a chunk (n, start + n), or None: simply causal from 0."""
        if part < len(self.decoding):
            lane = self.decoding[part]
            keys = torch.arange(lane.longest, device=lane.positions.device)
            queries = lane.positions[:, None]
        else:
            chunk = self.reading[part - len(self.decoding)]
            if chunk.start == 0 and (window is None or window >= chunk.n):
                return None
            keys = torch.arange(chunk.start + chunk.n, device=chunk.lane.keys[0].device)
            queries = keys[chunk.start :, None]
        seen = keys <= queries
        if window is not None:
            seen &= keys > queries - window
        mask = torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, float("-inf"))
        return mask[:, None, None, :] if part < len(self.decoding) else mask


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
    for part, lane in enumerate(step.decoding):
        mask = step.mask(part, sliding_window, query.dtype)
        span = slice(lane.begin, lane.begin + lane.n)
        out[span] = _decode(lane, layer, q[span], k[span], v[span], mask, scaling)
    for part, chunk in enumerate(step.reading, start=len(step.decoding)):
        mask = step.mask(part, sliding_window, query.dtype)
        span = slice(chunk.begin, chunk.begin + chunk.n)
        out[span] = _read(chunk, layer, q[span], k[span], v[span], mask, scaling)
    return out[None], None


def _decode(
    lane: Decoding,
    layer: int,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    scaling: float | None,
) -> torch.Tensor:
    """`q` (n, heads, width); the query heads of one key head are its rows, so that keys are read in place."""
    keys, values = lane.lane.keys[layer], lane.lane.values[layer]
    keys[lane.places, :, lane.positions] = k
    values[lane.places, :, lane.positions] = v
    n, heads, width = q.shape
    n_key_heads = k.shape[1]
    seen = scaled_dot_product_attention(
        q.view(n, n_key_heads, heads // n_key_heads, width),
        keys[: lane.n, :, : lane.longest],
        values[: lane.n, :, : lane.longest],
        attn_mask=mask,
        scale=scaling,
    )
    return seen.reshape(n, heads, -1)


def _read(
    chunk: Reading,
    layer: int,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    scaling: float | None,
) -> torch.Tensor:
    keys, values = chunk.lane.keys[layer][chunk.slot], chunk.lane.values[layer][chunk.slot]
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
