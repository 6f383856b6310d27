"""The blob store: bytes under their sha256, one folder a tenant. What needs a large value keeps its digest and fetches
it here.

Content-addressed, so that writing before the transaction that refers to it is harmless: an orphan costs disk, never
truth. Folders are per tenant, so that one tenant can neither see nor time whether another holds the same bytes, and
deletion is one folder.

A disk that does not take or give bytes is Unavailable (`blob_store_unavailable`, `blob_store_full`), never a fault of
the request. The root is not made here: a disk that is not mounted must not get its files on the one below.
"""

import errno
import fcntl
import hashlib
import json
import logging
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self
from uuid import UUID

from django.conf import settings

from backend.domain.errors import NotFound, OurError, Unavailable

logger = logging.getLogger(__name__)

# How lately a blob may have been stored for a sweep to leave it: longer than any transaction that is yet to name it,
# shorter than what is forgotten soonest (`runner_jobs.retention.KEEP_S`).
LATELY_S = 300.0
_HEX = frozenset("0123456789abcdef")
UNFINISHED, STALE_S = "unfinished-", 3600.0
_FULL = frozenset((errno.ENOSPC, errno.EDQUOT))


@contextmanager
def store_faults() -> Iterator[None]:
    """A fault of the disk as what it is to a caller: nobody's request is wrong, and it is likely to pass."""
    try:
        yield
    except OSError as fault:
        logger.warning("the blob store: %s", fault.strerror or type(fault).__name__)
        if fault.errno in _FULL:
            raise Unavailable(
                "The blob store of this installation is full; its operator must make room.", code="blob_store_full"
            ) from fault
        raise Unavailable(
            "The blob store of this installation does not answer just now; try again.", code="blob_store_unavailable"
        ) from fault


def require_store() -> None:
    """Raises Unavailable where the store's root is not there, as when its disk is not mounted."""
    with store_faults():
        os.scandir(settings.KOLM_BLOB_DIR).close()


def probe_store() -> None:
    """Write a few bytes and delete them again. Raises Unavailable."""
    with store_faults(), tempfile.TemporaryFile(dir=settings.KOLM_BLOB_DIR) as file:
        file.write(bytes(4096))
        file.flush()


def put_blob(tenant_id: UUID, data: bytes) -> str:
    """Store `data`, return its sha256. Writing the same bytes twice is one file. Once this returns, the file outlives a
    power cut, and sweeps leave it alone for as long as it takes to commit what names it."""
    digest = hashlib.sha256(data).hexdigest()
    path = _path(tenant_id, digest)
    with store_faults():
        if _renew(path):
            return digest
        _make_folder(path.parent)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            try:
                file.write(data)
                file.flush()
                _name(file.fileno(), Path(file.name), path)
            except OSError:
                with suppress(FileNotFoundError):
                    os.unlink(file.name)  # a disk that is full must not fill up with halves
                raise
    return digest


class BlobWriter:
    """A blob written in parts, for what no process should hold as a whole. A context manager: what was not kept at its
    end leaves nothing behind. What a process that was killed has left behind is swept (`sweep_unfinished`)."""

    def __init__(self, tenant_id: UUID) -> None:
        self._tenant_id, self._digest = tenant_id, hashlib.sha256()
        folder = Path(settings.KOLM_BLOB_DIR) / str(tenant_id)
        with store_faults():
            _make_folder(folder)
            self._file = tempfile.NamedTemporaryFile(  # noqa: SIM115 - closed by __exit__
                dir=folder, prefix=UNFINISHED, delete=False
            )

    def write(self, data: bytes) -> None:
        self._digest.update(data)
        with store_faults():
            self._file.write(data)

    @property
    def sha256(self) -> str:
        """The digest of what was written so far."""
        return self._digest.hexdigest()

    def keep(self) -> str:
        """Store what was written; its sha256. The last call on a writer."""
        digest = self.sha256
        path = _path(self._tenant_id, digest)
        with store_faults():
            if not _renew(path):  # to replace a blob that a sweep has judged would give the sweep the new one
                _make_folder(path.parent)
                self._file.flush()
                _name(self._file.fileno(), Path(self._file.name), path)
        return digest

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # of a disk that has just failed: what is left there goes a day later
            self._file.close()
        with suppress(OSError):
            Path(self._file.name).unlink(missing_ok=True)


def unfinished_file(tenant_id: UUID, name: str) -> Path:
    """The place of a blob on its way, in a folder that is there; `sweep_unfinished` knows it by its name."""
    folder = Path(settings.KOLM_BLOB_DIR) / str(tenant_id)
    with store_faults():
        _make_folder(folder)
    return folder / f"{UNFINISHED}{name}"


def adopt_file(tenant_id: UUID, number: int, written: Path, digest: str) -> None:
    """Make a whole file, open as `number` and with that digest, the tenant's blob; its old name is gone afterwards."""
    path = _path(tenant_id, digest)
    with store_faults():
        if _renew(path):
            written.unlink(missing_ok=True)
        else:
            _make_folder(path.parent)
            _name(number, written, path)


def sweep_unfinished() -> int:
    """Delete what was begun and not touched for an hour, of all tenants: left by a process that was killed, or a runner
    that went away. Returns how many files went."""
    n_gone = 0
    with store_faults():
        for left in Path(settings.KOLM_BLOB_DIR).glob(f"*/{UNFINISHED}*"):
            with suppress(FileNotFoundError):
                if left.stat().st_mtime < time.time() - STALE_S:
                    left.unlink()
                    n_gone += 1
    return n_gone


