"""The sources that are near a slice: exact over all of a scope in one read, or through the scope's own index.

Exact is the default and costs one range of one index and a matrix product for all of a compile's slices. A scope that
an operator gave an index (`index_large_scopes`, above 100,000 sources) is asked once per slice instead, and finds
nearly all of what is near, not all.
"""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import numpy as np
from django.db import connection
from psycopg import ServerCursor

from backend.tenants.isolation import set_local

BLOCK = 16_384  # sources that are in memory at a time: 25 MB of 384 dimensions, 84 MB of 1,280
EF_SEARCH = 200  # how many candidates an index keeps while it searches

# of a row that `source_blocks` reads: the id's 16 bytes, the number of dimensions in two, two unused, the vector
_TO_DIMENSION = 16


def nearest_sources(tenant_id: UUID, scope_id: UUID, turned: Any, n: int) -> list[list[tuple[UUID, float]]]:
    """Return for each of the (m, d) float32 rotated unit rows the ids and cosine distances of the `n` nearest sources,
    nearest first; fewer where the scope has fewer. Inside the tenant's scope."""
    if has_index(scope_id):
        return [_by_index(tenant_id, scope_id, row, n) for row in turned]
    return _exactly(tenant_id, scope_id, turned, n)


def index_name(scope_id: UUID) -> str:
    return f"source_near_{scope_id.hex}"


def has_index(scope_id: UUID) -> bool:
    """Return whether the scope has an index that is complete (one that is being built, or whose build failed, is
    not)."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT 1 FROM pg_index WHERE indexrelid = to_regclass(%s) AND indisvalid", [index_name(scope_id)]
        )
        return cursor.fetchone() is not None


def _by_index(tenant_id: UUID, scope_id: UUID, row: Any, n: int) -> list[tuple[UUID, float]]:
    """The constants are in the statement's text, or the planner could not know that the partial index holds them."""
    distance = f"embedding::halfvec({len(row)}) <=> %(row)s::halfvec({len(row)})"
    values = {"row": f"[{','.join(f'{value:.6g}' for value in row)}]", "tenant": tenant_id, "scope": scope_id, "n": n}
    set_local("hnsw.ef_search", str(max(EF_SEARCH, n)))
    set_local("hnsw.iterative_scan", "strict_order")
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT id, {distance} FROM drafts_source WHERE tenant_id = %(tenant)s AND scope_id = %(scope)s"
            f" ORDER BY {distance} LIMIT %(n)s",
            values,
        )
        return [(id, max(0.0, float(cosine))) for id, cosine in cursor.fetchall()]


def _exactly(tenant_id: UUID, scope_id: UUID, turned: Any, n: int) -> list[list[tuple[UUID, float]]]:
    """A block at a time, so that memory does not grow with the scope."""
    best = np.zeros((len(turned), 0), dtype=np.float32)
    at = np.zeros((len(turned), 0), dtype=np.int64)
    ids: list[Any] = []
    n_seen = 0
    for names, vectors in source_blocks(tenant_id, scope_id):
        cosines = turned @ vectors.T
        cosines /= np.sqrt(np.einsum("ij,ij->i", vectors, vectors))  # cheaper than to divide the rows
        places = _largest(cosines, n)
        best = np.hstack([best, np.take_along_axis(cosines, places, axis=1)])
        at = np.hstack([at, places + n_seen])
        kept = _largest(best, n)
        best, at = np.take_along_axis(best, kept, axis=1), np.take_along_axis(at, kept, axis=1)
        ids.append(names)
        n_seen += len(names)
    if not ids:
        return [[] for _ in turned]
    order = np.argsort(-best, axis=1, kind="stable")
    best, at = np.take_along_axis(best, order, axis=1), np.take_along_axis(at, order, axis=1)
    names = np.concatenate(ids)
    return [
        [(UUID(bytes=bytes(names[i])), max(0.0, 1.0 - float(value))) for i, value in zip(places, values, strict=True)]
        for places, values in zip(at, best, strict=True)
    ]


def _largest(values: Any, n: int) -> Any:
    """(m, n) places of the n largest of each row, in no order."""
    first = max(0, values.shape[1] - n)
    return np.argpartition(values, first, axis=1)[:, first:]


def source_blocks(tenant_id: UUID, scope_id: UUID, size: int = BLOCK) -> Iterator[tuple[Any, Any]]:
    """(ids as 16 bytes, (n, d) float32 rows, unit but for float16's rounding) of all sources in a scope, `size` at a
    time: a scan of one contiguous range, in the database's own binary form (a row as Python objects would cost ten
    times the scan, COPY twice as much on this side)."""
    connection.ensure_connection()
    with ServerCursor(connection.connection, "sources") as cursor:
        cursor.execute(
            "SELECT uuid_send(id) || halfvec_send(embedding) FROM drafts_source WHERE tenant_id = %s AND scope_id = %s",
            [tenant_id, scope_id],
            binary=True,
        )
        while rows := cursor.fetchmany(size):
            yield _parse(b"".join([row for (row,) in rows]))


def _parse(data: bytes) -> tuple[Any, Any]:
    d = int.from_bytes(data[_TO_DIMENSION : _TO_DIMENSION + 2], "big")
    rows = np.frombuffer(data, dtype=[("id", "V16"), ("size", "V4"), ("vector", ">f2", (d,))])
    return rows["id"], rows["vector"].astype(np.float32)
