"""The layout of the new tokens of decoding rows for attention: neighbours that have about as many are padded to the
longest of them and make one call.

A drafted token that is padding costs what a real one costs, a call of its own what some tokens cost: on a CPU, where
one call over 32 rows takes as long as 32 calls, rows are split apart sooner than on a GPU, which reads the keys once
for all of a row's tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

CALL_TOKENS = 8  # padded tokens that cost a CPU as much as one more call


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Rows `first` to `first + n` of a KV slot pool, whose tokens are `begin` to `begin + n_tokens` of the step. Each
    has `width` places, row by row; `at` (n_tokens,) says which are taken, None: all. `positions` (n, width) is where a
    place's token comes, `longest` the number of keys that are looked at."""

    first: int
    n: int
    begin: int
    n_tokens: int
    width: int
    at: torch.Tensor | None
    positions: torch.Tensor
    longest: int


def segments(starts: Sequence[int], counts: Sequence[int], positions: torch.Tensor, *, begin: int) -> list[Segment]:
    """`starts` are where each row's `counts` new tokens begin, `positions` where each token comes; `begin` is where
    the first row's lie in the step."""
    n, device = len(counts), positions.device
    if len(positions) == n:  # nobody has drafts: one call of width 1 over all
        longest = max(starts) + 1
        return [
            Segment(
                first=0, n=n, begin=begin, n_tokens=n, width=1, at=None, positions=positions[:, None], longest=longest
            )
        ]
    # with drafts the counts are ragged, and attention wants rectangles (n, width); see the module's docstring
    is_one = device.type != "cpu" or min(counts) == max(counts)
    spans = [(0, n)] if is_one else _spans(counts)
    return [
        _segment(starts, counts, first=first, end=end, begin=begin + sum(counts[:first]), device=device)
        for first, end in spans
    ]


def padded_places(counts: Sequence[int], width: int, device: torch.device) -> torch.Tensor | None:
    """(sum of counts,) the place of each token among `width` of each row; None: they are all taken."""
    if sum(counts) == width * len(counts):
        return None
    at = [row * width + i for row, count in enumerate(counts) for i in range(count)]
    return torch.tensor(at, device=device)


def _spans(counts: Sequence[int]) -> list[tuple[int, int]]:
    """(first, end) of neighbours: one more joins as long as it brings less padding than a call costs."""
    spans = []
    first, width = 0, counts[0]
    for row, count in enumerate(counts[1:], start=1):
        wider = max(width, count)
        padding = (row - first) * (wider - width) + wider - count
        if padding > CALL_TOKENS:
            spans.append((first, row))
            first, wider = row, count
        width = wider
    return [*spans, (first, len(counts))]


def _segment(
    starts: Sequence[int], counts: Sequence[int], *, first: int, end: int, begin: int, device: torch.device
) -> Segment:
    starts, counts = starts[first:end], counts[first:end]
    width = max(counts)
    positions = torch.tensor(starts, device=device)[:, None] + torch.arange(width, device=device)
    return Segment(
        first=first,
        n=end - first,
        begin=begin,
        n_tokens=sum(counts),
        width=width,
        at=padded_places(counts, width, device),
        positions=positions,
        longest=max(start + count for start, count in zip(starts, counts, strict=True)),
    )
