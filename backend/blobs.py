"""The blob store: bytes under their sha256, one folder a tenant. What needs a large value keeps its digest and fetches
it here.

Content-addressed, so that writing before the transaction that refers to it is harmless: an orphan costs disk, never
truth. Folders are per tenant, so that one tenant can neither see nor time whether another holds the same bytes, and
deletion is one folder.
"""

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self
from uuid import UUID

from django.conf import settings

from backend.domain.errors import NotFound, OurError

_HEX = frozenset("0123456789abcdef")
_UNFINISHED, _STALE_S = "unfinished-", 86_400


def put_blob(tenant_id: UUID, data: bytes) -> str:
    """Store `data`, return its sha256. Writing the same bytes twice is one file."""
    digest = hashlib.sha256(data).hexdigest()
    path = _path(tenant_id, digest)
    if path.exists():
        return digest
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.replace(file.name, path)
        except OSError:
            os.unlink(file.name)  # a disk that is full must not fill up with halves
            raise
    return digest


class BlobWriter:
    """A blob written in parts, for what no process should hold as a whole. A context manager: what was not kept at its
    end leaves nothing behind. What a process that was killed has left behind goes with the tenant's next one, a day
    later."""

    def __init__(self, tenant_id: UUID) -> None:
        self._tenant_id, self._digest = tenant_id, hashlib.sha256()
        folder = Path(settings.KOLM_BLOB_DIR) / str(tenant_id)
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.glob(f"{_UNFINISHED}*"):
            if left.stat().st_mtime < time.time() - _STALE_S:
                left.unlink(missing_ok=True)
        self._file = tempfile.NamedTemporaryFile(  # noqa: SIM115 - closed by __exit__
            dir=folder, prefix=_UNFINISHED, delete=False
        )

    def write(self, data: bytes) -> None:
        self._digest.update(data)
        self._file.write(data)

    def keep(self) -> str:
        """Store what was written; its sha256. The last call on a writer."""
        digest = self._digest.hexdigest()
        path = _path(self._tenant_id, digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file.flush()
        os.fsync(self._file.fileno())
        os.replace(self._file.name, path)
        return digest

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        Path(self._file.name).unlink(missing_ok=True)


def get_blob(tenant_id: UUID, digest: str) -> bytes:
    """The bytes under `digest`. Raises NotFound, and OurError when the file on disk no longer has that digest."""
    try:
        data = _path(tenant_id, digest).read_bytes()
    except FileNotFoundError:
        raise _gone(digest) from None
    if hashlib.sha256(data).hexdigest() != digest:
        raise OurError(f"The stored object {digest[:12]}… was altered on disk.", code="blob_corrupt")
    return data


def blob_size(tenant_id: UUID, digest: str) -> int:
    """Bytes of a blob. Raises NotFound."""
    try:
        return _path(tenant_id, digest).stat().st_size
    except FileNotFoundError:
        raise _gone(digest) from None


def blob_parts(tenant_id: UUID, digest: str, *, part_bytes: int = 1 << 20) -> Iterator[bytes]:
    """The bytes under `digest`, a part at a time and unchecked: whoever reads to the end compares the digest. Raises
    NotFound."""
    try:
        file = _path(tenant_id, digest).open("rb")
    except FileNotFoundError:
        raise _gone(digest) from None
    with file:
        while part := file.read(part_bytes):
            yield part


def delete_blob(tenant_id: UUID, digest: str) -> None:
    """Forget a blob; one that is gone already is forgotten."""
    _path(tenant_id, digest).unlink(missing_ok=True)


def has_blob(tenant_id: UUID, digest: str) -> bool:
    return _path(tenant_id, digest).exists()


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


def _gone(digest: str) -> NotFound:
    return NotFound(f"There is no stored object {digest[:12]}….", code="blob_not_found")


def _path(tenant_id: UUID, digest: str) -> Path:
    if len(digest) != 64 or not _HEX.issuperset(digest):
        raise NotFound("A stored object is named by 64 lower-case hexadecimal digits.", code="blob_not_found")
    return Path(settings.KOLM_BLOB_DIR) / str(tenant_id) / digest[:2] / digest
