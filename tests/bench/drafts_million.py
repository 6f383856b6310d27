"""A million drafts in one family: `python -m tests.bench.drafts_million [--sources 125000]`, about five minutes.

A Postgres of its own with production's settings; rows are sealed and rotated as the product does it and written in
bulk, then the family is admitted to, looked up, indexed, evicted and purged by the product's own functions as kolm_app.
Its slices have a thousand names and twenty labels, so that a name has 125 sources and a label 6,250. A second family of
the same size is purged whole. Prints one line per measurement and ends with an error where a bound is broken.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from deploy.embedded.home import ROOT
from tests.bench.drafts_server import Server, running_server

if TYPE_CHECKING:
    from backend.drafts.cache import SliceNames

D, CHUNK, N_LOOKUPS, N_NEAR = 384, 5_000, 240, 4
N_TOPICS, N_LABELS = 1_000, 20
ADMISSION_S, LOOKUP_S = 1.0, 30.0  # bounds: one slice's admission (median), a whole compile's look-up


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sources", type=int, default=125_000)
    n = parser.parse_args().sources
    with running_server() as server:
        measure(server, n)


def measure(server: Server, n: int) -> None:
    from backend.drafts.eviction import held_bytes, shrink
    from backend.drafts.purging import purge_family
    from backend.tenants.isolation import tenant_scope

    tenant_id, rows = uuid.uuid4(), unit_rows(n)
    with timed(f"writing {n} sources and {8 * n} drafts in bulk"):
        load(server, tenant_id, rows)
    with tenant_scope(tenant_id), timed("sum of the tenant's bytes"):
        held = held_bytes(tenant_id)
    say(f"held: {held / 1e6:.0f} MB")
    wanted = exact(rows)
    look(tenant_id, wanted, f"look-up of {N_LOOKUPS} slices, all of the scope read", 1.0)
    relatives(tenant_id, n, f"look-up of {N_LOOKUPS} slices and of their relatives by name")
    admissions(tenant_id, "admission of 12 candidates")
    with timed("index_large_scopes"):
        command = [sys.executable, "manage.py", "index_large_scopes", "--above", str(n // 2)]
        subprocess.run(command, cwd=ROOT, env=os.environ | {"KOLM_DB_ROLE": "owner"}, check=True)
    look(tenant_id, wanted, f"look-up of {N_LOOKUPS} slices, by the scope's index", 0.0)
    admissions(tenant_id, "admission of 12 candidates, with the index")
    with timed("eviction to 90 % of the budget"):
        say(f"evicted {shrink(tenant_id)} rows")
    with tenant_scope(tenant_id):
        say(f"held: {held_bytes(tenant_id) / 1e6:.0f} MB")
    with timed("purge of what is left"):
        say(f"purged {purge_family(tenant_id, 'bench')}")
    other_id = uuid.uuid4()
    load(server, other_id, rows)
    with timed("purge of a family of this size"):
        purged = purge_family(other_id, "bench")
    say(f"purged {purged}")
    assert (purged.n_sources, purged.n_drafts) == (n, 8 * n)
    say(f"largest memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


def load(server: Server, tenant_id: uuid.UUID, rows: Any) -> None:
    """Each source is sealed for itself; its drafts are copies of the first one's, with ids of their own."""
    from backend.drafts.models import Draft, Scope, Source
    from backend.drafts.vault import make_vault
    from backend.rest.new_ids import new_uuid7
    from backend.tenants.isolation import tenant_scope
    from tests.bench import drafts_rows

    with tenant_scope(tenant_id):
        vault = make_vault(tenant_id, "bench")
        scope = Scope.objects.create(tenant_id=tenant_id, family="bench", teacher="t", embedder="e")
    now, compile_id, topics = datetime.now(UTC), uuid.uuid4(), topics_of(len(rows), seed=0)
    macs: dict[str, tuple[bytes, bytes]] = {}
    for at in range(0, len(rows), CHUNK):
        halves = vault.rotate(rows[at : at + CHUNK]).astype(np.float16)
        made = [drafts_rows.made_source(vault, scope, half, now, compile_id, new_uuid7()) for half in halves]
        for source, topic in zip(made, topics[at : at + CHUNK], strict=True):
            names = names_of(topic)
            source.slice_mac, source.label_mac = macs.setdefault(
                names.name, (vault.mac("slice", names.name), vault.mac("label", names.label))
            )
        drafts_rows.copy_models(server, Source, drafts_rows.packed(made))
    first = drafts_rows.packed(drafts_rows.drafts(vault, made[0]))
    drafts_rows.copy_models(server, Draft, first)
    columns = [field.column for field in Draft._meta.concrete_fields]
    own = {"id": "gen_random_uuid()", "candidate_id": "gen_random_uuid()", "source_id": "s.id"}
    with server.superuser() as session:
        session.execute(
            f"INSERT INTO drafts_draft ({', '.join(columns)})"
            f" SELECT {', '.join(own.get(name, f'd.{name}') for name in columns)}"
            " FROM drafts_draft d, drafts_source s WHERE s.id <> d.source_id"
        )
        session.execute("VACUUM (ANALYZE) drafts_source, drafts_draft")


