"""The whole state of a run as one safetensors blob: a run resumed from it ends with the same bytes as one that never
stopped."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

_KEY = "kolm"  # one key only: safetensors writes several metadata keys in no fixed order


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """`step` optimiser steps are done, `parts` batches make one (2 after the device ran out of memory at step
    `halved_at`). `epoch_loss`, `n_tokens` and `n_positions` are sums over the current epoch. `best_loss` and
    `best_epoch` are None before the first epoch that counts."""

    fingerprint: str
    step: int
    parts: int
    halved_at: int | None
    epoch_loss: float
    n_tokens: int
    n_positions: int
    best_loss: float | None
    best_epoch: int | None
    log: list[dict[str, Any]]


def to_bytes(counters: Counters, tensors: Mapping[str, Tensor]) -> bytes:
    state = json.dumps(dataclasses.asdict(counters), sort_keys=True)
    return save(
        {name: t.detach().cpu().contiguous().clone() for name, t in sorted(tensors.items())}, metadata={_KEY: state}
    )


def from_bytes(data: bytes, *, fingerprint: str) -> tuple[Counters, dict[str, Tensor]] | None:
    """None where the bytes are not a checkpoint of this very job: the run then starts afresh, which costs time and
    nothing else."""
    try:
        length = int.from_bytes(data[:8], "little")
        counters = Counters(**json.loads(json.loads(data[8 : 8 + length])["__metadata__"][_KEY]))
        tensors = load(data)
    except (SafetensorError, ValueError, KeyError, TypeError):
        return None
    return (counters, tensors) if counters.fingerprint == fingerprint and "rng" in tensors else None
