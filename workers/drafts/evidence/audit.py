"""Audits: accepted drafts asked about again in other words, among candidates that the teacher just wrote for the same
slice. They change no verdict; they measure how many accepted drafts are bad, and above the tenant's bound the family
generates afresh from then on, or the teacher judges where another model did."""

import random
from dataclasses import dataclass, replace

from backend.compiles.models import Candidate, Slice
from backend.compiles.states import CandidateState
from backend.domain.drafts.delegate_bounds import audit_share
from backend.domain.drafts.judge_controls import audits_of
from backend.domain.drafts.offer_plan import OfferPlan
from backend.domain.drafts.vocabulary import CERTIFIES, Certificate, StoredDraft, Strategy, Verification
from backend.domain.errors import PaymentRequired
from backend.domain.lifecycle import StepName
from backend.drafts.cache import load_drafts
from backend.drafts.models import Verdict
from workers.drafts.delegates import locked_row, standing_of
from workers.drafts.dialogues import run_dialogue
from workers.drafts.evidence.suspension import suspend_beyond_bound
from workers.drafts.judging import audit_question
from workers.drafts.records import audit_rows, count_audit_controls, verified_by
from workers.step.durable import CompileRun
from workers.step.teacher_session import TeacherSession, seed_of
from workers.teachers.judges.slice_audit import audit_slice
from workers.teachers.protocol import TeacherFailed

OF_CERTIFICATE = {certificate: strategy for strategy, certificate in CERTIFIES.items()} | {
    Certificate.GATED: Strategy.GATE
}


def audit_drafts(run: CompileRun, slice_row: Slice, session: TeacherSession, step: StepName) -> None:
    """Audit the slice, if the lot falls on it; safe to run again at any point. The teacher is asked, whoever accepted
    the draft. An audit that cannot be had (the budget, a teacher that refuses) is left out: it decides nothing about
    this compile."""
    plan = slice_row.offer_plan
    if plan is None or plan.is_audited or not _is_drawn(run, slice_row, plan):
        return
    drawn = _draw(run, slice_row)
    verification = Verification(verdicts=())
    try:
        if drawn is not None:
            verification = _ask_again(run, slice_row, session, step, drawn)
    except (PaymentRequired, TeacherFailed) as failed:
        if isinstance(failed, TeacherFailed) and failed.retryable:
            raise
    with run.transaction():
        _save(run, slice_row, plan, None if drawn is None else drawn.strategy, verification)


def _is_drawn(run: CompileRun, slice_row: Slice, plan: OfferPlan) -> bool:
    if plan.strategy not in OF_CERTIFICATE.values() or not slice_row.n_from_drafts:
        return False
    share = run.spec.draft_cache.audit_share
    if plan.strategy is Strategy.DELEGATE:
        with run.transaction():
            standing = standing_of(run.tenant_id, run.spec, verified_by(plan)[0])
        share = share if standing is None else audit_share(standing.row.n_audited, share)
    lot = random.Random(f"audit/{run.compile_id}/{slice_row.position}").random()
    return lot < share


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drawn:
    """A draft to ask about again, and the strategy that accepted it."""

    draft: StoredDraft
    strategy: Strategy
    rng: random.Random


def _draw(run: CompileRun, slice_row: Slice) -> _Drawn | None:
    """Draw one draft that a judge or the gate accepted, one a slice: bad drafts may come together, and a bound on their
    rate counts independent looks."""
    accepted = Candidate.objects.filter(
        tenant_id=run.tenant_id, slice=slice_row, state=CandidateState.VALID, certificate__in=OF_CERTIFICATE
    ).order_by("text_key")
    with run.transaction():
        certificates = dict(accepted.values_list("draft_id", "certificate"))
        stored = load_drafts(run.tenant_id, run.spec.family, dict.fromkeys(certificates, 0.0))
    drafts = [stored[id] for id in certificates if id in stored]
    if not drafts:
        return None
    rng = random.Random(seed_of(run, "audit", run.compile_id, slice_row.position))
    draft = rng.choice(drafts)
    return _Drawn(draft=draft, strategy=OF_CERTIFICATE[Certificate(certificates[draft.draft_id])], rng=rng)


def _ask_again(
    run: CompileRun, slice_row: Slice, session: TeacherSession, step: StepName, drawn: _Drawn
) -> Verification:
    question, judged = audit_question(run, slice_row)
    conversation = audit_slice(question, judged, drawn.draft, drawn.rng)
    verification, _ = run_dialogue(run, step, session, f"audit:{slice_row.position}", conversation)
    return verification


def _save(
    run: CompileRun, slice_row: Slice, plan: OfferPlan, strategy: Strategy | None, verification: Verification
) -> None:
    if strategy is not None:
        row = locked_row(run, verified_by(plan)[0], strategy)
        Verdict.objects.bulk_create(audit_rows(run, replace(plan, strategy=strategy), verification))
        audits = audits_of(verification.verdicts)
        row.n_audited += audits.n
        row.n_audited_refused += audits.n_refused
        row.n_audited_bad += audits.n_refused_twice
        count_audit_controls(row, verification.controls)
        suspend_beyond_bound(run, row, slice=slice_row.name)
        row.save()
    slice_row.offer_plan = replace(plan, is_audited=True)
    slice_row.save(update_fields=["drafts"])
