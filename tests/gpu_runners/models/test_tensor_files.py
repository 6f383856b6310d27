"""Safetensors that the library itself reads back, bfloat16 as torch rounds it, and nothing that is no float."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save
from safetensors.torch import load

from gpu_runners.models.tensor_files import (
    Array,
    Entry,
    from_bf16,
    is_bf16,
    load_arrays,
    save_arrays,
    to_bf16,
    write_tensors,
)


def numbers() -> Array:
    """Of every size, with ties to both sides, subnormal ones and both zeros."""
    rng = np.random.default_rng(4)
    wide = (rng.normal(size=4000) * 10.0 ** rng.integers(-40, 38, size=4000)).astype(np.float32)
    ties = np.array([0x3F808000, 0x3F818000, 0x00008000, 0x80000000, 0x00000001], dtype=np.uint32).view(np.float32)
    whole: Array = np.concatenate([wide, ties, np.array([0.0, 1.0, -2.5], dtype=np.float32)])
    return whole


def test_rounding_is_torchs_to_the_bit() -> None:
    bits = torch.from_numpy(numbers()).to(torch.bfloat16).view(torch.uint16).numpy()
    assert np.array_equal(to_bf16(numbers()), bits)
    assert to_bf16(np.array([1.0], dtype=np.float32))[0] == 0x3F80


def test_widening_is_exact_and_rounding_again_changes_nothing() -> None:
    every = np.arange(0x10000, dtype=np.uint16)
    wide = from_bf16(every)
    finite = np.isfinite(wide)
    assert np.array_equal(to_bf16(wide[finite]), every[finite])
    assert is_bf16(wide)
    assert not is_bf16(numbers())


def test_the_library_reads_what_is_written_here() -> None:
    arrays = {"b": numbers().reshape(4, -1), "a": numbers(), "empty": np.zeros((0, 3), dtype=np.float32)}
    data = save_arrays(arrays, in_bf16=lambda name: name == "a", metadata={"format": "pt"})
    tensors = load(data)
    assert {name: tensor.dtype for name, tensor in tensors.items()} == {
        "a": torch.bfloat16, "b": torch.float32, "empty": torch.float32,
    }  # fmt: skip
    assert np.array_equal(tensors["b"].numpy(), arrays["b"])
    assert torch.equal(tensors["a"], torch.from_numpy(arrays["a"]).to(torch.bfloat16))


def test_all_kinds_of_floats_come_back_as_float32() -> None:
    values = np.array([[1.5, -2.0], [0.25, 3.0]], dtype=np.float32)
    for data in (
        save_arrays({"x": values}, in_bf16=lambda _: True),
        save_arrays({"x": values}, in_bf16=lambda _: False),
        save({"x": values}),  # as the releases before wrote it
        save({"x": values.astype(np.float16)}),
    ):
        (loaded,) = load_arrays(data).values()
        assert loaded.dtype == np.float32
        assert np.array_equal(loaded, values)


@pytest.mark.parametrize("data", [b"", b"\x80\x04K\x01.", save({"x": np.zeros(3, dtype=np.int64)})])
def test_what_is_no_file_of_floats_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        load_arrays(data)


def test_an_entry_of_another_size_than_announced_is_not_written() -> None:
    entry = Entry(name="x", dtype="F32", shape=(2,), n_bytes=8, data=lambda: b"1234")
    with pytest.raises(ValueError, match="4 bytes, not 8"):
        write_tensors(io.BytesIO(), [entry])


def test_a_writer_asks_for_one_tensor_at_a_time(tmp_path: Path) -> None:
    held = 0

    def entry(n: int) -> Entry:
        def data() -> bytes:
            nonlocal held
            held += 1
            assert held == n
            return bytes(400)

        return Entry(name=f"t{n}", dtype="F32", shape=(100,), n_bytes=400, data=data)

    path = tmp_path / "file"
    with path.open("wb") as file:
        n_bytes = write_tensors(file, (entry(n) for n in range(1, 6)))
    assert n_bytes == path.stat().st_size
    assert len(load_arrays(path.read_bytes())) == 5
