"""Drafts as proposals: they go along with the requests for fresh candidates, and the engine that serves the teacher
verifies them while it writes. Nothing is asked besides, and the answer is the teacher's own whatever was proposed."""

import hashlib
from dataclasses import replace

from backend.compiles.models import Slice
from backend.drafts.cache import load_drafts
from workers.step.durable import CompileRun
from workers.step.teacher_profile import caps_of
from workers.teachers.protocol import CompletionRequest


def with_proposals(run: CompileRun, slice_row: Slice, request: CompletionRequest) -> CompletionRequest:
    """The request with the slice's drafts as proposals, and a salt that keeps the engine's prefix cache to this tenant;
    as it was for a teacher that takes none."""
    if not caps_of(run.spec.teacher).engine_drafts:
        return request
    plan = slice_row.offer_plan
    proposed = () if plan is None else plan.proposed
    with run.transaction():
        stored = load_drafts(run.tenant_id, run.spec.family, {one.draft_id: one.distance for one in proposed})
    texts = tuple(stored[one.draft_id].text for one in proposed if one.draft_id in stored)
    return replace(request, drafts=texts, cache_salt=cache_salt_of(run))


def cache_salt_of(run: CompileRun) -> str | None:
    """The salt that keeps an engine's prefix cache to the tenant; None for a teacher that takes none."""
    if not caps_of(run.spec.teacher).engine_drafts:
        return None
    return hashlib.sha256(b"kolm/cache_salt/" + run.tenant_id.bytes).hexdigest()[:32]
