"""Can a tenant tell that ANOTHER tenant has data near a point? The density oracle of the draft bench.

Points are drawn alike and halved by coin: near each point of one half a victim has CLUSTER slices, near the others
nobody has. The attacker stores PLANTED slices of its own near every point, asks for its PLANTED nearest, and watches
how many rows come back and how long that takes. A shared HNSW index meets the victim's rows first. The victim is the
tenant that shares the attacker's hash partition, so that their rows lie in the same files. AUC is the chance that a
point with data is told from one without: 0.5 is chance, and the side that the attacker guesses on is taken as known.
"""

import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from backend.drafts.cache import nearest_drafts
from backend.drafts.models import Draft, Source
from backend.rest.new_ids import new_uuid7
from backend.tenants.isolation import tenant_scope
from tests.bench import drafts_shared
from tests.bench.drafts_rows import Stored, copy_models, copy_rows, drafts, made_source, packed
from tests.bench.drafts_server import Server, clock
from tests.bench.drafts_world import D, Pair, Rows, World, unit

CLUSTER, PLANTED = 48, 8
TRIES = 3  # look-ups of a point; the fastest counts, being the least disturbed
NEAR, OWN = 0.1, 0.2  # cosine distance to the point, of the victim's slices and of the attacker's


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a watcher of one thing gets right: AUC, and its 95 % interval (DeLong et al. 1988)."""

    auc: float
    low: float
    high: float


def auc_of(with_data: Sequence[float], without: Sequence[float]) -> Told:
    """>>> auc_of([3.0, 4.0], [1.0, 2.0]).auc
    1.0
    """
    a, b = np.asarray(with_data, dtype=np.float64), np.asarray(without, dtype=np.float64)
    wins = (a[:, None] > b) + 0.5 * (a[:, None] == b)
    auc = max(float(wins.mean()), 1 - float(wins.mean()))
    error = np.sqrt(wins.mean(axis=1).var(ddof=1) / len(a) + wins.mean(axis=0).var(ddof=1) / len(b))
    return Told(auc=auc, low=max(0.0, auc - 1.96 * float(error)), high=min(1.0, auc + 1.96 * float(error)))


def attack(server: Server, world: World, stored: Stored, *, n_pairs: int, seed: int = 3) -> dict[str, dict[str, Told]]:
    """n_pairs points of each kind. Returns for each design what row counts and look-up times tell."""
    rng = np.random.default_rng(seed)
    attacker, victim = _neighbours(server, world)
    points = unit(rng.standard_normal((2 * n_pairs, D)).astype(np.float32))
    has_data = rng.permutation(np.repeat([True, False], n_pairs))
    victims = np.concatenate([_around(point, NEAR, CLUSTER, rng) for point in points[has_data]])
    planted = np.concatenate([_around(point, OWN, PLANTED, rng) for point in points])
    for pair, vectors in ((victim, victims), (attacker, planted)):
        _store(server, stored, pair, vectors)
    designs = {
        "ours": _ask_ours(stored, attacker),
        "global HNSW": _ask_hnsw(server, stored, attacker, "off"),
        "global HNSW, iterative scan": _ask_hnsw(server, stored, attacker, "relaxed_order"),
    }
    return {name: _watch(ask, attacker, points, has_data) for name, ask in designs.items()}


Ask = Callable[[ExitStack], Callable[[Rows], int]]


def _ask_ours(stored: Stored, pair: Pair) -> Ask:
    def opened(stack: ExitStack) -> Callable[[Rows], int]:
        stack.enter_context(tenant_scope(pair.tenant_id))
        scope = stored.scopes[pair]
        return lambda point: len(nearest_drafts(pair.tenant_id, scope, point[None], n_sources=PLANTED, seed=0)[0])

    return opened


def _ask_hnsw(server: Server, stored: Stored, pair: Pair, iterative: str) -> Ask:
    def opened(stack: ExitStack) -> Callable[[Rows], int]:
        session = stack.enter_context(drafts_shared.tenant_session(server, pair.tenant_id, ef=40, iterative=iterative))
        scope_id = stored.scopes[pair].id
        return lambda point: len(drafts_shared.nearest_by_hnsw(session, pair, scope_id, point, PLANTED))

    return opened


def _watch(ask: Ask, attacker: Pair, points: Rows, has_data: NDArray[np.bool_]) -> dict[str, Told]:
    with ExitStack() as stack:
        look_up = ask(stack)
        for point in points[:20]:
            look_up(-point)  # warms up where nobody has anything
        counts, times = [], []
        for point in points:
            tries = []
            for _ in range(TRIES):
                with clock() as spent:
                    n_found = look_up(point)
                tries.append(spent.wall_s)
            counts.append(float(n_found))
            times.append(min(tries))
    seen = {"rows": np.asarray(counts), "time": np.asarray(times)}
    return {name: auc_of(values[has_data], values[~has_data]) for name, values in seen.items()}


def _neighbours(server: Server, world: World) -> tuple[Pair, Pair]:
    """Two tenants' pairs in one hash partition; the attacker's is of middling size."""
    firsts = [pair for pair in world.pairs if pair.family == "family-0"]
    middling = sorted(firsts, key=lambda pair: abs(pair.size - len(world.rows) // 320))
    with server.superuser() as session:
        part = {pair: _partition(session, pair.tenant_id) for pair in firsts}
    for attacker in middling:
        others = [pair for pair in firsts if part[pair] == part[attacker] and pair is not attacker]
        if others:
            return attacker, others[0]
    raise ValueError("no two tenants share a partition")


def _partition(session: "drafts_shared.psycopg.Connection[object]", tenant_id: uuid.UUID) -> object:
    row = session.execute("SELECT tableoid FROM drafts_source WHERE tenant_id = %s LIMIT 1", [tenant_id]).fetchone()
    assert row is not None
    return row[0]  # type: ignore[index]


def _around(point: Rows, distance: float, n: int, rng: np.random.Generator) -> Rows:
    """n unit rows at about this cosine distance from the point."""
    noise = rng.standard_normal((n, D), dtype=np.float32) / np.sqrt(D)
    return unit(point + np.float32(np.sqrt((1 - distance) ** -2 - 1)) * noise)


def _store(server: Server, stored: Stored, pair: Pair, vectors: Rows) -> None:
    halves, scope, now = stored.vaults[pair].rotate(vectors).astype(np.float16), stored.scopes[pair], datetime.now(UTC)
    made = [made_source(stored.vaults[pair], scope, half, now, uuid.uuid4(), new_uuid7()) for half in halves]
    copy_models(server, Source, packed(made))
    copy_models(server, Draft, packed(drafts(stored.vaults[pair], source)[0] for source in made))
    rows = [
        drafts_shared.packed_row(pair.tenant_id, scope.id, source.id, vector)
        for source, vector in zip(made, vectors, strict=True)
    ]
    copy_rows(server, drafts_shared.TABLE, drafts_shared.COLUMNS, rows)