def look(tenant_id: uuid.UUID, wanted: Any, what: str, least: float) -> None:
    """A whole compile's look-up with its drafts; recall of the nearest sources by their distance."""
    from backend.drafts.cache import nearest_drafts
    from backend.drafts.models import Scope
    from backend.tenants.isolation import tenant_scope

    with tenant_scope(tenant_id):
        scope = Scope.objects.get(tenant_id=tenant_id, family="bench")
        with timed(what) as took:
            found = nearest_drafts(tenant_id, scope, asked(), n_sources=N_NEAR, seed=0)
    hits = [
        sum(source.distance <= farthest + 2e-3 for source in row) for row, farthest in zip(found, wanted, strict=True)
    ]
    recall = sum(hits) / (N_NEAR * N_LOOKUPS)
    short = sum(len(row) < N_NEAR for row in found)
    say(f"recall {recall:.3f}, short results {short}, {took() / N_LOOKUPS * 1e3:.1f} ms per look-up")
    assert recall >= least
    assert short == 0
    assert took() < LOOKUP_S


def relatives(tenant_id: uuid.UUID, n: int, what: str) -> None:
    """The same with the slices' names, as a compile asks: the newest of their name and label come too."""
    from backend.domain.drafts.vocabulary import Kinship
    from backend.drafts.cache import nearest_drafts
    from backend.drafts.models import Scope
    from backend.tenants.isolation import tenant_scope

    topics = topics_of(N_LOOKUPS, seed=7)
    n_there = np.bincount(topics_of(n, seed=0), minlength=N_TOPICS)[topics]
    names = [names_of(topic) for topic in topics]
    with tenant_scope(tenant_id):
        scope = Scope.objects.get(tenant_id=tenant_id, family="bench")
        with timed(what) as took:
            found = nearest_drafts(tenant_id, scope, asked(), n_sources=N_NEAR, seed=0, names=names)
    n_slice = [sum(source.kinship is Kinship.SLICE for source in row) for row in found]
    n_label = [sum(source.kinship is Kinship.LABEL for source in row) for row in found]
    say(f"{sum(n_slice)} of the slice, {sum(n_label)} of its label, {took() / N_LOOKUPS * 1e3:.1f} ms per look-up")
    assert all(np.array(n_slice) >= np.minimum(N_NEAR, n_there))
    assert took() < LOOKUP_S


def admissions(tenant_id: uuid.UUID, what: str) -> None:
    from backend.drafts.cache import DraftScope, SourcePrompt, admit
    from backend.tenants.isolation import tenant_scope
    from tests.bench.drafts_rows import admitted

    took = []
    for i, row in enumerate(unit_rows(40, seed=3)):
        began = time.perf_counter()
        with tenant_scope(tenant_id):
            admit(
                tenant_id,
                uuid.uuid4(),
                [admitted(f"{what} {i} {j}") for j in range(12)],
                scope=DraftScope(family="bench", teacher="t", embedder="e"),
                prompt=SourcePrompt(slice_text=f"slice {i}", messages=(("user", "write"),)),
                slice_vector=row.tolist(),
            )
        took.append(time.perf_counter() - began)
    say(f"{what}: median {statistics.median(took) * 1e3:.1f} ms, largest {max(took) * 1e3:.0f} ms")
    assert statistics.median(took) < ADMISSION_S


def topics_of(n: int, *, seed: int) -> Any:
    """(n,) the numbers of the topics that `unit_rows` of the same seed lie around."""
    return np.random.default_rng(seed).integers(N_TOPICS, size=n)


def names_of(topic: int) -> "SliceNames":
    from backend.drafts.cache import SliceNames

    labels = frozenset(f"label {i}" for i in range(N_LABELS))
    return SliceNames(name=f"topic {topic}", label=f"label {topic % N_LABELS}", labels=labels)


def unit_rows(n: int, *, seed: int = 0) -> Any:
    """(n, D) float32: questions around a thousand topics, so that near is nearer than chance."""
    topics = np.random.default_rng(99).standard_normal((N_TOPICS, D), dtype=np.float32)
    noise = np.random.default_rng([seed, 1]).standard_normal((n, D), dtype=np.float32)
    rows = topics[topics_of(n, seed=seed)] + noise
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def asked() -> Any:
    return unit_rows(N_LOOKUPS, seed=7)


def exact(rows: Any) -> Any:
    """The distance of the N_NEAR-th nearest of each look-up, by a full comparison."""
    return np.partition(1 - asked() @ rows.T, N_NEAR - 1, axis=1)[:, N_NEAR - 1]


@contextmanager
def timed(what: str) -> Iterator[Callable[[], float]]:
    began, ended = time.perf_counter(), 0.0
    yield lambda: ended - began
    ended = time.perf_counter()
    say(f"{what}: {ended - began:.2f} s")


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
