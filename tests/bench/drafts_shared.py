"""The designs that keep all tenants' vectors in one index, for the draft bench: pgvector's HNSW under row-level
security, and GPTCache's (FAISS flat beside SQLite, filtered afterwards). Vectors are as embedded, not rotated: a shared
index needs one space.
"""

import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import psycopg

from backend.tenants.isolation import rls_policy_sql, tenant_token
from tests.bench.drafts_rows import Stored, arrivals, copy_rows, half_bytes
from tests.bench.drafts_server import Rate, Server, Spent, clock
from tests.bench.drafts_world import D, Pair, Rows, World
from tests.bench.selection_speed import PEERS

TABLE, INDEX = "bench_shared", "bench_shared_hnsw"
COLUMNS = ("tenant_id", "scope_id", "id", "embedding")
BUILD_MEMORY = "2GB"  # the graph fits: the build would be several times slower otherwise
NEAREST = f"SELECT id FROM {TABLE} WHERE tenant_id = %s AND scope_id = %s ORDER BY embedding <=> %s::halfvec LIMIT %s"


def load(server: Server, world: World, stored: Stored) -> tuple[Rate, Spent]:
    """The world's slices. Returns what COPY did before there was an index, and what building the index took."""
    rows = [
        packed_row(pair.tenant_id, stored.scopes[pair].id, stored.ids[row], world.rows[row])
        for pair, start, stop in arrivals(world.pairs)
        for row in range(start, stop)
    ]
    copied, built = _make_table(server, rows)
    return Rate(n=len(rows), spent=copied), built


def _make_table(server: Server, rows: Sequence[bytes]) -> tuple[Spent, Spent]:
    """The same slices in a table with one HNSW index (m 16, ef_construction 64: pgvector's defaults) and the product's
    policy."""
    with server.superuser() as session:
        session.execute(
            f"CREATE TABLE {TABLE} (tenant_id uuid NOT NULL, scope_id uuid NOT NULL, id uuid PRIMARY KEY,"
            f" embedding halfvec({D}) NOT NULL)"
        )
        copied = copy_rows(server, TABLE, COLUMNS, rows)
        session.execute(f"SET maintenance_work_mem = '{BUILD_MEMORY}'")
        with clock([session.info.backend_pid]) as built:
            session.execute(f"CREATE INDEX {INDEX} ON {TABLE} USING hnsw (embedding halfvec_cosine_ops)")
        session.execute(rls_policy_sql(TABLE)[0])
        session.execute(f"ANALYZE {TABLE}")
    return copied, built


def packed_row(tenant_id: UUID, scope_id: UUID, row_id: UUID, vector: Rows) -> bytes:
    values = (tenant_id.bytes, scope_id.bytes, row_id.bytes, half_bytes(vector.astype(np.float16)))
    return b"\x00\x04" + b"".join(len(value).to_bytes(4, "big") + value for value in values)


@contextmanager
def tenant_session(server: Server, tenant_id: UUID, *, ef: int, iterative: str) -> Iterator["psycopg.Connection[Any]"]:
    """A transaction of kolm_app for one tenant in which the planner must take the HNSW index."""
    with server.app() as session, session.transaction():
        for name, value in (
            ("app.tenant", tenant_token(tenant_id)),
            ("hnsw.ef_search", str(ef)),
            ("hnsw.iterative_scan", iterative),
            ("enable_seqscan", "off"),
            ("enable_sort", "off"),
            ("plan_cache_mode", "force_custom_plan"),
        ):
            session.execute("SELECT set_config(%s, %s, true)", [name, value])
        yield session


def nearest_by_hnsw(session: "psycopg.Connection[Any]", pair: Pair, scope_id: UUID, vector: Rows, k: int) -> list[UUID]:
    """One look-up, one round trip, prepared."""
    literal = "[" + ",".join(f"{x:.5g}" for x in vector.tolist()) + "]"
    found = session.execute(NEAREST, [pair.tenant_id, scope_id, literal, k], prepare=True).fetchall()
    return [row[0] for row in found]


def uses_hnsw(session: "psycopg.Connection[Any]", pair: Pair, scope_id: UUID) -> bool:
    literal = "[" + ",".join(["1"] * D) + "]"
    plan = session.execute(f"EXPLAIN {NEAREST}", [pair.tenant_id, scope_id, literal, 32]).fetchall()
    return any(INDEX in line[0] for line in plan)


class GptCacheDesign:
    """GPTCache 0.1.44 as it stores and searches: `IDMap,Flat` with squared L2 distances in FAISS, rows in SQLite, and
    a result of another tenant dropped after the search. Its own SQLite schema reads answers without an index; here a
    row is found by its primary key."""

    def __init__(self, world: World, stored: Stored, file: Path) -> None:
        sys.path.append(str(PEERS))  # last, so that no peer's numpy hides ours
        import faiss

        self._index = faiss.index_factory(D, "IDMap,Flat", faiss.METRIC_L2)
        self._index.add_with_ids(world.rows, np.arange(len(world.rows)))
        self._ids = stored.ids
        self._rows = sqlite3.connect(file)
        self._rows.execute("CREATE TABLE question (id INTEGER PRIMARY KEY, scope BLOB NOT NULL)")
        self._rows.executemany(
            "INSERT INTO question VALUES (?, ?)",
            ((row, stored.scopes[pair].id.bytes) for pair in world.pairs for row in range(pair.start, pair.stop)),
        )
        self._rows.commit()

    def nearest(self, scope_id: UUID, vectors: Rows, k: int, n_fetched: int) -> list[list[UUID]]:
        """The first k of the n_fetched nearest that are the scope's, for each of the (m, D) vectors."""
        _, found = self._index.search(vectors, n_fetched)
        return [self._own(scope_id, [int(row) for row in rows])[:k] for rows in found]

    def _own(self, scope_id: UUID, rows: list[int]) -> list[UUID]:
        marks = ",".join("?" * len(rows))
        query = f"SELECT id FROM question WHERE id IN ({marks}) AND scope = ?"
        own = {row for (row,) in self._rows.execute(query, [*rows, scope_id.bytes])}
        return [self._ids[row] for row in rows if row in own]
