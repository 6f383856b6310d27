"""Safetensors written one tensor at a time, and read as float32 without torch.

The library's own `save` holds every tensor and the whole file at once, and numpy has no bfloat16: here a writer keeps
one tensor in memory, and bfloat16 is the upper half of a float32.
"""

import io
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, deserialize

Array = NDArray[np.float32]
_ALIGNED = 8  # the header's length: data begin at a multiple of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A tensor to be written. `data` is called once, when it is its turn, for `n_bytes` bytes, little-endian and row
    by row."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    n_bytes: int
    data: Callable[[], bytes]


def write_tensors(file: BinaryIO, entries: Iterable[Entry], *, metadata: Mapping[str, str] | None = None) -> int:
    """Write a safetensors file, its tensors in the order given; returns its bytes. Equal entries give equal bytes."""
    entries = list(entries)
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    at = 0
    for entry in entries:
        header[entry.name] = {
            "dtype": entry.dtype,
            "shape": list(entry.shape),
            "data_offsets": [at, at + entry.n_bytes],
        }
        at += entry.n_bytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNED)
    file.write(len(text).to_bytes(8, "little") + text)
    for entry in entries:
        data = entry.data()
        if len(data) != entry.n_bytes:
            raise ValueError(f"{entry.name} has {len(data)} bytes, not {entry.n_bytes}")
        file.write(data)
    return 8 + len(text) + at


def save_arrays(
    arrays: Mapping[str, Array], *, in_bf16: Callable[[str], bool], metadata: Mapping[str, str] | None = None
) -> bytes:
    """The arrays as one file, in order of their names; those that `in_bf16` says are rounded to bfloat16, the others
    float32."""
    out = io.BytesIO()
    write_tensors(out, (_entry(name, arrays[name], in_bf16(name)) for name in sorted(arrays)), metadata=metadata)
    return out.getvalue()


def _entry(name: str, array: Array, is_bf16: bool) -> Entry:
    def data() -> bytes:
        whole = np.ascontiguousarray(array, dtype="<f4")
        return to_bf16(whole).tobytes() if is_bf16 else whole.tobytes()

    n_bytes = array.size * (2 if is_bf16 else 4)
    return Entry(name=name, dtype="BF16" if is_bf16 else "F32", shape=array.shape, n_bytes=n_bytes, data=data)


def load_arrays(data: bytes) -> dict[str, Array]:
    """The tensors by name, each as float32, whatever of BF16, F16 and F32 it was written in. Raises ValueError for
    another type and for bytes that are no safetensors file."""
    try:
        stored = deserialize(data)  # type: ignore[no-untyped-call]
    except SafetensorError as error:
        raise ValueError(str(error)) from error
    return {name: _as_float32(name, tensor) for name, tensor in stored}


def _as_float32(name: str, tensor: Mapping[str, object]) -> Array:
    raw, shape = tensor["data"], tensor["shape"]
    assert isinstance(raw, bytes | bytearray)
    match tensor["dtype"]:
        case "BF16":
            flat = from_bf16(np.frombuffer(raw, dtype="<u2"))
        case "F32":
            flat = np.frombuffer(raw, dtype="<f4")
        case "F16":
            flat = np.frombuffer(raw, dtype="<f2").astype(np.float32)
        case other:
            raise ValueError(f"the tensor {name!r} is of type {other}")
    whole: Array = flat.reshape(shape)  # type: ignore[call-overload]
    return whole


def to_bf16(array: Array) -> NDArray[np.uint16]:
    """The bits of the nearest bfloat16 of each number, ties to even; numbers must be finite. 1.0 -> 0x3F80."""
    bits = array.view(np.uint32)
    even = (bits >> np.uint32(16)) & np.uint32(1)
    return ((bits + np.uint32(0x7FFF) + even) >> np.uint32(16)).astype("<u2")


def from_bf16(bits: NDArray[np.uint16]) -> Array:
    """The float32 of each bfloat16: exact."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def is_bf16(array: Array) -> bool:
    """Say whether every number is a bfloat16, so that to write it as one loses nothing."""
    return not bool((np.ascontiguousarray(array).view(np.uint32) & np.uint32(0xFFFF)).any())
