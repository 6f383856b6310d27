"""Look-ups of the draft bench: every design in turn, over pairs of every size, against the exact answer."""

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
from django.db import connection
from numpy.typing import NDArray

from backend.drafts.cache import nearest_drafts
from backend.drafts.nearest import nearest_sources
from backend.tenants.isolation import tenant_scope
from tests.bench.drafts_rows import COMPILE, Stored, backend_pid
from tests.bench.drafts_server import Server, clock
from tests.bench.drafts_shared import GptCacheDesign, nearest_by_hnsw, tenant_session, uses_hnsw
from tests.bench.drafts_world import Pair, Rows, World, unit

K = 32
FEW = 4  # sources that a compile asks for
TIE = 1e-5  # of a cosine: float32 and float16 cannot tell such neighbours apart, and either is right

FAISS_BATCH = 24  # from 20 on FAISS takes BLAS

Found = list[list[UUID]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """`ask` answers (m, D) vectors, as embedded, for a pair; `batch` of them at a time. `is_rotated`: judged against
    the vectors as stored, else as embedded. `prepare` opens what a transaction needs and gives the backends' pids."""

    name: str
    ask: Callable[[Pair, Rows], Found]
    batch: int = 1
    calls: int = 1  # of a batch, in one repeat
    k: int = K
    n_queries: int = 32  # of a class in one repeat, shared among its pairs, where they are asked one by one
    prepare: Callable[[ExitStack, Pair], list[int]] = lambda stack, pair: []


@dataclass(slots=True, kw_only=True)
class Measured:
    """Wall milliseconds of look-ups (a batch gives its mean), means per repeat, and what was found."""

    wall_ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)
    repeat_ms: list[float] = field(default_factory=list)
    n_right: int = 0
    n_due: int = 0
    n_short: int = 0
    n_lookups: int = 0


def ours(stored: Stored, batch: int) -> list[Design]:
    """The product's path, in a transaction of kolm_app with the tenant's signed token, `batch` slices a compile."""

    def session(stack: ExitStack, pair: Pair) -> list[int]:
        stack.enter_context(tenant_scope(pair.tenant_id))
        return [backend_pid()]

    def vectors_only(pair: Pair, vectors: Rows) -> Found:
        near = nearest_sources(pair.tenant_id, stored.scopes[pair].id, stored.vaults[pair].rotate(vectors), K)
        return [[source_id for source_id, _ in row] for row in near]

    def whole(n_sources: int) -> Callable[[Pair, Rows], Found]:
        def ask(pair: Pair, vectors: Rows) -> Found:
            near = nearest_drafts(pair.tenant_id, stored.scopes[pair], vectors, n_sources=n_sources, seed=0)
            return [[source.source_id for source in row if source.drafts] for row in near]

        return ask

    return [
        Design(name=OURS, ask=vectors_only, batch=batch, calls=3, prepare=session),
        Design(name=OURS_DRAFTS, ask=whole(FEW), batch=batch, calls=2, k=FEW, prepare=session),
        Design(name="ours, slice by slice", ask=vectors_only, n_queries=16, prepare=session),
    ]


OURS = "**ours: a whole compile**"
OURS_DRAFTS = f"**ours, with drafts: {FEW} sources**"
FLOOR = "numpy, exact, in memory, a whole compile"


def floor(stored: Stored, batch: int) -> list[Design]:
    """The rows of the pair already in memory, as float32: what any exact way costs at least."""
    kept: dict[Pair, Rows] = {}

    def ask(pair: Pair, vectors: Rows) -> Found:
        similarity = stored.vaults[pair].rotate(vectors) @ kept[pair].T
        return [[stored.ids[pair.start + i] for i in top(row, K)] for row in similarity]

    def load(stack: ExitStack, pair: Pair) -> list[int]:
        if pair not in kept:
            kept[pair] = as_stored(stored, pair)
        stored.vaults[pair].rotate(np.zeros((1, kept[pair].shape[1]), dtype=np.float32))  # makes the rotation
        return []

    return [
        Design(name=FLOOR, ask=ask, batch=batch, calls=3, prepare=load),
        Design(name="numpy, one by one", ask=ask, prepare=load),
    ]


def hnsw(server: Server, stored: Stored, name: str, *, ef: int, iterative: str) -> Design:
    current: list[Any] = []

    def session(stack: ExitStack, pair: Pair) -> list[int]:
        opened = stack.enter_context(tenant_session(server, pair.tenant_id, ef=ef, iterative=iterative))
        assert uses_hnsw(opened, pair, stored.scopes[pair].id), "the planner went another way"
        current[:] = [opened]
        return [opened.info.backend_pid]

    def ask(pair: Pair, vectors: Rows) -> Found:
        return [nearest_by_hnsw(current[0], pair, stored.scopes[pair].id, vector, K) for vector in vectors]

    return Design(name=name, ask=ask, prepare=session)


