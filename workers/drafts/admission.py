"""What of the teacher's verdicts enters the slice's pool: accepted drafts as candidates, each with its certificate."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from backend.compiles.models import Candidate, Compile, Slice
from backend.compiles.states import CandidateState, state_when_written
from backend.domain.answers.candidates import Origin, text_key
from backend.domain.drafts.vocabulary import Certificate, DraftVerdict, StoredDraft, VerdictKind, Verification
from workers.durable import CompileRun
from workers.scoring.verifier import check_text, gate_reasons


def with_bounds(told: Verification, shown: Sequence[StoredDraft], missing_ppm: Mapping[str, int]) -> Verification:
    """An exact rule is exact for a draft that was drawn from all the teacher wrote. Where some of that was refused or a
    duplicate, the draft is off by at most that share in total variation, and so is what the rule makes of it."""
    source_of = {draft.draft_id: str(draft.source_id) for draft in shown}

    def bounded(verdict: DraftVerdict) -> DraftVerdict:
        missing = missing_ppm.get(source_of[verdict.draft_id], 0) / 1_000_000
        if verdict.certificate not in (Certificate.EXACT, Certificate.BOUNDED) or not missing:
            return verdict
        bound = min(1.0, missing + (verdict.tv_bound or 0.0))
        return replace(verdict, certificate=Certificate.BOUNDED, tv_bound=bound)

    return replace(told, verdicts=tuple(map(bounded, told.verdicts)))


def enter(
    run: CompileRun,
    compile: Compile,
    pool: Slice,
    told: Verification,
    shown: Sequence[StoredDraft],
    heldout: frozenset[str],
) -> int:
    """Accepted drafts as candidates, at most N in all; returns how many entered now and are valid."""
    room = pool.n_candidates - pool.n_from_drafts
    by_id = {draft.draft_id: draft for draft in shown}
    rows: dict[str, Candidate] = {}
    for verdict in told.verdicts:
        if not verdict.text or verdict.certificate is None or len(rows) >= room:
            continue
        key = text_key(verdict.text)
        reasons = check_text(verdict.text, heldout, key) or gate_reasons(run.spec, verdict.text)
        rows.setdefault(key, _candidate(run, compile, pool, verdict, by_id[verdict.draft_id], key, list(reasons)))
    known = set(
        Candidate.objects.filter(tenant_id=run.tenant_id, compile=compile, text_key__in=list(rows)).values_list(
            "text_key", flat=True
        )
    )
    entering = [row for key, row in rows.items() if key not in known]
    Candidate.objects.bulk_create(entering)
    return sum(row.state == CandidateState.VALID for row in entering)


def _candidate(
    run: CompileRun,
    compile: Compile,
    pool: Slice,
    verdict: DraftVerdict,
    draft: StoredDraft,
    key: str,
    reasons: list[str],
) -> Candidate:
    is_whole = verdict.text == draft.text
    return Candidate(
        tenant_id=run.tenant_id,
        compile=compile,
        slice=pool,
        text=verdict.text,
        text_key=key,
        origin=Origin.DRAFT,
        round=pool.round,
        state=state_when_written(reasons),
        reasons=reasons,
        logprob=draft.logprob if is_whole else None,
        n_tokens=verdict.n_tokens or draft.n_tokens,
        cost_microusd=verdict.cost_microusd,
        draft_id=draft.draft_id,
        certificate=verdict.certificate or "",
    )


def with_told(plan: dict[str, Any], told: Verification, entered: int) -> dict[str, Any]:
    """The slice's record with what was said added to it: counts, no text."""
    kept = dict(plan.get("kept_tokens", {}))
    for verdict in told.verdicts:
        if verdict.certificate is not None and verdict.kept_tokens:
            kept[verdict.certificate] = kept.get(verdict.certificate, 0) + verdict.kept_tokens
    return plan | {
        "n_shown": plan["n_shown"] + len(told.verdicts),
        "n_accepted": plan["n_accepted"] + sum(verdict.is_accepted for verdict in told.verdicts),
        "n_entered": plan.get("n_entered", 0) + entered,
        "n_void": plan.get("n_void", 0) + sum(verdict.kind == VerdictKind.VOID for verdict in told.verdicts),
        "kept_tokens": kept,
    }
