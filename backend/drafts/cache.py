"""The draft cache's two doors: what a selection leaves goes in (`admit`), what is near a new slice comes out
(`nearest_drafts`). Both inside the tenant's scope; both see one scope (family, teacher, embedder) and nothing else."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import numpy as np
from django.conf import settings
from django.db.models import Exists, OuterRef
from django.utils import timezone

from backend.domain.drafts.vocabulary import DraftState, Kinship, StoredDraft
from backend.drafts.models import ROW_BYTES, Draft, Scope, Source
from backend.drafts.nearest import nearest_sources
from backend.drafts.relatives import SOURCE_FIELDS, SliceMacs, newest_relatives
from backend.drafts.vault import Vault, as_float16, from_float16, make_vault, open_vault
from backend.rest.new_ids import new_uuid7


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftScope:
    """The values that must be equal for a draft to be seen at all. `teacher` is identity, revision and sampling
    policy."""

    family: str
    teacher: str
    embedder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """A candidate that passed every deterministic check. `is_kept`: its own selection picked it. `tokens` and
    `token_logprobs` have one entry a token (the log-probs processed: of the distribution that was sampled)."""

    candidate_id: UUID
    text: str
    score: float | None
    signal: str
    logprob: float | None
    n_tokens: int
    cost_microusd: int
    is_kept: bool
    tokens: tuple[str, ...] | None = None
    token_logprobs: tuple[float, ...] | None = None
    root_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePrompt:
    """The prompt of a source, sealed: `slice_text` is what its vector is of, `messages` what the teacher was sent
    (needed for the one-token repair under the old prompt)."""

    slice_text: str
    messages: tuple[tuple[str, str], ...]  # (role, content)


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceNames:
    """The names of a slice: its own, its label's ("" for none), and those of all labels of its spec."""

    name: str
    label: str = ""
    labels: frozenset[str] = frozenset()


NAMELESS = SliceNames(name="")


@dataclass(frozen=True, slots=True, kw_only=True)
class NearSource:
    """A source of drafts for a slice, with its live ones in an order that says nothing of their text or score.
    `price_version` is that of their costs."""

    source_id: UUID
    distance: float
    kinship: Kinship
    price_version: str
    n_shown: int
    n_accepted: int
    missing_ppm: int
    prompt_mac: bytes
    drafts: tuple[StoredDraft, ...]


def admit(
    tenant_id: UUID,
    compile_id: UUID,
    candidates: Sequence[Admitted],
    *,
    scope: DraftScope,
    prompt: SourcePrompt,
    slice_vector: Sequence[float],
    names: SliceNames = NAMELESS,
    missing_ppm: int = 0,
    price_version: str = "",
) -> UUID | None:
    """Keep one slice's candidates in the transaction of its picks; each is kept once, however often this runs. Returns
    the source's id, None where there was nothing to keep."""
    if not candidates:
        return None
    vault = make_vault(tenant_id, scope.family)
    expires_at = timezone.now() + timedelta(days=settings.KOLM_DRAFT_TTL_DAYS)
    row = scope_row(tenant_id, scope)
    (vector,) = vault.rotate(np.asarray([slice_vector], dtype=np.float32))
    source = Source(
        id=new_uuid7(),
        tenant_id=tenant_id,
        scope=row,
        compile_id=compile_id,
        prompt_mac=_mac_of(vault, prompt),
        slice_mac=_slice_mac(vault, names.name),
        label_mac=_label_mac(vault, names.label),
        prompt_sealed=vault.seal_json({"slice_text": prompt.slice_text, "messages": prompt.messages}),
        embedding=vector.tolist(),
        missing_ppm=missing_ppm,
        price_version=price_version,
        expires_at=expires_at,
    )
    known = set(
        Draft.objects.filter(tenant_id=tenant_id, candidate_id__in=[c.candidate_id for c in candidates]).values_list(
            "candidate_id", flat=True
        )
    )
    rows = [_draft(vault, source, c) for c in candidates if c.candidate_id not in known]
    if not rows:
        return None
    source.save(force_insert=True)
    Draft.objects.bulk_create(rows, ignore_conflicts=True, batch_size=500)
    return source.id


def scope_row(tenant_id: UUID, scope: DraftScope) -> Scope:
    fields = {"family": scope.family, "teacher": scope.teacher, "embedder": scope.embedder}
    Scope.objects.bulk_create([Scope(tenant_id=tenant_id, **fields)], ignore_conflicts=True)
    return Scope.objects.get(tenant_id=tenant_id, **fields)


def _draft(vault: Vault, source: Source, candidate: Admitted) -> Draft:
    sealed = vault.seal(candidate.text)
    tokens = None if candidate.tokens is None else vault.seal_json(candidate.tokens)
    logprobs = None if candidate.token_logprobs is None else as_float16(candidate.token_logprobs)
    return Draft(
        tenant_id=source.tenant_id,
        source=source,
        scope_id=source.scope_id,
        compile_id=source.compile_id,
        candidate_id=candidate.candidate_id,
        text_sealed=sealed,
        text_mac=vault.mac(candidate.text),
        tokens_sealed=tokens,
        token_logprobs=logprobs,
        logprob=candidate.logprob,
        n_tokens=candidate.n_tokens,
        n_bytes=len(sealed) + len(tokens or b"") + len(logprobs or b"") + ROW_BYTES,
        score=candidate.score,
        signal=candidate.signal,
        is_kept=candidate.is_kept,
        root_id=candidate.root_id,
        depth=int(candidate.root_id is not None),
        cost_microusd=candidate.cost_microusd,
        expires_at=source.expires_at,
    )


