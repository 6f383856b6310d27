"""Drafts for tests, as admissions leave them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import numpy as np
from django.db import connection

from backend.domain.drafts.vocabulary import StoredDraft, Strategy, VerdictKind
from backend.drafts.cache import Admitted, DraftScope, SourcePrompt, admit, find_scope, nearest_drafts
from backend.drafts.models import LabelDraft, Scope, Verdict
from backend.drafts.vault import make_vault
from backend.rest.new_ids import new_uuid7
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant

TEACHER = "grammar/kolm-grammar-1@r1|top_p=1|temperature=1.00"
SCOPE = DraftScope(family="router", teacher=TEACHER, embedder="minilm@sha256:0")
D = 384


def of_family(family: str) -> DraftScope:
    return replace(SCOPE, family=family)


def axis(n: int, d: int = D) -> list[float]:
    """A unit vector; two different ones are at distance 1."""
    return [float(i == n) for i in range(d)]


def unit_rows(n: int, d: int = D, *, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    rows = np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def admitted(text: str, **changes: Any) -> Admitted:
    fields: dict[str, Any] = {
        "candidate_id": new_uuid7(),
        "text": text,
        "score": 0.25,
        "signal": "logprob",
        "logprob": -3.5,
        "n_tokens": 4,
        "cost_microusd": 2,
        "is_kept": False,
    }
    return Admitted(**fields | changes)


def store(
    tenant: Tenant,
    candidates: Sequence[Admitted | str],
    *,
    scope: DraftScope = SCOPE,
    vector: Sequence[float] | None = None,
    slice_text: str = "refund",
    compile_id: UUID | None = None,
) -> UUID | None:
    """One slice's admission, committed; the source's id."""
    with tenant_scope(tenant.id):
        return admit(
            tenant.id,
            compile_id or new_uuid7(),
            [admitted(c) if isinstance(c, str) else c for c in candidates],
            scope=scope,
            prompt=SourcePrompt(slice_text=slice_text, messages=(("system", "write"), ("user", slice_text))),
            slice_vector=axis(0) if vector is None else vector,
        )


def store_label(tenant: Tenant, prompt: str, answers: Sequence[str], *, family: str = SCOPE.family) -> UUID:
    with tenant_scope(tenant.id):
        vault = make_vault(tenant.id, family)
        scope, _ = Scope.objects.get_or_create(tenant_id=tenant.id, family=family, teacher="t|labels", embedder="")
        row = LabelDraft.objects.create(
            tenant_id=tenant.id,
            scope=scope,
            compile_id=new_uuid7(),
            prompt_mac=vault.mac(prompt),
            answers_sealed=vault.seal_json(list(answers)),
            n=len(answers),
            input_tokens=10,
            output_tokens=2 * len(answers),
            expires_at="2100-01-01T00:00Z",
        )
        return row.id


def expire(tenant: Tenant, *, days: int = 1, **which: UUID) -> None:
    """Let the time of rows run out: `expire(tenant, drafts_source=id)`; without names all of the tenant's."""
    tables = which or dict.fromkeys(("drafts_source", "drafts_draft", "drafts_labeldraft"))
    with tenant_scope(tenant.id), connection.cursor() as cursor:
        for table, id in tables.items():
            cursor.execute(
                f"UPDATE {table} SET expires_at = now() - make_interval(days => %(days)s)"
                " WHERE tenant_id = %(tenant)s AND (%(id)s::uuid IS NULL OR id = %(id)s)",
                {"tenant": tenant.id, "id": id, "days": days},
            )


def n_rows(tenant: Tenant, table: str) -> int:
    with tenant_scope(tenant.id), connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM {table} WHERE tenant_id = %s", [tenant.id])
        return int(cursor.fetchone()[0])


def near_one(tenant: Tenant, scope: DraftScope) -> StoredDraft:
    """The draft that a look-up on axis 0 finds first."""
    with tenant_scope(tenant.id):
        row = find_scope(tenant.id, scope)
        assert row is not None
        (found,) = nearest_drafts(tenant.id, row, [axis(0)], n_sources=1, seed=0)
        return found[0].drafts[0]


def write_verdict(tenant: Tenant, draft: StoredDraft, **changes: Any) -> Verdict:
    fields: dict[str, Any] = {
        "offer_id": new_uuid7(),
        "compile_id": new_uuid7(),
        "scope_id": new_uuid7(),
        "strategy": Strategy.JUDGE,
        "kind": VerdictKind.VERDICT,
        "distance": draft.distance,
        "predicted": 0.5,
        "propensity": 1.0,
        "is_accepted": False,
        "n_tokens": draft.n_tokens,
        "n_tokens_kept": 0,
        "cost_microusd": 1,
        "price_version": "v",
    }
    with tenant_scope(tenant.id):
        return Verdict.objects.create(
            tenant_id=tenant.id, source_id=draft.source_id, draft_id=draft.draft_id, **fields | changes
        )
