"""Loads the draft bench's rows: sealed and rotated by the product's vault, written with binary COPY.

COPY into a table with row-level security is refused to whom it binds, so rows come in as the superuser; keys and scopes
are made by the product, as kolm_app. Slices arrive in compiles of up to 240, those of all tenants mixed.
"""

import struct
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import groupby
from typing import Any

import numpy as np
from django.db import connection, models
from numpy.typing import NDArray
from pgvector.django import HalfVectorField

from backend.drafts.cache import Admitted, DraftScope, _draft
from backend.drafts.models import Draft, Scope, Source
from backend.drafts.vault import Vault, make_vault
from backend.rest.new_ids import new_uuid7
from backend.tenants.isolation import tenant_scope
from tests.bench.drafts_server import Rate, Server, Spent, clock
from tests.bench.drafts_world import Pair, World

TEACHER, EMBEDDER = "bench/teacher@1 t=1", "all-MiniLM-L6-v2@bench"
COMPILE = 240
DRAFTS_PER_SOURCE = 8
TEXT_BYTES = 190
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What lies in the tables. `halves`: (n, D) float16 as stored, rotated; `ids`: the sources' ids in the rows'
    order; `row_of` finds a row by its id; `compiles` are (start, stop) rows in the order of arrival."""

    scopes: dict[Pair, Scope]
    vaults: dict[Pair, Vault]
    halves: NDArray[np.float16]
    ids: list[uuid.UUID]
    row_of: dict[uuid.UUID, int]


def scope_of(pair: Pair) -> DraftScope:
    return DraftScope(family=pair.family, teacher=TEACHER, embedder=EMBEDDER)


def seal_world(world: World) -> Stored:
    """Keys, scopes, ids and the vectors as stored; ids rise in the order of arrival."""
    scopes, vaults = {}, {}
    halves = np.empty(world.rows.shape, dtype=np.float16)
    for tenant_id, pairs in groupby(world.pairs, key=lambda pair: pair.tenant_id):
        with tenant_scope(tenant_id):
            for pair in pairs:
                vaults[pair] = make_vault(tenant_id, pair.family)
                scopes[pair] = Scope.objects.create(
                    tenant_id=tenant_id, family=pair.family, teacher=TEACHER, embedder=EMBEDDER
                )
                halves[pair.start : pair.stop] = vaults[pair].rotate(world.rows[pair.start : pair.stop])
    ids: list[uuid.UUID] = [uuid.UUID(int=0)] * len(world.rows)
    for _, start, stop in arrivals(world.pairs):
        ids[start:stop] = [new_uuid7() for _ in range(start, stop)]
    row_of = {source_id: row for row, source_id in enumerate(ids)}
    return Stored(scopes=scopes, vaults=vaults, halves=halves, ids=ids, row_of=row_of)


def arrivals(pairs: Sequence[Pair]) -> list[tuple[Pair, int, int]]:
    """(pair, start, stop) of every compile, in a seeded order that mixes the tenants."""
    compiles = [(p, at, min(at + COMPILE, p.stop)) for p in pairs for at in range(p.start, p.stop, COMPILE)]
    return [compiles[i] for i in np.random.default_rng(2).permutation(len(compiles))]


def sources(world: World, stored: Stored) -> Iterator[Source]:
    now = datetime.now(UTC)
    for pair, start, stop in arrivals(world.pairs):
        compile_id = new_uuid7()
        for row in range(start, stop):
            yield made_source(
                stored.vaults[pair], stored.scopes[pair], stored.halves[row], now, compile_id, stored.ids[row]
            )


def made_source(
    vault: Vault, scope: Scope, half: NDArray[np.float16], now: datetime, compile_id: uuid.UUID, source_id: uuid.UUID
) -> Source:
    text = f"slice {source_id} ".ljust(TEXT_BYTES, "x")
    messages = [("system", "Answer as the task asks."), ("user", text)]
    return Source(
        tenant_id=vault.tenant_id,
        id=source_id,
        scope_id=scope.id,
        compile_id=compile_id,
        prompt_mac=vault.mac(text),
        prompt_sealed=vault.seal_json({"slice_text": text, "messages": messages}),
        embedding=half,
        created_at=now,
        expires_at=now + timedelta(days=90),
    )


def drafts(vault: Vault, source: Source) -> list[Draft]:
    """DRAFTS_PER_SOURCE drafts of TEXT_BYTES each, as `admit` makes them, without log-probs (a closed teacher)."""
    made = [_draft(vault, source, admitted(f"{source.id} {i}")) for i in range(DRAFTS_PER_SOURCE)]
    for row in made:
        row.created_at = source.created_at
    return made


def admitted(name: str) -> Admitted:
    return Admitted(
        candidate_id=uuid.uuid4(),
        text=f"draft {name} ".ljust(TEXT_BYTES, "y"),
        score=0.5,
        signal="judge",
        logprob=None,
        n_tokens=48,
        cost_microusd=240,
        is_kept=False,
    )


def packed(rows: Iterable[models.Model]) -> list[bytes]:
    """Rows in PostgreSQL's binary COPY format, the columns of `_columns`."""
    return [_packed([_bytes(field, getattr(row, field.attname)) for field in _columns(type(row))]) for row in rows]


