"""A server's adapters on disk: the `.kolm` files it fetched, and the PEFT folders that engines read.

Names are sha256 digests and nothing else, so that no name from outside becomes a path. What lies here is not trusted
when it is read again: a `.kolm` is hashed and verified each time, a folder is compared with what was written.
"""

import hashlib
import os
import re
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpu_runners.models.causal_adapter import AdapterConfig, CausalAdapter, write_peft_folder

_DIGEST = re.compile(r"[0-9a-f]{64}")


def is_digest(text: str) -> bool:
    return _DIGEST.fullmatch(text) is not None


def private_folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.chmod(0o700)
    return path


class KolmFiles:
    """`.kolm` files by their sha256, least recently used out first above `max_bytes`."""

    def __init__(self, folder: Path, *, max_bytes: int) -> None:
        self._folder, self._max_bytes = private_folder(folder), max_bytes
        self._sizes: OrderedDict[str, int] = OrderedDict()
        there = [path for path in self._folder.iterdir() if path.suffix == ".kolm" and is_digest(path.stem)]
        for path in sorted(there, key=lambda path: path.stat().st_mtime):
            self._sizes[path.stem] = path.stat().st_size
        self._trim()

    @property
    def n_bytes(self) -> int:
        return sum(self._sizes.values())

    def names(self) -> list[str]:
        """Least recently used first."""
        return list(self._sizes)

    def get(self, sha256: str) -> bytes | None:
        """The bytes, or None where there are none or other ones."""
        if sha256 not in self._sizes:
            return None
        try:
            data = self._path(sha256).read_bytes()
        except OSError:
            data = b""
        if hashlib.sha256(data).hexdigest() != sha256:
            self.drop(sha256)
            return None
        self._sizes.move_to_end(sha256)
        return data

    def put(self, sha256: str, data: bytes) -> None:
        """`data` was checked against `sha256`. A full disk costs the copy, not the request."""
        if len(data) > self._max_bytes:
            return
        try:
            handle, temporary = tempfile.mkstemp(dir=self._folder, prefix=".kolm-")
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(temporary, self._path(sha256))
        except OSError:
            return
        self._sizes[sha256] = len(data)
        self._sizes.move_to_end(sha256)
        self._trim()

    def drop(self, sha256: str) -> None:
        self._sizes.pop(sha256, None)
        self._path(sha256).unlink(missing_ok=True)

    def _trim(self) -> None:
        while self.n_bytes > self._max_bytes:
            self.drop(next(iter(self._sizes)))

    def _path(self, sha256: str) -> Path:
        if not is_digest(sha256):
            raise ValueError("not a sha256")
        return self._folder / f"{sha256}.kolm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpacked:
    """A PEFT folder and what was written there: (size, changed at, inode, sha256) by file name."""

    folder: Path
    n_bytes: int
    files: dict[str, tuple[int, int, int, str]]

    def is_as_written(self, *, to_the_byte: bool) -> bool:
        """Compare with what was written: `to_the_byte` by digest; else by size, time and inode alone."""
        try:
            for name, (size, changed, inode, digest) in self.files.items():
                facts = (self.folder / name).stat()
                if (facts.st_size, facts.st_mtime_ns, facts.st_ino) != (size, changed, inode):
                    return False
                if to_the_byte and hashlib.sha256((self.folder / name).read_bytes()).hexdigest() != digest:
                    return False
        except OSError:
            return False
        return True


def unpack(
    root: Path, sha256: str, adapter: CausalAdapter, config: AdapterConfig, *, beside: Mapping[str, bytes] | None = None
) -> Unpacked:
    """`root/<sha256>/`, whole or not at all; what stood there is replaced. `beside` are further files in it, by names
    of ours."""
    if not is_digest(sha256):
        raise ValueError("not a sha256")
    folder, fresh = root / sha256, Path(tempfile.mkdtemp(dir=root, prefix=".new-"))
    try:
        write_peft_folder(fresh, adapter, config)
        for name, data in (beside or {}).items():
            (fresh / name).write_bytes(data)
        if folder.exists():
            shutil.rmtree(folder)
        os.rename(fresh, folder)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    files = {path.name: _facts(path) for path in folder.iterdir()}
    return Unpacked(folder=folder, n_bytes=sum(size for size, *_ in files.values()), files=files)


def _facts(path: Path) -> tuple[int, int, int, str]:
    facts = path.stat()
    return facts.st_size, facts.st_mtime_ns, facts.st_ino, hashlib.sha256(path.read_bytes()).hexdigest()
