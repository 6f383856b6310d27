"""Everything a tenant has here, as one zip: a JSONL file for each table and the blobs they name.

From the models themselves, so that no table is forgotten. What is secret stays here: sealed values and hashes of keys
(`is_secret` goes by a column's name, and a test looks at every binary column). Texts that are sealed at rest are
opened by whoever can: the caller passes a function for their table.
"""

import json
import zipfile
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO
from uuid import UUID

from django.conf import settings
from django.db import models

from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Member
from backend.tenants.tenant_data.tenant_tables import owned_models, tenant_column

# With them somebody could act as the tenant, or open what is sealed.
_SECRET = ("sealed", "_mac", "secret", "_hash", "key_hash")
LEFT_OUT_TABLES = frozenset({"tenants_idempotencykey"})  # answers that were given once already
CHUNK = 500


Opener = Callable[[Any], dict[str, Any]]


def write_zip(tenant_id: UUID, file: BinaryIO, *, openers: Mapping[str, Opener]) -> dict[str, int]:
    """Write the export; rows by file. `openers` by table add to a row what only its owner can open. No table is in
    memory as a whole, and no transaction stays open while blobs are packed."""
    counts: dict[str, int] = {}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for model in owned_models():
            table = model._meta.db_table
            if table in LEFT_OUT_TABLES:
                continue
            with tenant_scope(tenant_id), archive.open(f"{table}.jsonl", "w", force_zip64=True) as member:
                counts[table] = 0
                for row in rows_of(model, tenant_id, opener=openers.get(table)):
                    member.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
                    counts[table] += 1
        for path in _blobs(tenant_id):
            archive.write(path, f"blobs/{path.name}")
        archive.writestr("README.txt", _README)
    return counts


def is_secret(column: str) -> bool:
    return column.endswith(_SECRET)


def rows_of(model: type[models.Model], tenant_id: UUID, *, opener: Opener | None = None) -> Iterator[dict[str, Any]]:
    columns = [field.attname for field in model._meta.concrete_fields if not is_secret(field.attname)]
    rows = model._default_manager.filter(**{tenant_column(model): tenant_id}).order_by("pk")
    if model is Member:
        rows = rows.select_related("user")
    for row in rows.iterator(chunk_size=CHUNK):
        value = {name: _plain(name, getattr(row, name)) for name in columns}
        if isinstance(row, Member):
            value["email"] = row.user.email
        yield value | (opener(row) if opener else {})


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, (UUID, Decimal)):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, (bytes, memoryview)):
        return bytes(value).decode(errors="replace") if name == "body" else bytes(value).hex()
    if isinstance(value, (str, int, float, bool, dict)) or value is None:
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(name, item) for item in value]
    to_list = getattr(value, "to_list", None)  # pgvector's half vectors
    return to_list() if to_list else str(value)


def _blobs(tenant_id: UUID) -> Iterator[Path]:
    folder = Path(settings.KOLM_BLOB_DIR) / str(tenant_id)
    yield from sorted(path for path in folder.glob("??/*") if path.is_file())


_README = """\
One JSONL file for each of kolm's tables, one JSON object a row; blobs/ has the files that rows name by their sha256
(uploads, artifacts, adapters). Binary columns are hexadecimal. API keys' hashes, stored teacher keys, webhook secrets
and the keys of the draft cache are not in it.
"""
