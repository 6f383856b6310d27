"""The digest of a base: what it is over, and that a large file is read once a machine."""

import hashlib
import os
from pathlib import Path

import pytest

from gpu_runners.models.base_store import digests
from gpu_runners.models.base_store.digests import REMEMBERED_FROM, folder_sha256
from gpu_runners.models.base_store.files import INDEX

LARGE = REMEMBERED_FROM


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A folder with the names of a base; the weights are a hole in the disk, 64 MiB of zeros."""
    folder = tmp_path / "base"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_text("{}")
    with (folder / "model.safetensors").open("wb") as file:
        file.truncate(LARGE)
    return folder


def digest(base: Path, memory: Path | None) -> str:
    """What another process would find."""
    digests._known_sha256.cache_clear()
    return folder_sha256(base, memory)


@pytest.fixture(autouse=True)
def files_are_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of a file's last change cannot be set."""
    monkeypatch.setattr(digests, "SETTLED_S", 0.0)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []
    real = digests._read_sha256

    def count(path: Path) -> str:
        names.append(path.name)
        return real(path)

    monkeypatch.setattr(digests, "_read_sha256", count)
    return names


def test_the_digest_is_that_of_sha256sum_over_the_files(base: Path) -> None:
    names = ["config.json", "model.safetensors", "tokenizer.json"]
    lines = "".join(f"{hashlib.sha256((base / name).read_bytes()).hexdigest()}  {name}\n" for name in names)
    assert digest(base, None) == hashlib.sha256(lines.encode()).hexdigest()


def test_a_large_file_is_read_once_and_small_ones_always(base: Path, tmp_path: Path, reads: list[str]) -> None:
    first = digest(base, tmp_path / "memory")
    assert digest(base, tmp_path / "memory") == first
    assert reads == ["config.json", "model.safetensors", "tokenizer.json", "config.json", "tokenizer.json"]


@pytest.mark.parametrize("keeps_times", [False, True])
def test_a_file_that_was_written_is_read_again(base: Path, tmp_path: Path, reads: list[str], keeps_times: bool) -> None:
    first, weights = digest(base, tmp_path / "memory"), base / "model.safetensors"
    before = weights.stat()
    with weights.open("r+b") as file:
        file.write(b"x")
    if keeps_times:
        os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert digest(base, tmp_path / "memory") != first


def test_a_file_that_changed_a_moment_ago_is_not_remembered(
    base: Path, tmp_path: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "SETTLED_S", 3600.0)
    digest(base, tmp_path / "memory")
    digest(base, tmp_path / "memory")
    assert reads.count("model.safetensors") == 2


def test_a_process_reads_what_did_not_change_once(base: Path, reads: list[str]) -> None:
    digest(base, None)
    folder_sha256(base)
    assert len(reads) == 3


@pytest.mark.parametrize("content", ["{", "[]", '{"model.safetensors": 1}', '{"model.safetensors": ["a", "b", "c"]}'])
def test_a_memory_that_cannot_be_read_is_done_without(base: Path, tmp_path: Path, content: str) -> None:
    first = digest(base, tmp_path / "memory")
    (path,) = (tmp_path / "memory").iterdir()
    path.write_text(content)
    assert digest(base, tmp_path / "memory") == first


def test_a_memory_that_others_may_write_is_not_believed(base: Path, tmp_path: Path, reads: list[str]) -> None:
    memory = tmp_path / "memory"
    digest(base, memory)
    memory.chmod(0o777)
    digest(base, memory)
    assert reads.count("model.safetensors") == 2


def test_a_memory_that_cannot_be_written_costs_a_read(base: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert digest(base, tmp_path / "file" / "memory") == digest(base, None)


def test_with_an_index_the_digest_covers_its_shards_and_no_stray_file(base: Path) -> None:
    (base / "model.safetensors").unlink()
    for name in ("model-1.safetensors", "model-2.safetensors"):
        (base / name).write_bytes(name.encode())
    without = digest(base, None)
    (base / INDEX).write_text('{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}')
    assert digest(base, None) == without, "a base that was put there by hand keeps its digest"
    (base / "consolidated.safetensors").write_bytes(b"stray")
    assert digest(base, None) == without
    (base / "model-2.safetensors").write_bytes(b"other")
    assert digest(base, None) != without