FAR = 0.4  # cosine distance; nearer slices of one task may overlap, and a fair draft among the controls voids a batch


def find_scope(tenant_id: UUID, scope: DraftScope) -> Scope | None:
    return Scope.objects.filter(
        tenant_id=tenant_id, family=scope.family, teacher=scope.teacher, embedder=scope.embedder
    ).first()


def nearest_drafts(
    tenant_id: UUID, scope: Scope, vectors: Any, *, n_sources: int, seed: int, names: Sequence[SliceNames] = ()
) -> list[list[NearSource]]:
    """Return for each of the (m, d) slice vectors the `n_sources` nearest sources that have live drafts, and the newest
    of its relatives by `names`: those of the same slice first, then of the same label, the nearest first. One look for
    all of a compile's slices."""
    vault = open_vault(tenant_id, scope.family)
    if vault is None:
        return [[] for _ in vectors]
    turned = vault.rotate(np.asarray(vectors, dtype=np.float32))
    macs = [_macs(vault, each) for each in names or [NAMELESS] * len(turned)]
    named = newest_relatives(tenant_id, scope, macs, n_sources)
    chosen = [
        _with_relatives(row, mac, near, of_slice)
        for row, mac, near, of_slice in zip(
            turned, macs, _nearest_live(tenant_id, scope, turned, n_sources), named, strict=True
        )
    ]
    drafts = {  # opened once, however many slices they are near
        id: [_stored_draft(vault, row, 0.0) for row in rows]
        for id, rows in _drafts_of(scope, {source.id for row in chosen for source, *_ in row}, seed).items()
    }
    return [[_near(drafts.get(source.id, []), *rest, source=source) for source, *rest in row] for row in chosen]


def _with_relatives(
    row: Any, macs: SliceMacs, near: Sequence[tuple[Source, float]], relatives: Sequence[Source]
) -> list[tuple[Source, float, Kinship]]:
    """The near sources and the newest relatives, closest first: one whose hint was rewritten may lie far away."""
    by_id = {source.id: (source, distance) for source, distance in near}
    for source in relatives:
        stored = np.asarray(source.embedding, dtype=np.float32)
        distance = max(0.0, 1.0 - float(row @ stored / np.linalg.norm(stored)))
        by_id.setdefault(source.id, (source, distance))
    ranked = [(source, distance, macs.kinship(source)) for source, distance in by_id.values()]
    return sorted(ranked, key=lambda each: (_KINSHIPS.index(each[2]), each[1], each[0].id))


_KINSHIPS = tuple(Kinship)  # closest first


def _macs(vault: Vault, names: SliceNames) -> SliceMacs:
    return SliceMacs(
        name=_slice_mac(vault, names.name),
        label=_label_mac(vault, names.label),
        labels=frozenset(_label_mac(vault, label) for label in names.labels),
    )


def _slice_mac(vault: Vault, name: str) -> bytes | None:
    return vault.mac("slice", name) if name else None


def _label_mac(vault: Vault, label: str) -> bytes | None:
    return vault.mac("label", label) if label else None


def _nearest_live(tenant_id: UUID, scope: Scope, turned: Any, n_sources: int) -> list[list[tuple[Source, float]]]:
    """(source, distance) of those with live drafts. Where too many of the nearest have none left, it looks at more."""
    n_looked = n_sources + SPARE
    while True:
        near = nearest_sources(tenant_id, scope.id, turned, n_looked)
        sources = _with_live_drafts(tenant_id, {id for row in near for id, _ in row[:n_sources]})
        short = [row for row in near if any(id not in sources for id, _ in row[:n_sources])]
        sources |= _with_live_drafts(tenant_id, {id for row in short for id, _ in row[n_sources:]})
        chosen = [[(sources[id], distance) for id, distance in row if id in sources][:n_sources] for row in near]
        is_all = all(len(few) == n_sources or len(row) < n_looked for few, row in zip(chosen, near, strict=True))
        if is_all:
            return chosen
        n_looked *= 4


SPARE = 16  # more than are asked for, in the place of sources whose drafts are all quarantined or expired


def _with_live_drafts(tenant_id: UUID, source_ids: set[UUID]) -> dict[UUID, Source]:
    rows = Source.objects.filter(_has_live_drafts(tenant_id), tenant_id=tenant_id, id__in=source_ids)
    return {row.id: row for row in rows.only(*SOURCE_FIELDS)}


def _has_live_drafts(tenant_id: UUID) -> Exists:
    return Exists(Draft.objects.filter(tenant_id=tenant_id, source_id=OuterRef("id"), **_live()))


def _live() -> dict[str, Any]:
    return {"state": DraftState.LIVE, "expires_at__gt": timezone.now()}


