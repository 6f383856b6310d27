"""The whole state of a training run as one safetensors blob: a run resumed from it ends with the same bytes as one that
never stopped."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

_KEY = "kolm"  # one key only: safetensors writes several metadata keys in no fixed order


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCounters:
    """The counts of a trainer, in JSON's types, and the job that they are of."""

    fingerprint: str


Counters = TypeVar("Counters", bound=JobCounters)


def to_bytes(counters: JobCounters, tensors: Mapping[str, Tensor]) -> bytes:
    state = json.dumps(asdict(counters), sort_keys=True)
    return save(
        {name: t.detach().cpu().contiguous().clone() for name, t in sorted(tensors.items())}, metadata={_KEY: state}
    )


def from_bytes(
    data: bytes, counters_type: type[Counters], *, fingerprint: str
) -> tuple[Counters, dict[str, Tensor]] | None:
    """None where the bytes are not a checkpoint of this very job: the run then starts afresh, which costs time and
    nothing else."""
    try:
        length = int.from_bytes(data[:8], "little")
        counters = counters_type(**json.loads(json.loads(data[8 : 8 + length])["__metadata__"][_KEY]))
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
