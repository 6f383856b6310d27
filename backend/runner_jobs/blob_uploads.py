"""The parts of a blob as a runner sends them, on the blob store's disk: one unfinished file an upload, whose size says
how much of it is kept. It is locked while it changes, so that requests in several web processes see one order.

Nothing of an upload is believed: a part must be the next one (or the same as what is kept), as long as announced and of
the digest beside it, and the whole must have the digest that it is then named by. A job has one upload at a time.
"""

import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from uuid import UUID

from backend.blobs import adopt_file, renew_blob, store_faults, unfinished_file
from backend.domain.errors import Conflict, InvalidInput
from backend.domain.jobs.blob_transfers import PART_BYTES, Upload

_READ_BYTES = 1 << 20


class Busy(Conflict):
    """Another request is at work on the same upload."""

    code = "upload_busy"


def n_kept_parts(tenant_id: UUID, upload: Upload) -> tuple[int, bool]:
    """(parts that need not be sent, whether the whole is stored already). Raises Unavailable where the disk has no room
    for the rest."""
    if renew_blob(tenant_id, upload.sha256):
        return upload.n_parts, True
    path = _path(tenant_id, upload)
    with store_faults():
        try:
            n_kept_bytes = path.stat().st_size
        except FileNotFoundError:
            n_kept_bytes = 0
        if shutil.disk_usage(path.parent).free < upload.n_bytes - n_kept_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return upload.n_whole_parts(n_kept_bytes), False


def keep_part(tenant_id: UUID, upload: Upload, number: int, pieces: Iterable[bytes], sha256: str) -> None:
    """Write part `number`, which has that digest; once more is as good as once. Raises Conflict (upload_out_of_order,
    part_differs, upload_busy), InvalidInput (part_mismatch), Unavailable."""
    if not number:
        discard_uploads(tenant_id, upload.owner, but=upload)
    with _open(tenant_id, upload, may_begin=not number) as file:
        with store_faults():
            kept = upload.n_whole_parts(os.fstat(file.fileno()).st_size)
            if number < kept and _digest(file, number * PART_BYTES, upload.part_bytes(number)) == sha256:
                return
        if number < kept:
            raise Conflict(f"Part {number} is kept already, with other bytes.", code="part_differs")
        if number > kept:
            raise _out_of_order(number, kept)
        if not _is_written(file, number * PART_BYTES, pieces, sha256, upload.part_bytes(number)):
            raise InvalidInput(
                f"Part {number} does not have the {upload.part_bytes(number):,} bytes or the digest that were "
                "announced; send it again.",
                code="part_mismatch",
            )


def finish_upload(tenant_id: UUID, upload: Upload) -> None:
    """Store the whole under its digest; once more is as good as once. One with another digest is thrown away. Raises
    Conflict (upload_out_of_order, upload_busy), InvalidInput (digest_mismatch), Unavailable."""
    try:
        with _open(tenant_id, upload, may_begin=False) as file:
            with store_faults():
                size = os.fstat(file.fileno()).st_size
            if size != upload.n_bytes:
                raise _out_of_order(upload.n_parts, upload.n_whole_parts(size))
            with store_faults():
                digest = _digest(file, 0, size)
            if digest != upload.sha256:
                with store_faults():
                    _path(tenant_id, upload).unlink(missing_ok=True)
                raise InvalidInput("The bytes do not have the digest in the address.", code="digest_mismatch")
            adopt_file(tenant_id, file.fileno(), _path(tenant_id, upload), digest)
    except Conflict:
        if not renew_blob(tenant_id, upload.sha256):  # else another request has just finished it
            raise


def discard_uploads(tenant_id: UUID, owner: str, *, but: Upload | None = None) -> None:
    """Delete what a job had begun to send."""
    root = unfinished_file(tenant_id, owner)
    with store_faults():
        for left in root.parent.glob(f"{root.name}-*"):
            if but is None or left != _path(tenant_id, but):
                left.unlink(missing_ok=True)


@contextmanager
def _open(tenant_id: UUID, upload: Upload, *, may_begin: bool) -> Iterator[BinaryIO]:
    """The upload's file, to this request alone. Raises Conflict."""
    path = _path(tenant_id, upload)
    with store_faults():
        try:
            number = os.open(path, os.O_RDWR | (os.O_CREAT if may_begin else 0), 0o600)
        except FileNotFoundError:
            number = -1
    if number < 0:
        raise _out_of_order(0, 0, is_gone=True)
    with os.fdopen(number, "r+b", buffering=0) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy("Another request is at work on this upload; ask again.") from None
        if not _is_still(path, file):  # finished or thrown away between the two calls: the name is another file's
            raise Busy("This upload has just ended; ask again.")
        yield file


def _is_still(path: Path, file: BinaryIO) -> bool:
    with store_faults(), suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    return False


def _is_written(file: BinaryIO, at: int, pieces: Iterable[bytes], sha256: str, n_bytes: int) -> bool:
    """Write a part at its place; what is not the part that was announced, or could not be written whole, is cut off
    again."""
    digest, n = hashlib.sha256(), 0
    with store_faults():
        os.ftruncate(file.fileno(), at)
        file.seek(at)
        is_good = False
        try:
            for piece in pieces:
                n += len(piece)
                if n > n_bytes:
                    break
                digest.update(piece)
                _write(file, piece)
            is_good = n == n_bytes and digest.hexdigest() == sha256
        finally:
            if not is_good:
                os.ftruncate(file.fileno(), at)
    return is_good


def _write(file: BinaryIO, piece: bytes) -> None:
    view = memoryview(piece)
    while view:
        view = view[file.write(view) :]


def _digest(file: BinaryIO, at: int, n_bytes: int) -> str:
    digest, left = hashlib.sha256(), n_bytes
    file.seek(at)
    while left and (piece := file.read(min(left, _READ_BYTES))):
        digest.update(piece)
        left -= len(piece)
    return digest.hexdigest()


def _path(tenant_id: UUID, upload: Upload) -> Path:
    return unfinished_file(tenant_id, f"{upload.owner}-{upload.sha256}-{upload.n_bytes}")


def _out_of_order(number: int, kept: int, *, is_gone: bool = False) -> Conflict:
    sentence = "Nothing of this upload is kept" if is_gone else f"{kept} parts of this upload are kept"
    return Conflict(f"{sentence}; send part {kept} and not {number}.", code="upload_out_of_order")
