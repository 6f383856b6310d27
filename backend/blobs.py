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
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings

from backend.domain.errors import NotFound, OurError

_HEX = frozenset("0123456789abcdef")


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


def get_blob(tenant_id: UUID, digest: str) -> bytes:
    """The bytes under `digest`. Raises NotFound, and OurError when the file on disk no longer has that digest."""
    try:
        data = _path(tenant_id, digest).read_bytes()
    except FileNotFoundError:
        raise NotFound(f"There is no stored object {digest[:12]}….", code="blob_not_found") from None
    if hashlib.sha256(data).hexdigest() != digest:
        raise OurError(f"The stored object {digest[:12]}… was altered on disk.", code="blob_corrupt")
    return data


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


def _path(tenant_id: UUID, digest: str) -> Path:
    if len(digest) != 64 or not _HEX.issuperset(digest):
        raise NotFound("A stored object is named by 64 lower-case hexadecimal digits.", code="blob_not_found")
    return Path(settings.KOLM_BLOB_DIR) / str(tenant_id) / digest[:2] / digest