def gptcache(design: GptCacheDesign, stored: Stored, name: str, *, n_fetched: int, batch: int = 1) -> Design:
    return Design(
        name=name,
        ask=lambda pair, vectors: design.nearest(stored.scopes[pair].id, vectors, K, n_fetched),
        batch=batch,
        n_queries=16,
    )


def all_designs(server: Server, world: World, stored: Stored, file: Path, batch: int = COMPILE) -> list[Design]:
    peer = GptCacheDesign(world, stored, file)
    return [
        *ours(stored, batch),
        *floor(stored, batch),
        hnsw(server, stored, "global HNSW, ef 40", ef=40, iterative="off"),
        hnsw(server, stored, "global HNSW, ef 400", ef=400, iterative="off"),
        hnsw(server, stored, "global HNSW, iterative scan", ef=40, iterative="relaxed_order"),
        gptcache(peer, stored, f"GPTCache's design, top {K}", n_fetched=K),
        gptcache(peer, stored, "GPTCache's design, top 1,000", n_fetched=1_000),
        gptcache(peer, stored, f"GPTCache's design, top {K}, {FAISS_BATCH} at once", n_fetched=K, batch=FAISS_BATCH),
    ]


def measure(
    world: World, stored: Stored, designs: Iterable[Design], pairs: tuple[Pair, ...], repeats: int
) -> dict[str, Measured]:
    """The designs in turn, `repeats` times over, so that what disturbs the machine disturbs them alike. One look-up
    (or batch) of each pair before the clock starts."""
    out = {design.name: Measured() for design in designs}
    for repeat in range(repeats):
        for design in designs:
            measured = out[design.name]
            walls: list[float] = []
            cpu_s = 0.0
            for pair in pairs:
                n = design.batch * design.calls if design.batch > 1 else -(-design.n_queries // len(pairs))
                queries = world.near(pair, n, np.random.default_rng([repeat, pair.start]))
                with ExitStack() as stack:
                    backends = design.prepare(stack, pair)
                    design.ask(pair, queries[:1])
                    found: Found = []
                    for start in range(0, n, design.batch):
                        asked = queries[start : start + design.batch]
                        with clock(backends) as spent:
                            found += design.ask(pair, asked)
                        walls.append(spent.wall_s * 1e3 / len(asked))
                        cpu_s += spent.cpu_s
                _judge(stored, pair, design.k, queries, found, measured)
            measured.wall_ms += walls
            measured.repeat_ms.append(float(np.mean(walls)))
            measured.cpu_ms.append(cpu_s * 1e3 / (len(walls) * design.batch))
    return out


def _judge(stored: Stored, pair: Pair, k: int, queries: Rows, found: Found, measured: Measured) -> None:
    """Counts what is among the k nearest: as near as the k-th, to within TIE of a cosine."""
    similarity = stored.vaults[pair].rotate(queries) @ as_stored(stored, pair).T
    due = min(k, pair.size)
    least = np.partition(similarity, pair.size - due, axis=1)[:, pair.size - due] - TIE
    for at, ids in enumerate(found):
        rows = {stored.row_of[source_id] - pair.start for source_id in ids}
        assert all(0 <= row < pair.size for row in rows), "a row of another pair was found"
        measured.n_right += sum(bool(similarity[at, row] >= least[at]) for row in rows)
        measured.n_short += len(rows) < due
    measured.n_due += due * len(found)
    measured.n_lookups += len(found)


def as_stored(stored: Stored, pair: Pair) -> Rows:
    return unit(stored.halves[pair.start : pair.stop].astype(np.float32))


def top(similarity: NDArray[np.float32], n: int) -> list[int]:
    n = min(n, len(similarity))
    part = np.argpartition(similarity, len(similarity) - n)[len(similarity) - n :]
    return [int(i) for i in part[np.argsort(-similarity[part], kind="stable")]]


def plan_of(stored: Stored, pair: Pair) -> str:
    """How the planner reads the vectors of a pair, e.g. "Index Only Scan using ..."."""
    query = "EXPLAIN SELECT id, embedding FROM drafts_source WHERE tenant_id = %s AND scope_id = %s"
    with tenant_scope(pair.tenant_id), connection.cursor() as cursor:
        cursor.execute(query, [pair.tenant_id, stored.scopes[pair].id])
        (line, *_) = (line for (line,) in cursor.fetchall() if "Scan" in line)
    return str(line).strip(" ->")