def renew_blob(tenant_id: UUID, digest: str) -> bool:
    """Say whether the blob is there; if so, sweeps leave it alone as if it had just been stored."""
    with store_faults():
        return _renew(_path(tenant_id, digest))


def get_blob(tenant_id: UUID, digest: str) -> bytes:
    """The bytes under `digest`. Raises NotFound, and OurError when the file on disk no longer has that digest."""
    path = _path(tenant_id, digest)
    with store_faults():
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise _gone(tenant_id, digest) from None
    if hashlib.sha256(data).hexdigest() != digest:
        raise OurError(f"The stored object {digest[:12]}… was altered on disk.", code="blob_corrupt")
    return data


def blob_size(tenant_id: UUID, digest: str) -> int:
    """Bytes of a blob. Raises NotFound."""
    path = _path(tenant_id, digest)
    with store_faults():
        try:
            return path.stat().st_size
        except FileNotFoundError:
            raise _gone(tenant_id, digest) from None


def blob_parts(tenant_id: UUID, digest: str, *, part_bytes: int = 1 << 20) -> Iterator[bytes]:
    """The bytes under `digest`, a part at a time and unchecked: whoever reads to the end compares the digest. Raises
    NotFound."""
    path = _path(tenant_id, digest)
    with store_faults():
        try:
            file = path.open("rb")
        except FileNotFoundError:
            raise _gone(tenant_id, digest) from None
    with file:
        while True:
            with store_faults():
                part = file.read(part_bytes)
            if not part:
                return
            yield part


def delete_blob(tenant_id: UUID, digest: str) -> None:
    """Forget a blob; one that is gone already is forgotten."""
    path = _path(tenant_id, digest)
    # not while a sweep is between its look and its deletion
    with store_faults(), suppress(FileNotFoundError), _lock(path):
        path.unlink()


def sweep_blob(tenant_id: UUID, digest: str) -> bool:
    """Forget a blob that no row named when the sweep looked, unless it was stored again since: whoever did may be about
    to commit a row that names it. True when it is gone. Should that commit fail, an orphan stays, as after a crash."""
    path = _path(tenant_id, digest)
    with store_faults(), suppress(FileNotFoundError), _lock(path) as file:
        judged = os.fstat(file)
        if not judged.st_nlink:  # another sweep was first: what has the name by now is another file
            return not path.exists()
        if judged.st_mtime > time.time() - LATELY_S:
            return False
        path.unlink()
    return True


def has_blob(tenant_id: UUID, digest: str) -> bool:
    path = _path(tenant_id, digest)
    with store_faults():
        try:
            path.stat()
        except FileNotFoundError:
            require_store()
            return False
    return True


def put_json(tenant_id: UUID, value: Any) -> str:
    return put_blob(tenant_id, json.dumps(value, ensure_ascii=False, sort_keys=True).encode())


def get_json(tenant_id: UUID, digest: str) -> Any:
    return json.loads(get_blob(tenant_id, digest))


def put_jsonl(tenant_id: UUID, rows: list[dict[str, Any]]) -> str:
    lines = (json.dumps(row, ensure_ascii=False, sort_keys=True) for row in rows)
    return put_blob(tenant_id, "".join(line + "\n" for line in lines).encode())


def get_jsonl(tenant_id: UUID, digest: str) -> list[dict[str, Any]]:
    # not splitlines(): it also cuts at U+2028 and its kind, which JSON leaves unescaped inside strings
    return [json.loads(line) for line in get_blob(tenant_id, digest).decode().split("\n") if line]


def _gone(tenant_id: UUID, digest: str) -> NotFound:
    """The error to raise where a blob is missing. Rows name no blob of a tenant that has none, so where not even its
    folder is there, the disk is not: that raises FileNotFoundError, for `store_faults` to tell."""
    (Path(settings.KOLM_BLOB_DIR) / str(tenant_id)).stat()
    return NotFound(f"There is no stored object {digest[:12]}….", code="blob_not_found")


def _path(tenant_id: UUID, digest: str) -> Path:
    if len(digest) != 64 or not _HEX.issuperset(digest):
        raise NotFound("A stored object is named by 64 lower-case hexadecimal digits.", code="blob_not_found")
    return Path(settings.KOLM_BLOB_DIR) / str(tenant_id) / digest[:2] / digest


@contextmanager
def _lock(path: Path) -> Iterator[int]:
    """The open blob, to one process at a time: what it is by its number, whatever becomes of its name. Raises
    FileNotFoundError."""
    number = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        yield number
    finally:
        os.close(number)


def _name(number: int, written: Path, path: Path) -> None:
    """Put what was written under its name and both on the disk. It is locked in between, so that nobody who stores the
    same takes the name for kept."""
    os.fsync(number)
    fcntl.flock(number, fcntl.LOCK_EX)
    os.replace(written, path)
    _sync_folder(path.parent)
    fcntl.flock(number, fcntl.LOCK_UN)


def _renew(path: Path) -> bool:
    """True when the blob is there and sweeps now see that it was stored again. One that a sweep deletes in this moment
    is not there; one that another process stores in this moment is waited for until its name is on the disk."""
    with suppress(FileNotFoundError), _lock(path) as file:
        if os.fstat(file).st_nlink:
            os.utime(file)
            return True
    return False


def _make_folder(folder: Path) -> None:
    """A tenant's folder, or one within it; never the root."""
    root = Path(settings.KOLM_BLOB_DIR)
    for made in (*reversed([p for p in folder.parents if p.is_relative_to(root) and p != root]), folder):
        try:
            made.mkdir()
        except FileExistsError:
            continue
        _sync_folder(made.parent)


def _sync_folder(folder: Path) -> None:
    """A name is on the disk once its folder is."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
