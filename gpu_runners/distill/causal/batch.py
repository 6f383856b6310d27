"""One batch as tensors: what the base reads, where its outputs predict an answer, and what they should predict.

A unit is one position: a token, or in patch-level training a patch of up to `patch_size` tokens. The last unit of an
example is only predicted, never read, so it takes no position.

Packed rows may share a prefix: prompts of one task begin with the same system message, so a row reads it once and each
example goes on from it, seeing the prefix and itself. Outputs and gradients are those of whole prompts, for a fraction
of the positions where the system message (a schema, say) is longer than what follows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gpu_runners.distill.causal.dataset import Example

IGNORED = -100  # of a target: a patch at the end of an answer is not always full


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """`ids` (rows, width) int64, or (rows, width, patch_size) with -1 where a patch has fewer tokens. `position_ids`
    (rows, width): packed batches only, 0 at each example's first unit (the prefix's length after a shared one).
    `attention_mask`: (rows, width) of padded batches, (rows, 1, width, width) bool of a shared prefix. `where` (n,) are
    the flat positions that predict, `targets` (n, patch_size) what, `weights` (n,) float32. `probs`: None, or (n, k)
    float32 of soft targets: how likely each of a position's k `targets` is. `on_policy`: None, or (n,) bool, which
    positions are of a student's own answers. `boundaries` (segments + 1,) int32: where a single packed row's examples
    begin and it ends, else None."""

    ids: Tensor
    position_ids: Tensor | None
    attention_mask: Tensor | None
    where: Tensor
    targets: Tensor
    weights: Tensor
    boundaries: Tensor | None
    longest: int
    probs: Tensor | None = None
    on_policy: Tensor | None = None

    @property
    def n_positions(self) -> int:
        return self.ids.shape[0] * self.ids.shape[1]

    def to(self, device: torch.device) -> "Batch":
        if device.type == "cpu":
            return self
        moved: dict[str, Any] = {
            name: value.to(device, non_blocking=True) if isinstance(value, Tensor) else value
            for name in self.__slots__
            for value in [getattr(self, name)]
        }
        return Batch(**moved)


def units(example: Example, patch_size: int) -> tuple[list[list[int]], int]:
    """(units, number of them that are the prompt's). Patches are cut so that the answer begins one: the prompt's first
    patch and the answer's last may be short. Size 2: prompt abc, answer de$ -> a, bc, de, $ and 2."""
    prompt, answer = list(example.ids[: example.n_prompt]), list(example.ids[example.n_prompt :])
    head = len(prompt) % patch_size
    cut = [prompt[:head]] if head else []
    cut += [prompt[at : at + patch_size] for at in range(head, len(prompt), patch_size)]
    return cut + [answer[at : at + patch_size] for at in range(0, len(answer), patch_size)], len(cut)


def n_positions(example: Example, patch_size: int) -> int:
    """Units that are read: all but the last."""
    return -(-example.n_prompt // patch_size) + -(-example.n_completion // patch_size) - 1


def common_prefix(examples: Sequence[Example]) -> int:
    """Number of tokens with which all prompts begin."""
    first, last = min(e.ids[: e.n_prompt] for e in examples), max(e.ids[: e.n_prompt] for e in examples)
    n = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return min(n, min(e.n_prompt for e in examples))


def make_batch(
    rows: Sequence[Sequence[Example]],
    *,
    packed: bool,
    patch_size: int = 1,
    n_shared: int = 0,
    pad_id: int = 0,
    boundaries: bool = False,
) -> Batch:
    """`rows` of examples, one each unless packed; all of them begin with the same `n_shared` tokens (without patches
    only). The rest of a row is padding: masked out, or when packed a segment of its own that no example sees."""
    own = [[n_positions(e, patch_size) - n_shared for e in row] for row in rows]
    width = n_shared + max(sum(lengths) for lengths in own)
    ids = torch.full((len(rows), width, patch_size), -1)
    ids[:, :, 0] = pad_id
    positions, segments = torch.zeros((len(rows), width), dtype=torch.long), torch.full((len(rows), width), -1)
    where, targets, weights, starts = [], [], [], []
    for r, (row, lengths) in enumerate(zip(rows, own, strict=True)):
        ids[r, :n_shared, 0] = torch.tensor(row[0].ids[:n_shared])
        positions[r, :n_shared], segments[r, :n_shared] = torch.arange(n_shared), 0
        at = n_shared
        for number, (example, n) in enumerate(zip(row, lengths, strict=True), start=1):
            cut, n_prompt = units(example, patch_size)
            ids[r, at : at + n] = _as_rows(cut[n_shared:-1], patch_size)
            positions[r, at : at + n] = torch.arange(n_shared, n_shared + n)
            segments[r, at : at + n] = number
            for j in range(n_prompt - 1, len(cut) - 1):
                where.append(r * width + (j if j < n_shared else at + j - n_shared))
                targets.append(cut[j + 1] + [IGNORED] * (patch_size - len(cut[j + 1])))
            weights += [example.weight] * (len(cut) - n_prompt)
            starts.append(at)
            at += n
        positions[r, at:] = torch.arange(width - at)
        starts += [at] if at < width else []
    hard = torch.tensor(targets)
    mixed, probs = _with_soft(hard, rows) if patch_size == 1 else (hard, None)
    on_policy, weight = _with_own(rows, probs, torch.tensor(weights, dtype=torch.float32))
    return Batch(
        ids=ids[:, :, 0].contiguous() if patch_size == 1 else ids,
        position_ids=positions if packed else None,
        attention_mask=_shared_mask(segments) if n_shared else None if packed else _padding_mask(segments),
        where=torch.tensor(where),
        targets=mixed,
        weights=weight,
        boundaries=torch.tensor([*starts, width], dtype=torch.int32) if boundaries and len(rows) == 1 else None,
        longest=max(n for lengths in own for n in lengths),
        probs=probs,
        on_policy=on_policy,
    )


def _with_own(rows: Sequence[Sequence[Example]], probs: Tensor | None, weights: Tensor) -> tuple[Tensor | None, Tensor]:
    """The positions of the student's own answers, None where there are none; and the weights, 0 of a position of these
    whose distribution is not known."""
    examples = [example for row in rows for example in row]
    if probs is None or not any(example.on_policy for example in examples):
        return None, weights
    own = torch.tensor([example.on_policy for example in examples for _ in range(example.n_completion)])
    return own, weights * (probs.sum(dim=1) > 0)


def _with_soft(hard: Tensor, rows: Sequence[Sequence[Example]]) -> tuple[Tensor, Tensor | None]:
    """`targets` and `probs` of these examples, whose tokens are `hard` (n, 1): where one has no soft targets its token
    is all that is likely. No `probs` where none has any."""
    examples = [example for row in rows for example in row]
    width = max((e.soft.ids.shape[1] for e in examples if e.soft is not None), default=0)
    if not width:
        return hard, None
    targets, probs = torch.full((len(hard), width), IGNORED), torch.zeros((len(hard), width))
    targets[:, :1], probs[:, 0] = hard, 1.0
    at = 0
    for example in examples:
        n = example.n_completion
        if example.soft is not None:
            k = example.soft.ids.shape[1]
            targets[at : at + n, :k] = torch.from_numpy(example.soft.ids)
            probs[at : at + n, :k] = torch.from_numpy(example.soft.probs)
        at += n
    return targets, probs


def _as_rows(cut: Sequence[Sequence[int]], patch_size: int) -> Tensor:
    flat = [list(unit) + [-1] * (patch_size - len(unit)) for unit in cut]
    return torch.tensor(flat).reshape(len(flat), patch_size)


def _padding_mask(segments: Tensor) -> Tensor | None:
    return None if bool((segments >= 0).all()) else (segments >= 0).long()


def _shared_mask(segments: Tensor) -> Tensor:
    """(rows, 1, width, width): whether a query (third axis) sees a key: the prefix, or what is before it in its own
    segment."""
    own = segments[:, :, None] == segments[:, None, :]
    seen = (own | (segments == 0)[:, None, :]).tril()
    return seen[:, None]
