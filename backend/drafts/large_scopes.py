"""Indexes for scopes that are too large to be read whole: one per scope, on the one part of the table that its tenant
lies in, over its rows alone. As the owner; built beside the traffic, and dropped when its scope is gone or has shrunk.

Every other index of vectors would hold several tenants', and its speed and recall would tell each of the others.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from django.db import connection

from backend.drafts.nearest import index_name
from backend.tenants.isolation import tenant_scope

ABOVE = 100_000  # sources; up to here reading all of a scope is as fast and finds everything
BUILD_MEMORY = "512MB"  # a graph that does not fit is built many times slower


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeScope:
    tenant_id: UUID
    scope_id: UUID
    n_sources: int
    part: str  # the table that has the tenant's rows
    n_dimensions: int


def large_scopes(above: int) -> list[LargeScope]:
    """The scopes with more than `above` sources, of all tenants."""
    return [scope for tenant_id, scope_id in _all_scopes() if (scope := _measure(tenant_id, scope_id, above))]


def build_index(scope: LargeScope) -> str:
    """Build the scope's index, outside a transaction, and return its name. What an interrupted build left is built
    again."""
    name, kind = index_name(scope.scope_id), f"halfvec({scope.n_dimensions})"
    with connection.cursor() as cursor:
        cursor.execute(f"SET maintenance_work_mem = '{BUILD_MEMORY}'")
        cursor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
        cursor.execute(
            f"CREATE INDEX CONCURRENTLY {name} ON {scope.part} USING hnsw ((embedding::{kind}) halfvec_cosine_ops)"
            f" WHERE tenant_id = '{scope.tenant_id}' AND scope_id = '{scope.scope_id}'"
        )
    return name


def drop_index(name: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")


def built_indexes() -> dict[str, bool]:
    """Every scope's index by name, and whether it is complete."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT c.relname, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
            r" WHERE c.relname LIKE 'source\_near\_%%' ORDER BY 1"
        )
        return dict(cursor.fetchall())


def _all_scopes() -> Iterator[tuple[UUID, UUID]]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT tenant_id, id FROM drafts_scope ORDER BY tenant_id, id")
        yield from cursor.fetchall()


def _measure(tenant_id: UUID, scope_id: UUID, above: int) -> LargeScope | None:
    with tenant_scope(tenant_id), connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*), min(tableoid::regclass::text), min(vector_dims(embedding)) FROM drafts_source"
            " WHERE tenant_id = %s AND scope_id = %s",
            [tenant_id, scope_id],
        )
        n_sources, part, n_dimensions = cursor.fetchone()
    if n_sources <= above:
        return None
    return LargeScope(tenant_id=tenant_id, scope_id=scope_id, n_sources=n_sources, part=part, n_dimensions=n_dimensions)