@cache
def _columns(model: type[models.Model]) -> list[Any]:
    """All but those that the database computes."""
    return [field for field in model._meta.concrete_fields if not field.generated]


def _packed(values: Sequence[bytes | None]) -> bytes:
    parts = [len(values).to_bytes(2, "big")]
    for value in values:
        parts.append(b"\xff\xff\xff\xff" if value is None else len(value).to_bytes(4, "big") + value)
    return b"".join(parts)


_FORMATS = {"IntegerField": ">i", "BigIntegerField": ">q", "SmallIntegerField": ">h", "FloatField": ">d"}


def _bytes(field: Any, value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(field, HalfVectorField):
        return half_bytes(value)
    kind = field.get_internal_type()
    if kind in _FORMATS:
        return struct.pack(_FORMATS[kind], value)
    if kind == "DateTimeField":
        return ((value - _EPOCH) // timedelta(microseconds=1)).to_bytes(8, "big", signed=True)
    if kind == "BooleanField":
        return bytes([value])
    return value.encode() if isinstance(value, str) else bytes(value)


def half_bytes(half: NDArray[np.float16]) -> bytes:
    return len(half).to_bytes(2, "big") + b"\x00\x00" + half.astype(">f2").tobytes()


def copy_rows(server: Server, table: str, columns: Sequence[str], rows: Sequence[bytes]) -> Spent:
    """Writes packed rows in one transaction; what that took, the server's CPU and ours."""
    into = f"COPY {table} ({', '.join(columns)}) FROM STDIN (FORMAT BINARY)"
    with (
        server.superuser() as session,
        clock([session.info.backend_pid]) as spent,
        session.cursor() as cursor,
        cursor.copy(into) as copy,
    ):
        copy.write(b"PGCOPY\n\xff\r\n\x00" + bytes(8))
        for start in range(0, len(rows), 500):
            copy.write(b"".join(rows[start : start + 500]))
        copy.write(b"\xff\xff")
    return spent


def copy_models(server: Server, model: type[models.Model], rows: Sequence[bytes]) -> Spent:
    return copy_rows(server, model._meta.db_table, [field.column for field in _columns(model)], rows)


def load(server: Server, world: World, stored: Stored, with_drafts: Sequence[Pair]) -> dict[str, Rate]:
    """All slices, and the drafts of the pairs that will be asked."""
    rows = packed(sources(world, stored))
    slices = Rate(n=len(rows), spent=copy_models(server, Source, rows))
    del rows
    n, spent = 0, Spent()
    for pair in with_drafts:
        now = datetime.now(UTC)
        made = [
            made_source(
                stored.vaults[pair], stored.scopes[pair], stored.halves[row], now, uuid.uuid4(), stored.ids[row]
            )
            for row in range(pair.start, pair.stop)
        ]
        rows = packed(draft for source in made for draft in drafts(stored.vaults[pair], source))
        took = copy_models(server, Draft, rows)
        n, spent = n + len(rows), Spent(wall_s=spent.wall_s + took.wall_s, cpu_s=spent.cpu_s + took.cpu_s)
    with server.superuser() as session:
        session.execute("VACUUM (ANALYZE) drafts_source")
        session.execute("VACUUM (ANALYZE) drafts_draft")
    return {"COPY slices": slices, "COPY drafts": Rate(n=n, spent=spent)}


def backend_pid() -> int:
    """Of Django's session."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])
