"""The digest of a base, computed once a machine and not once a process: 15 GB take half a minute to read.

The sha256 of each large file is remembered in the cache folder, under its path, inode, size, and times of change. A
file that was written since is read again, and so is one that changed a moment ago: a clock's tick could hide a second
change. Who can write this runner's cache folder, or set the times of a file and of
its inode, can make it lie: this guards against another version of a base, not against whoever administers the machine.
No tenant reaches the folder; one that others may write to is not used.
"""

import contextlib
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from gpu_runners.models.base_store.files import weight_files

REMEMBERED_FROM = 64 << 20  # bytes; what is smaller is read faster than looked up with care
SETTLED_S = 2.0  # so long ago a file must have changed last to be remembered
_CHUNK = 1 << 20


def folder_sha256(root: Path, remembered: Path | None = None) -> str:
    """The digest of `Base`. `remembered` is the folder of the remembered digests, None: this process's memory alone."""
    names = sorted([*weight_files(root), "config.json", "tokenizer.json"])
    memory = _Memory(remembered, root) if remembered is not None else None
    lines = "".join(f"{_file_sha256(root / name, memory)}  {name}\n" for name in names)
    if memory is not None:
        memory.save()
    return hashlib.sha256(lines.encode()).hexdigest()


def _file_sha256(path: Path, memory: "_Memory | None") -> str:
    before = path.stat()
    if time.time() - max(before.st_mtime, before.st_ctime) < SETTLED_S:
        return _read_sha256(path)
    if memory is None or before.st_size < REMEMBERED_FROM:
        return _known_sha256(path, _state(before))
    known = memory.get(path.name, before)
    if known:
        return known
    digest = _known_sha256(path, _state(before))
    memory.put(path.name, before, digest)
    return digest


@lru_cache(maxsize=1024)
def _known_sha256(path: Path, state: str) -> str:
    """`state` is there to be a key: another state is another file."""
    return _read_sha256(path)


def _read_sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


class _Memory:
    """The remembered digests of one folder: a JSON file of our own user's. One that cannot be written is done
    without."""

    def __init__(self, folder: Path, base: Path) -> None:
        self._path = folder / (hashlib.sha256(os.fsencode(base.resolve())).hexdigest() + ".json")
        self._known: dict[str, list[str]] = self._load()
        self._is_new = False

    def get(self, name: str, stat: os.stat_result) -> str:
        state, digest = (*self._known.get(name, []), "", "")[:2]
        return digest if state == _state(stat) else ""

    def put(self, name: str, stat: os.stat_result, digest: str) -> None:
        self._known[name], self._is_new = [_state(stat), digest], True

    def save(self) -> None:
        if not self._is_new:
            return
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.NamedTemporaryFile("w", dir=self._path.parent, delete=False) as file:
                json.dump(self._known, file)
            os.replace(file.name, self._path)

    def _load(self) -> dict[str, list[str]]:
        try:
            if not _is_ours(self._path.parent) or not _is_ours(self._path):
                return {}
            value = json.loads(self._path.read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return {name: pair for name, pair in _items(value) if _is_pair(pair)}


def _items(value: object) -> Iterable[tuple[str, list[str]]]:
    return value.items() if isinstance(value, Mapping) else ()


def _is_pair(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(part, str) for part in value)


def _is_ours(path: Path) -> bool:
    stat = path.stat()
    return stat.st_uid == os.geteuid() and not stat.st_mode & 0o022


def _state(stat: os.stat_result) -> str:
    return f"{stat.st_ino} {stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns}"
