"""The base cache of one machine: whole bases under one folder, least recently used out first. Several processes share
it; nothing in it is worth a backup.

    <cache>/<name>.lock            held shared by whoever uses the base, alone by whoever fetches or evicts it
    <cache>/<name>.json            the record: commit, bytes, whether it is whole; its time is that of the last use
    <cache>/<name>/<commit>/       the files, as the hub has them

A lock is the kernel's (`flock`) and ends with its process, so that a crash leaves nothing in use. A base is in use as
long as its `Hold` lives. A record is written before the first byte is fetched: the room it asks for counts from then
on.
"""

import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpu_runners.errors import JobFailed

RESERVE = 2 << 30  # bytes of the disk that bases leave free: checkpoints, adapters and logs lie there too
_POLL_S = 0.05


class Hold:
    """A lock on a base that ends with this object, or with the process."""

    _fd = -1

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def lock(self, how: int) -> bool:
        """Try `fcntl.LOCK_SH` or `LOCK_EX` without waiting."""
        try:
            fcntl.flock(self._fd, how | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def wait(self, how: int) -> None:
        while not self.lock(how):
            time.sleep(_POLL_S)

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def __del__(self) -> None:
        self.release()


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Let nobody else hold this lock inside the block. An exception's frames may outlive it, so a `Hold` alone would
    not do."""
    hold = Hold(path)
    try:
        hold.wait(fcntl.LOCK_EX)
        yield
    finally:
        hold.release()


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """`size` in bytes, as the hub announces it."""

    key: str
    commit: str
    size: int
    is_whole: bool
    used_at: float


class BaseCache:
    """`limit` is the most bytes that all bases together may have, None: what the disk holds but for `reserve`."""

    def __init__(
        self,
        root: Path,
        *,
        limit: int | None = None,
        reserve: int = RESERVE,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._root, self._limit, self._reserve, self._clock = root, limit, reserve, clock

    def take(self, name: str) -> tuple[Path, Hold] | None:
        """The folder of a base that is whole, and the hold on it; None where it has to be fetched. Waits for another
        process that fetches it."""
        key = _key(name)
        if not self._record_path(key).is_file():
            return None
        hold = Hold(self._root / f"{key}.lock")
        hold.wait(fcntl.LOCK_SH)
        record = self._read(key)
        if record is None or not record.is_whole:
            return None
        os.utime(self._record_path(key), (self._clock(), self._clock()))
        return self._root / key / record.commit, hold

    def peek(self, name: str) -> Path | None:
        """The folder of a base that is whole, without waiting for anybody, and without a hold: it may be evicted at any
        moment."""
        record = self._read(_key(name))
        return None if record is None or not record.is_whole else self._root / record.key / record.commit

    def whole_bases(self) -> list[str]:
        """The names of all bases that are whole."""
        return sorted(record.key.replace("--", "/", 1) for record in self._records() if record.is_whole)

    def room(self) -> int | None:
        """The most bytes that a base may have which is fetched now, once what nobody uses is evicted; None where the
        disk cannot be asked."""
        try:
            return self._room_beside(self._records())
        except OSError:
            return None

    def check_possible(self, name: str, size: int) -> None:
        """Raise JobFailed(base_too_large) for a base that an empty cache could not hold either."""
        self._check_possible(name, size, *self._beside(name))

    def check_room(self, name: str, size: int) -> None:
        """Raise JobFailed: base_too_large, and base_cache_full for a base that has no room while others are in use."""
        here, others = self._beside(name)
        self._check_possible(name, size, here, others)
        if size - here > self._room_beside(others):
            raise _full(name, size)

    def _beside(self, name: str) -> tuple[int, list[Record]]:
        """The bytes of a base that are here, and the other bases."""
        key = _key(name)
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        return _bytes_in(self._root / key), [r for r in self._records() if r.key != key]

    def is_whole(self, name: str) -> bool:
        """Say whether all files are there. Inside `filling`."""
        record = self._read(_key(name))
        return record is not None and record.is_whole

    @contextmanager
    def filling(self, name: str) -> Iterator[None]:
        """Nobody else fetches, uses or evicts this base inside the block."""
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _alone(self._root / f"{_key(name)}.lock"):
            yield

    def make_room(self, name: str, commit: str, size: int) -> Path:
        """The folder to fetch `size` bytes into; evicts what nobody uses, least recently used first. Inside `filling`.
        Raises JobFailed: base_too_large, and base_cache_full while what is in the way is in use."""
        with _alone(self._root / "room.lock"):
            return self._make_room(name, commit, size)

    def _make_room(self, name: str, commit: str, size: int) -> Path:
        key = _key(name)
        folder = self._root / key / commit
        self._forget_others(key, commit)
        others = sorted((r for r in self._records() if r.key != key), key=lambda r: r.used_at)
        here = _bytes_in(folder)
        self._check_possible(name, size, here, others)
        for record in list(others):
            if self._fits(size, here, others):
                break
            if self._evict(record.key):
                others.remove(record)
        if not self._fits(size, here, others):
            raise _full(name, size)
        self._write(key, commit, size, is_whole=False)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def keep(self, name: str, commit: str, size: int) -> None:
        """Record that all files are there. Inside `filling`."""
        self._write(_key(name), commit, size, is_whole=True)

    def drop(self, name: str) -> None:
        """Remove what was fetched. Inside `filling`."""
        key = _key(name)
        self._record_path(key).unlink(missing_ok=True)
        shutil.rmtree(self._root / key, ignore_errors=True)

    def _room_beside(self, records: list[Record]) -> int:
        """The bytes that evicting all that nobody uses would leave for one more base."""
        with _alone(self._root / "room.lock"):  # or an eviction would take our look at a lock for a use of the base
            in_use = [record for record in records if self._is_in_use(record.key)]
        idle = sum(_bytes_in(self._root / record.key) for record in records if record not in in_use)
        most = self._free() + idle
        if self._limit is not None:
            most = min(most, self._limit - sum(record.size for record in in_use))
        return max(0, most)

    def _is_in_use(self, key: str) -> bool:
        hold = Hold(self._root / f"{key}.lock")
        try:
            return not hold.lock(fcntl.LOCK_EX)
        finally:
            hold.release()

    def _check_possible(self, name: str, size: int, here: int, others: list[Record]) -> None:
        """Raise for what an empty cache could not hold either."""
        if self._limit is not None and size > self._limit:
            raise JobFailed(
                f"The base {name!r} has {size:,} bytes, more than the {self._limit:,} that this runner keeps "
                "(KOLM_BASE_CACHE_BYTES). Use a smaller base.",
                code="base_too_large",
            )
        most = self._free() + here + sum(_bytes_in(self._root / other.key) for other in others)
        if size > most:
            raise JobFailed(
                f"The base {name!r} has {size:,} bytes, and the runner's disk has room for {max(0, most):,}. Use a "
                "smaller base, or give the runner a larger disk.",
                code="base_too_large",
            )

    def _fits(self, size: int, here: int, others: list[Record]) -> bool:
        if self._limit is not None and size + sum(other.size for other in others) > self._limit:
            return False
        pending = sum(max(0, o.size - _bytes_in(self._root / o.key)) for o in others if not o.is_whole)
        return size - here <= self._free() - pending

    def _free(self) -> int:
        return shutil.disk_usage(self._root).free - self._reserve

    def _evict(self, key: str) -> bool:
        hold = Hold(self._root / f"{key}.lock")
        is_unused = hold.lock(fcntl.LOCK_EX)
        if is_unused:
            self._record_path(key).unlink(missing_ok=True)
            shutil.rmtree(self._root / key, ignore_errors=True)
        hold.release()
        return is_unused

    def _forget_others(self, key: str, commit: str) -> None:
        """Remove what is left of a fetch of another commit under this name."""
        for folder in (self._root / key).glob("*"):
            if folder.name != commit:
                shutil.rmtree(folder, ignore_errors=True)

    def _records(self) -> list[Record]:
        keys = [path.name.removesuffix(".json") for path in self._root.glob("*.json")]
        return [record for record in map(self._read, keys) if record is not None]

    def _read(self, key: str) -> Record | None:
        path = self._record_path(key)
        try:
            value, used_at = json.loads(path.read_text("utf-8")), path.stat().st_mtime
            return Record(
                key=key,
                commit=str(value["commit"]),
                size=int(value["size"]),
                is_whole=value["is_whole"] is True,
                used_at=used_at,
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _write(self, key: str, commit: str, size: int, *, is_whole: bool) -> None:
        path = self._record_path(key)
        new = path.with_name(f"{path.name}.new")
        new.write_text(json.dumps({"commit": commit, "size": size, "is_whole": is_whole}), "utf-8")
        os.utime(new, (self._clock(), self._clock()))
        new.replace(path)

    def _record_path(self, key: str) -> Path:
        return self._root / f"{key}.json"


def _full(name: str, size: int) -> JobFailed:
    return JobFailed(
        f"There is no room for the base {name!r} ({size:,} bytes) while other bases are in use here.",
        code="base_cache_full",
        retryable=True,
    )


def _key(name: str) -> str:
    return name.replace("/", "--")


def _bytes_in(folder: Path) -> int:
    """The bytes of a folder's files. One that vanishes while it is counted has none."""
    total = 0
    for at, _, names in os.walk(folder):
        for file in names:
            try:
                total += os.lstat(os.path.join(at, file)).st_size
            except FileNotFoundError:
                continue
    return total
