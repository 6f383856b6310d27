"""Looks into the draft cache for slices, in one fetch for all of a compile or of a preview. Writes nothing but the
request that sources of an embedder that was replaced be embedded again."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np

from backend.blobs import get_jsonl
from backend.compiles.models import Outbox, Slice
from backend.domain.drafts.prefilter import LEAST_GOLD, is_off_label
from backend.domain.drafts.vocabulary import Kinship, StoredDraft
from backend.domain.planning.step_outputs import SlicingOut
from backend.domain.spec.parsing import LabelOutput, Spec, label_names
from backend.drafts.cache import NearSource, nearest_drafts
from backend.drafts.models import Scope
from backend.queue import TaskName
from workers.candidates.slices import slice_names
from workers.drafts.delegates import standing_of
from workers.drafts.proposals import can_judge
from workers.drafts.scopes import draft_scope, find_scopes
from workers.embedding.protocol import Embedder
from workers.embedding.sentence import name_of
from workers.step.durable import CompileRun
from workers.step.teacher_profile import identity_of
from workers.step.teacher_session import seed_of

N_SOURCES = 4
MOST_FILTERED = 2  # drafts of a slice that are looked at, times N: as many as may compete


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupResult:
    """The scope that was looked into, and the near sources for each vector; no scope, no sources."""

    scope: Scope | None
    near: tuple[tuple[NearSource, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftLookup:
    """A look-up for the slices of one compile: the near sources by the slice's id, and those of their drafts that look
    like another label's. `filled` are all slices that the teacher fills."""

    scope: Scope | None
    near: dict[UUID, tuple[NearSource, ...]]
    filled: tuple[Slice, ...]
    off_label: dict[UUID, frozenset[UUID]]


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
        _warn_of_judge(run, result.scope)
    gold = get_jsonl(run.tenant_id, run.output(SlicingOut).gold_train)
    off_label = drafts_off_label(run.spec, todo, result.near, gold, embedder)
    return DraftLookup(
        scope=result.scope,
        near={row.id: sources for row, sources in zip(todo, result.near, strict=True)},
        filled=tuple(row for row in slices if not row.is_captured),
        off_label={row.id: ids for row, ids in zip(todo, off_label, strict=True)},
    )


def drafts_off_label(
    spec: Spec,
    slices: Sequence[Slice],
    near: Sequence[Sequence[NearSource]],
    gold: Sequence[Mapping[str, str]],
    embedder: Embedder,
) -> list[frozenset[UUID]]:
    """The drafts of each slice that lie nearer to the gold of another label than its own gold does, among the first
    that may compete. Of relatives none: the teacher wrote them for this label. A filter that costs nothing: no call,
    and the vectors are not billed. None where the slice has no label, or no label has enough gold."""
    if not can_judge(spec) or not isinstance(spec.output, LabelOutput):
        return [frozenset() for _ in slices]
    names = label_names(spec)
    counts = Counter(row["output"] for row in gold)
    if len(counts) < 2 or max(counts.values()) < LEAST_GOLD:
        return [frozenset() for _ in slices]
    first = [
        _first_drafts(sources, MOST_FILTERED * int(row.n_candidates)) for row, sources in zip(slices, near, strict=True)
    ]
    texts = list({draft.text: None for drafts in first for draft in drafts})
    if not texts:
        return [frozenset() for _ in slices]
    rows = embedder.embed([*texts, *(row["input"] for row in gold)])
    place = {text: at for at, text in enumerate(texts)}
    labels = [names.index(row["output"]) if row["output"] in names else -1 for row in gold]
    off_label = []
    for slice_row, drafts in zip(slices, first, strict=True):
        own = names.index(slice_row.label) if slice_row.label in names else -1
        vectors = rows[[place[draft.text] for draft in drafts]]
        off = is_off_label(vectors, [own] * len(drafts), rows[len(texts) :], labels)
        off_label.append(frozenset(draft.draft_id for draft, is_off in zip(drafts, off, strict=True) if is_off))
    return off_label


def _first_drafts(sources: Sequence[NearSource], most: int) -> list[StoredDraft]:
    """Return those of the first that come from no relative."""
    drafts = [draft for source in sources for draft in source.drafts if not draft.is_kept]
    return [draft for draft in drafts[:most] if draft.kinship is Kinship.OTHER]


def offers_drafts(spec: Spec) -> bool:
    return spec.draft_cache.enabled and spec.draft_cache.verify != "off"


def _warn_of_judge(run: CompileRun, scope: Scope | None) -> None:
    """Say why the spec's own judge is not asked, where it is not."""
    standing = None if scope is None or not can_judge(run.spec) else standing_of(run.tenant_id, run.spec, scope.id)
    if standing is not None and standing.refusal:
        run.warn("draft_judge_not_used", standing.refusal)


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
