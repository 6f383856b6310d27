"""The whole state of a training run as one safetensors blob: a run resumed from it ends with the same bytes as one that
never stopped."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

_KEY = "kolm"  # one key only: safetensors writes several metadata keys in no fixed order


class Phase(StrEnum):
    CALIBRATE = "calibrate"
    REFIT = "refit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """The state of a run: `step` optimiser steps of `phase` are done, `steps_before` of the phase before it;
    `epoch_loss` is the sum over the current epoch."""

    fingerprint: str
    phase: str
    step: int
    steps_before: int
    epoch_loss: float
    temperature: float
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


def rng_tensors(device: torch.device) -> dict[str, Tensor]:
    state = {"rng": torch.get_rng_state()}
    return state | ({"rng_cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {})


def set_rng(tensors: Mapping[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(tensors["rng"])
    if device.type == "cuda" and "rng_cuda" in tensors:
        torch.cuda.set_rng_state(tensors["rng_cuda"], device)
