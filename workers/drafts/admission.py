"""The drafts that enter a slice: by the teacher's verdicts as candidates, each with its certificate, or unverified to
compete with what the teacher writes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from backend.compiles.models import Candidate, Compile, Slice
from backend.compiles.states import CandidateState, state_when_written
from backend.domain.answers.candidates import Origin, text_key
from backend.domain.drafts.offer_plan import OfferPlan
from backend.domain.drafts.vocabulary import Certificate, DraftVerdict, StoredDraft, Verification
from backend.drafts.cache import load_drafts
from workers.scoring.verifier import check_text, gate_reasons
from workers.step.durable import CompileRun


def with_bounds(
    verification: Verification, shown: Sequence[StoredDraft], missing_ppm: Mapping[UUID, int]
) -> Verification:
    """The verdicts with what they are off by. An exact rule is exact for a draft that was drawn from all the teacher
    wrote. Where some of that was refused or a duplicate, the draft is off by at most that share in total variation, and
    so is what the rule makes of it."""
    source_of = {draft.draft_id: draft.source_id for draft in shown}

    def with_bound(verdict: DraftVerdict) -> DraftVerdict:
        missing = missing_ppm.get(source_of[verdict.draft_id], 0) / 1_000_000
        if verdict.certificate not in (Certificate.EXACT, Certificate.BOUNDED) or not missing:
            return verdict
        bound = min(1.0, missing + (verdict.tv_bound or 0.0))
        return replace(verdict, certificate=Certificate.BOUNDED, tv_bound=bound)

    return replace(verification, verdicts=tuple(map(with_bound, verification.verdicts)))


def add_candidates(
    run: CompileRun,
    compile: Compile,
    slice_row: Slice,
    verification: Verification,
    shown: Sequence[StoredDraft],
    heldout: frozenset[str],
) -> int:
    """Add accepted drafts as candidates, at most N in all; returns how many were added now and are valid."""
    room = slice_row.n_candidates - slice_row.n_from_drafts
    by_id = {draft.draft_id: draft for draft in shown}
    rows: dict[str, Candidate] = {}
    for verdict in verification.verdicts:
        if not verdict.text or verdict.certificate is None or len(rows) >= room:
            continue
        key = text_key(verdict.text)
        reasons = check_text(verdict.text, heldout, key) or gate_reasons(run.spec, verdict.text)
        draft = by_id[verdict.draft_id]
        rows.setdefault(key, _candidate(run, compile, slice_row, verdict, draft, key, list(reasons)))
    known = set(
        Candidate.objects.filter(tenant_id=run.tenant_id, compile=compile, text_key__in=list(rows)).values_list(
            "text_key", flat=True
        )
    )
    new = [row for key, row in rows.items() if key not in known]
    Candidate.objects.bulk_create(new)
    return sum(row.state == CandidateState.VALID for row in new)


def _candidate(
    run: CompileRun,
    compile: Compile,
    slice_row: Slice,
    verdict: DraftVerdict,
    draft: StoredDraft,
    key: str,
    reasons: list[str],
) -> Candidate:
    is_whole = verdict.text == draft.text
    return Candidate(
        tenant_id=run.tenant_id,
        compile=compile,
        slice=slice_row,
        text=verdict.text,
        text_key=key,
        origin=Origin.DRAFT,
        round=slice_row.round,
        state=state_when_written(reasons),
        reasons=reasons,
        logprob=draft.logprob if is_whole else None,
        n_tokens=verdict.n_tokens or draft.n_tokens,
        cost_microusd=verdict.cost_microusd,
        draft_id=draft.draft_id,
        certificate=verdict.certificate or "",
    )


def pool_drafts(
    run: CompileRun, compile: Compile, slice_row: Slice, plan: OfferPlan, heldout: frozenset[str]
) -> OfferPlan:
    """Add the drafts of a plan as candidates that nobody has verified, in the transaction of the plan; returns the plan
    with those that are candidates now."""
    distances = {one.draft_id: one.distance for one in plan.pooled}
    stored = load_drafts(run.tenant_id, run.spec.family, distances)
    rows: dict[str, Candidate] = {}
    for one in plan.pooled:
        draft = stored.get(one.draft_id)
        if draft is None:
            continue
        key = text_key(draft.text)
        if not (check_text(draft.text, heldout, key) or gate_reasons(run.spec, draft.text)):
            rows.setdefault(key, _unverified_row(run, compile, slice_row, draft, key))
    known = Candidate.objects.filter(tenant_id=run.tenant_id, compile=compile, text_key__in=list(rows))
    for key in known.values_list("text_key", flat=True):
        del rows[key]
    Candidate.objects.bulk_create(rows.values())
    there = {row.draft_id for row in rows.values()}
    pooled = tuple(one for one in plan.pooled if one.draft_id in there)
    n_counted = min(plan.n_counted, math.floor(math.fsum(one.predicted for one in pooled) + 1e-9))
    return replace(plan, pooled=pooled, n_pooled=len(pooled), n_counted=n_counted, n_free=int(slice_row.n_from_drafts))


def _unverified_row(run: CompileRun, compile: Compile, slice_row: Slice, draft: StoredDraft, key: str) -> Candidate:
    return Candidate(
        tenant_id=run.tenant_id,
        compile=compile,
        slice=slice_row,
        text=draft.text,
        text_key=key,
        origin=Origin.DRAFT,
        round=slice_row.round,
        state=CandidateState.VALID,
        logprob=draft.logprob,
        n_tokens=draft.n_tokens,
        draft_id=draft.draft_id,
    )