def _near(drafts: Sequence[StoredDraft], distance: float, kinship: Kinship, *, source: Source) -> NearSource:
    return NearSource(
        source_id=source.id,
        distance=distance,
        kinship=kinship,
        price_version=source.price_version,
        n_shown=source.n_shown,
        n_accepted=source.n_accepted,
        missing_ppm=source.missing_ppm,
        prompt_mac=bytes(source.prompt_mac),
        drafts=tuple(replace(draft, distance=distance, kinship=kinship) for draft in drafts),
    )


def _drafts_of(scope: Scope, source_ids: set[UUID], seed: int) -> dict[UUID, list[Draft]]:
    """The live drafts of each source, shuffled: choosing by text, score or the fact of rejection would bias the rules
    that need a sample of the teacher's distribution. Of this scope alone, and not because a query said so: neither the
    database nor the family's key holds a family's teachers and embedders apart."""
    rows = Draft.objects.filter(
        tenant_id=scope.tenant_id, scope_id=scope.id, source_id__in=source_ids, **_live()
    ).order_by("id")
    drafts: dict[UUID, list[Draft]] = {}
    for row in rows.only(*_OPENED):  # times and counts take longer to parse than the rest
        if row.scope_id == scope.id:
            drafts.setdefault(row.source_id, []).append(row)
    for source_id in sorted(drafts):
        random.Random(f"{seed}/{source_id}").shuffle(drafts[source_id])
    return drafts


_OPENED = (
    "id",
    "source_id",
    "scope_id",
    "text_sealed",
    "n_tokens",
    "logprob",
    "cost_microusd",
    "is_kept",
    "tokens_sealed",
    "token_logprobs",
)


def _stored_draft(vault: Vault, row: Draft, distance: float) -> StoredDraft:
    return StoredDraft(
        draft_id=row.id,
        source_id=row.source_id,
        text=vault.unseal(bytes(row.text_sealed)),
        n_tokens=row.n_tokens,
        distance=distance,
        logprob=row.logprob,
        is_kept=row.is_kept,
        cost_microusd=row.cost_microusd,
        tokens=None if row.tokens_sealed is None else tuple(vault.unseal_json(bytes(row.tokens_sealed))),
        token_logprobs=None if row.token_logprobs is None else from_float16(bytes(row.token_logprobs)),
    )


def far_drafts(tenant_id: UUID, scope: Scope, vector: Any, *, near: set[UUID], n: int, seed: int) -> list[StoredDraft]:
    """Drafts that were surely written for something else: of the farthest of a hundred other sources, none nearer than
    `FAR`. A judge that accepts one has not read it."""
    vault = open_vault(tenant_id, scope.family)
    if vault is None:
        return []
    others = Source.objects.filter(tenant_id=tenant_id, scope_id=scope.id).exclude(id__in=near).order_by("-id")[:100]
    rows = [(row.id, np.asarray(row.embedding, dtype=np.float32)) for row in others]
    (turned,) = vault.rotate(np.asarray([vector], dtype=np.float32))
    distances = {id: 1.0 - float(turned @ stored / np.linalg.norm(stored)) for id, stored in rows}
    far = sorted((id for id in distances if distances[id] >= FAR), key=lambda id: (-distances[id], id))[:n]
    drafts = _drafts_of(scope, set(far), seed)
    return [_stored_draft(vault, drafts[id][0], distances[id]) for id in far if drafts.get(id)]


def load_drafts(tenant_id: UUID, family: str, distances: Mapping[UUID, float]) -> dict[UUID, StoredDraft]:
    """Drafts by id, as they were by_id before; what was deleted since is not among them."""
    vault = open_vault(tenant_id, family)
    if vault is None:
        return {}
    rows = Draft.objects.filter(tenant_id=tenant_id, id__in=distances)
    return {row.id: _stored_draft(vault, row, distances[row.id]) for row in rows}


def prompt_mac(tenant_id: UUID, family: str, prompt: SourcePrompt) -> bytes | None:
    """Return the `prompt_mac` of a source of this very prompt; None for a family without drafts. A prompt that nobody
    remembers word for word (no messages) is no other's."""
    vault = open_vault(tenant_id, family)
    return None if vault is None or not prompt.messages else _mac_of(vault, prompt)


def _mac_of(vault: Vault, prompt: SourcePrompt) -> bytes:
    return vault.mac(prompt.slice_text, *(part for message in prompt.messages for part in message))


def prompts_of(tenant_id: UUID, family: str, source_ids: Sequence[UUID]) -> dict[UUID, SourcePrompt]:
    """Return what the teacher was sent when these sources' drafts were written."""
    vault = open_vault(tenant_id, family)
    if vault is None:
        return {}
    rows = Source.objects.filter(tenant_id=tenant_id, id__in=source_ids).only("id", "prompt_sealed")
    return {row.id: _prompt(vault.unseal_json(bytes(row.prompt_sealed))) for row in rows}


def _prompt(value: Any) -> SourcePrompt:
    return SourcePrompt(
        slice_text=value["slice_text"], messages=tuple((role, content) for role, content in value["messages"])
    )
