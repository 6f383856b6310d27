"""Writes of the draft bench: admission as the product does it, COPY beside an HNSW index, eviction and vacuum."""

import uuid
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

import numpy as np
from psycopg.errors import QueryCanceled

from backend.drafts.cache import SourcePrompt, admit
from backend.drafts.models import Source
from backend.rest.new_ids import new_uuid7
from backend.tenants.isolation import tenant_scope, tenant_token
from tests.bench import drafts_shared
from tests.bench.drafts_rows import (
    DRAFTS_PER_SOURCE,
    TEXT_BYTES,
    Stored,
    admitted,
    backend_pid,
    copy_models,
    copy_rows,
    made_source,
    packed,
    scope_of,
)
from tests.bench.drafts_server import Rate, Server, Spent, clock
from tests.bench.drafts_world import Pair, World

EVICTED = 0.05
VACUUM_LIMIT_S = 300


def admissions(world: World, pairs: Sequence[Pair], n: int, repeats: int, fsync: str) -> dict[str, list[Rate]]:
    name = f"admission (1 slice, {DRAFTS_PER_SOURCE} drafts), fsync {fsync}"
    return {name: [_admissions(world, pairs, n, f"{fsync}-{repeat}") for repeat in range(repeats)]}


def _admissions(world: World, pairs: Sequence[Pair], n: int, name: str) -> Rate:
    """The transaction of a selection: one slice with its drafts, the pairs in turn."""
    rng = np.random.default_rng(4)
    vectors = [(pair, world.near(pair, -(-n // len(pairs)), rng)) for pair in pairs]
    with tenant_scope(pairs[0].tenant_id):
        pid = backend_pid()
    with clock([pid]) as spent:
        for i in range(n):
            pair, rows = vectors[i % len(pairs)]
            with tenant_scope(pair.tenant_id):
                text = f"slice {name} {i} ".ljust(TEXT_BYTES, "x")
                admit(
                    pair.tenant_id,
                    new_uuid7(),
                    [admitted(f"{name} {i} {draft}") for draft in range(DRAFTS_PER_SOURCE)],
                    scope=scope_of(pair),
                    prompt=SourcePrompt(slice_text=text, messages=(("user", text),)),
                    slice_vector=rows[i // len(pairs)].tolist(),
                )
    return Rate(n=n, spent=spent)


def copies(server: Server, world: World, stored: Stored, pairs: Sequence[Pair], n: int) -> dict[str, Rate]:
    """n more slices into the tables as they are by now, all indexes in place."""
    rng = np.random.default_rng(5)
    rows, shared = [], []
    for i in range(n):
        pair = pairs[i % len(pairs)]
        (vector,) = world.near(pair, 1, rng)
        (half,) = stored.vaults[pair].rotate(vector[None]).astype(np.float16)
        row_id, scope = new_uuid7(), stored.scopes[pair]
        rows.append(made_source(stored.vaults[pair], scope, half, datetime.now(UTC), uuid.uuid4(), row_id))
        shared.append(drafts_shared.packed_row(pair.tenant_id, scope.id, row_id, vector))
    ours = copy_models(server, Source, packed(rows))
    theirs = copy_rows(server, drafts_shared.TABLE, drafts_shared.COLUMNS, shared)
    return {
        "COPY slices into the full tables": Rate(n=n, spent=ours),
        "COPY slices into the global HNSW": Rate(n=n, spent=theirs),
    }


def evictions(server: Server, world: World, stored: Stored) -> dict[str, tuple[Rate, Spent]]:
    """EVICTED of every tenant's slices, deleted tenant by tenant as kolm_app with its token (ours: their drafts go
    with them), then VACUUM. Returns the deletion and the vacuum for each table."""
    rng = np.random.default_rng(6)
    gone = {
        tenant_id: [stored.ids[row] for pair in pairs for row in _sample(pair, rng)]
        for tenant_id, pairs in groupby(world.pairs, key=lambda pair: pair.tenant_id)
    }
    tables = {"eviction of 5 %: ours": "drafts_source", "eviction of 5 %: global HNSW": drafts_shared.TABLE}
    return {name: (_delete(server, table, gone), _vacuum(server, table)) for name, table in tables.items()}


def _sample(pair: Pair, rng: np.random.Generator) -> Iterable[int]:
    return [row for row in range(pair.start, pair.stop) if rng.random() < EVICTED]


def _delete(server: Server, table: str, gone: dict[uuid.UUID, list[uuid.UUID]]) -> Rate:
    with server.app() as session, clock([session.info.backend_pid]) as spent:
        for tenant_id, ids in gone.items():
            with session.transaction():
                session.execute("SELECT set_config('app.tenant', %s, true)", [tenant_token(tenant_id)])
                session.execute(f"DELETE FROM {table} WHERE tenant_id = %s AND id = ANY(%s)", [tenant_id, ids])
    return Rate(n=sum(map(len, gone.values())), spent=spent)


def _vacuum(server: Server, table: str) -> Spent:
    """Ends after VACUUM_LIMIT_S whether it is done or not."""
    with server.superuser() as session, clock([session.info.backend_pid]) as spent:
        session.execute(f"SET statement_timeout = '{VACUUM_LIMIT_S}s'")
        try:
            session.execute(f"VACUUM {table}")
        except QueryCanceled:
            spent.was_stopped = True
    return spent


def bytes_per_row(server: Server, n_rows: int, n_drafts: int) -> dict[str, float]:
    """Bytes on disk of each part, by its own rows."""
    parts = {
        "slice: row (heap)": ("drafts_source", "table", n_rows),
        "slice: covering B-tree": ("source_scope", "index", n_rows),
        "slice: all indexes": ("drafts_source", "indexes", n_rows),
        "draft: row (heap)": ("drafts_draft", "table", n_drafts),
        "draft: all indexes": ("drafts_draft", "indexes", n_drafts),
        "global HNSW: row (heap)": (drafts_shared.TABLE, "table", n_rows),
        "global HNSW: index": (drafts_shared.INDEX, "index", n_rows),
    }
    with server.superuser() as session:
        return {name: _bytes(session, relation, kind) / n for name, (relation, kind, n) in parts.items()}


def _bytes(session: Any, relation: str, kind: str) -> int:
    size = {"table": "pg_table_size", "index": "pg_relation_size", "indexes": "pg_indexes_size"}[kind]
    query = f"SELECT coalesce(sum({size}(relid)), 0) FROM pg_partition_tree(%s)"
    (n,) = session.execute(query, [relation]).fetchone()
    return int(n or session.execute(f"SELECT {size}(%s::regclass)", [relation]).fetchone()[0])
