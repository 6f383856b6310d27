"""The whole state of a training run as one safetensors file: a run resumed from it ends with the same bytes as one that
never stopped. It is written and read a tensor at a time, from and to where the tensors lie: an adapter of rank 32 of a
7B base has a gigabyte of it.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from backend.domain.jobs.blob_transfers import pause_s
from gpu_runners.models.tensor_files import Entry, write_tensors

_KEY = "kolm"  # `blob_transfers.CHECKPOINT_MARK` has it
_DTYPES = {
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.float64: "F64",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCounters:
    """The counts of a trainer, in JSON's types, and the job that they are of."""

    fingerprint: str


Counters = TypeVar("Counters", bound=JobCounters)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state of a run at this moment. The tensors are those that train: write it before the next step."""

    counters: JobCounters
    tensors: Mapping[str, Tensor]

    @property
    def n_bytes(self) -> int:
        """Bytes of the tensors alone."""
        return sum(t.numel() * t.element_size() for t in self.tensors.values())

    def write(self, path: Path) -> int:
        """Returns the file's bytes. Raises OSError, and leaves half a file then."""
        state = json.dumps(asdict(self.counters), sort_keys=True)
        entries = (_entry(name, tensor) for name, tensor in sorted(self.tensors.items()))
        with path.open("wb") as file:
            return write_tensors(file, entries, metadata={_KEY: state})


def _entry(name: str, tensor: Tensor) -> Entry:
    def data() -> bytes:
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""

    n_bytes = tensor.numel() * tensor.element_size()
    return Entry(name=name, dtype=_DTYPES[tensor.dtype], shape=tuple(tensor.shape), n_bytes=n_bytes, data=data)


def read(path: Path, counters_type: type[Counters], *, fingerprint: str) -> tuple[Counters, "SavedTensors"] | None:
    """None where the file is not a checkpoint of this very job: the run then starts afresh, which costs time and
    nothing else."""
    try:
        saved = SavedTensors(path)
        counters = counters_type(**json.loads(saved.metadata[_KEY]))
    except (SafetensorError, OSError, ValueError, KeyError, TypeError):
        return None
    return (counters, saved) if counters.fingerprint == fingerprint and "rng" in saved else None


class SavedTensors(Mapping[str, Tensor]):
    """A checkpoint's tensors by name, each read when it is asked for."""

    def __init__(self, path: Path) -> None:
        self._file = cast(Any, safe_open(str(path), framework="pt"))  # open for as long as this is
        self.metadata: Mapping[str, str] = self._file.metadata() or {}
        self._names = frozenset(self._file.keys())

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._names:
            raise KeyError(name)
        tensor: Tensor = self._file.get_tensor(name).clone()  # else it is a window on the file
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._names))

    def __len__(self) -> int:
        return len(self._names)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDone:
    """`eta_s` counts from the mean step of this process."""

    step: int
    n_steps: int
    loss: float
    eta_s: float
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """The calls that a run makes to its surroundings after each step. `on_checkpoint` writes the snapshot and returns
    its bytes; `sent_s` is what handing over the last one took, None while it is under way: then none is made."""

    on_step: Callable[[StepDone], None] = lambda _: None
    on_checkpoint: Callable[[Snapshot], int] = lambda _: 0
    should_stop: Callable[[], bool] = lambda: False
    sent_s: Callable[[], float | None] = lambda: 0.0
    clock: Callable[[], float] = time.monotonic


class Cadence:
    """The time of the next checkpoint, by `blob_transfers.pause_s`."""

    def __init__(self, hooks: Hooks, *, every_s: float) -> None:
        self._hooks, self._every_s = hooks, every_s
        self._saved_at, self._n_bytes, self._made_s = hooks.clock(), 0, 0.0

    def is_due(self) -> bool:
        sent_s = self._hooks.sent_s()
        if sent_s is None:
            return False
        pause = pause_s(every_s=self._every_s, n_bytes=self._n_bytes, made_s=self._made_s, sent_s=sent_s)
        return self._hooks.clock() - self._saved_at >= pause

    def save(self, snapshot: Snapshot) -> None:
        began = self._hooks.clock()
        self._n_bytes = self._hooks.on_checkpoint(snapshot)
        self._saved_at = self._hooks.clock()
        self._made_s = self._saved_at - began


def rng_tensors(device: torch.device) -> dict[str, Tensor]:
    state = {"rng": torch.get_rng_state()}
    return state | ({"rng_cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {})


def set_rng(tensors: Mapping[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(tensors["rng"])
    if device.type == "cuda" and "rng_cuda" in tensors:
        torch.cuda.set_rng_state(tensors["rng_cuda"], device)
