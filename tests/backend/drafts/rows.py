"""Rows of the draft cache: made by its own door, and logs of look-ups with the one field that matters."""

from typing import Any
from uuid import UUID

import numpy as np

from backend.domain.drafts.vocabulary import Arm, Certificate, Strategy, VerdictKind
from backend.drafts.cache import NAMELESS, Admitted, DraftScope, SliceNames, SourcePrompt, admit, find_scope
from backend.drafts.models import Draft, Offer, Outcome, Scope, Verdict
from backend.rest.new_ids import new_uuid7
from backend.tenants.isolation import tenant_scope
from backend.tenants.models import Tenant

SCOPE = DraftScope(family="router", teacher="grammar/kolm-grammar-1@r1", embedder="minilm@sha256:0")


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
    return Admitted(**(fields | changes))


def unit_vector(seed: int, d: int = 384) -> list[float]:
    row = np.random.default_rng(seed).standard_normal(d)
    return [float(x) for x in row / np.linalg.norm(row)]


def make_drafts(
    tenant: Tenant,
    *candidates: Admitted | str,
    scope: DraftScope = SCOPE,
    seed: int = 0,
    slice_text: str = "refund",
    names: SliceNames = NAMELESS,
) -> list[Draft]:
    """The drafts of one source, in the order given."""
    rows = [c if isinstance(c, Admitted) else admitted(c) for c in candidates]
    prompt = SourcePrompt(slice_text=slice_text, messages=(("user", "write"),))
    with tenant_scope(tenant.id):
        admit(tenant.id, new_uuid7(), rows, scope=scope, prompt=prompt, slice_vector=unit_vector(seed), names=names)
        found = {draft.candidate_id: draft for draft in Draft.objects.of_tenant(tenant.id)}
    return [found[row.candidate_id] for row in rows]


def scope_of(tenant: Tenant, scope: DraftScope = SCOPE) -> Scope:
    with tenant_scope(tenant.id):
        found = find_scope(tenant.id, scope)
    assert found is not None
    return found


def make_offer(tenant: Tenant, *, scope_id: UUID | None = None, **changes: Any) -> Offer:
    """A slice whose 4 drafts were shown to a judge."""
    fields: dict[str, Any] = {
        "compile_id": new_uuid7(),
        "slice_position": 0,
        "scope_id": scope_id,
        "family": SCOPE.family,
        "strategy": Strategy.JUDGE,
        "arm": Arm.OFFERED,
        "n_wanted": 4,
        "n_shown": 4,
    }
    with tenant_scope(tenant.id):
        return Offer.objects.create(tenant_id=tenant.id, **(fields | changes))


def make_outcome(tenant: Tenant, arm: Arm, **changes: Any) -> Outcome:
    fields: dict[str, Any] = {
        "compile_id": new_uuid7(),
        "slice_position": 0,
        "family": SCOPE.family,
        "arm": arm,
        "n_candidates": 10,
        "n_from_drafts": 0,
        "n_picked": 3,
        "n_picked_from_drafts": 0,
        "mean_score": 0.5,
        "cost_microusd": 100,
    }
    with tenant_scope(tenant.id):
        return Outcome.objects.create(tenant_id=tenant.id, **(fields | changes))


def make_verdict(draft: Draft, **changes: Any) -> Verdict:
    """A judge accepted it."""
    fields: dict[str, Any] = {
        "offer_id": new_uuid7(),
        "compile_id": new_uuid7(),
        "scope_id": draft.scope_id,
        "source_id": draft.source_id,
        "draft_id": draft.id,
        "strategy": Strategy.JUDGE,
        "kind": VerdictKind.VERDICT,
        "certificate": Certificate.JUDGED,
        "distance": 0.125,
        "predicted": 0.75,
        "propensity": 1.0,
        "is_accepted": True,
        "n_tokens": 4,
        "n_tokens_kept": 4,
        "cost_microusd": 3,
        "price_version": "v",
    }
    with tenant_scope(draft.tenant_id):
        return Verdict.objects.create(tenant_id=draft.tenant_id, **(fields | changes))
