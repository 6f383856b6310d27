"""Looks into the draft cache for slices, in one fetch for all of a compile or of a preview. Writes nothing but the
request that sources of an embedder that was replaced be embedded again."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np

from backend.compiles.models import Outbox, Slice
from backend.domain.spec.parsing import Spec
from backend.drafts.cache import NearSource, nearest_drafts
from backend.drafts.models import Scope
from backend.queue import TaskName
from workers.candidates.slices import slice_names
from workers.drafts.scopes import draft_scope, find_scopes
from workers.embedding.protocol import Embedder
from workers.embedding.sentence import name_of
from workers.step.durable import CompileRun
from workers.step.teacher_profile import identity_of
from workers.step.teacher_session import seed_of

N_SOURCES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupResult:
    """The scope that was looked into, and the near sources for each vector; no scope, no sources."""

    scope: Scope | None
    near: tuple[tuple[NearSource, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftLookup:
    """A look-up for the slices of one compile: the near sources by the slice's id."""

    scope: Scope | None
    near: dict[UUID, tuple[NearSource, ...]]


def look_up(
    tenant_id: UUID, spec: Spec, slices: Sequence[Slice], embedder: str, vectors: Any, *, seed: int
) -> LookupResult:
    """Find the sources that are near or related to these slices, whose unit vectors (n, d) are; inside the tenant's
    scope."""
    identity = identity_of(spec.teacher)
    wanted = draft_scope(identity, family=spec.family, embedder=embedder, temperature=spec.sampling.temperature_inputs)
    scope = find_scopes(tenant_id, wanted, identity)
    if scope is None:
        return LookupResult(scope=None, near=tuple(() for _ in vectors))
    names = [slice_names(spec, slice_row) for slice_row in slices]
    near = nearest_drafts(tenant_id, scope, vectors, n_sources=N_SOURCES, seed=seed, names=names)
    return LookupResult(scope=scope, near=tuple(map(tuple, near)))


def look_up_drafts(run: CompileRun, slices: Sequence[Slice], embedder: Embedder) -> DraftLookup | None:
    """Look for all slices that have not looked yet; None where nothing is to be offered."""
    todo = [row for row in slices if row.drafts is None and not row.is_captured and not row.is_synthesized]
    if not offers_drafts(run.spec) or not todo:
        return None
    vectors = np.stack([np.frombuffer(bytes(row.embedding or b""), dtype=np.float32) for row in todo])
    with run.transaction():
        seed = seed_of(run, "drafts", run.compile_id)
        result = look_up(run.tenant_id, run.spec, todo, embedder.identity, vectors, seed=seed)
        _ask_for_reembedding(run, embedder)
    near = {row.id: sources for row, sources in zip(todo, result.near, strict=True)}
    return DraftLookup(scope=result.scope, near=near)


def offers_drafts(spec: Spec) -> bool:
    return spec.draft_cache.enabled and spec.draft_cache.verify != "off"


def _ask_for_reembedding(run: CompileRun, embedder: Embedder) -> None:
    """Have the drafts that another embedder placed, which this family's compiles do not see, embedded again for the
    next one: a family follows the embedder of its latest compile."""
    old = Scope.objects.filter(tenant_id=run.tenant_id, family=run.spec.family).exclude(
        embedder__in=("", embedder.identity)
    )
    for scope in old:
        Outbox.objects.create(
            task=TaskName.DRAFTS_REEMBED,
            ids={
                "tenant_id": str(run.tenant_id),
                "scope_id": str(scope.id),
                "embedder": name_of(embedder.identity),
            },
        )
