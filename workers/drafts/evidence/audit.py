"""Audits: accepted drafts asked about again in other words, among candidates that the teacher just wrote for the same
slice. They change no verdict; they measure how many accepted drafts are bad, and above the tenant's bound the family
generates afresh from then on."""

import random
from dataclasses import replace

from backend.compiles.models import Candidate, Slice
from backend.compiles.states import CandidateState
from backend.domain.drafts.judge_controls import audits_of
from backend.domain.drafts.offer_plan import OfferPlan
from backend.domain.drafts.vocabulary import Certificate, Strategy, Verification
from backend.domain.errors import PaymentRequired
from backend.domain.lifecycle import StepName
from backend.drafts.cache import load_drafts
from backend.drafts.calibrations import locked_calibration
from backend.drafts.models import Verdict
from workers.drafts.dialogues import run_dialogue
from workers.drafts.evidence.suspension import suspend_beyond_bound
from workers.drafts.judging import audit_question
from workers.drafts.records import audit_rows, count_audit_controls, verified_by
from workers.step.durable import CompileRun
from workers.step.teacher_session import TeacherSession, seed_of
from workers.teachers.judges.slice_audit import audit_slice
from workers.teachers.protocol import TeacherFailed


def audit_drafts(run: CompileRun, slice_row: Slice, session: TeacherSession, step: StepName) -> None:
    """Audit the slice, if the lot falls on it; safe to run again at any point. An audit that cannot be had (the budget,
    a teacher that refuses) is left out: it decides nothing about this compile."""
    plan = slice_row.offer_plan
    if plan is None or plan.is_audited or not _is_drawn(run, slice_row, plan):
        return
    try:
        verification = _ask_again(run, slice_row, session, step)
    except (PaymentRequired, TeacherFailed) as failed:
        if isinstance(failed, TeacherFailed) and failed.retryable:
            raise
        verification = Verification(verdicts=())
    with run.transaction():
        _save(run, slice_row, plan, verification)


def _is_drawn(run: CompileRun, slice_row: Slice, plan: OfferPlan) -> bool:
    if plan.strategy not in (Strategy.JUDGE, Strategy.GATE) or not slice_row.n_from_drafts:
        return False
    lot = random.Random(f"audit/{run.compile_id}/{slice_row.position}").random()
    return lot < run.spec.draft_cache.audit_share


def _ask_again(run: CompileRun, slice_row: Slice, session: TeacherSession, step: StepName) -> Verification:
    """Ask about one draft that a judge or the gate accepted, one a slice: bad drafts may come together, and a bound on
    their rate counts independent looks."""
    accepted = Candidate.objects.filter(
        tenant_id=run.tenant_id,
        slice=slice_row,
        state=CandidateState.VALID,
        certificate__in=(Certificate.JUDGED, Certificate.GATED),
    ).order_by("text_key")
    with run.transaction():
        ids = list(accepted.values_list("draft_id", flat=True))
        stored = load_drafts(run.tenant_id, run.spec.family, dict.fromkeys(ids, 0.0))
    drafts = [stored[id] for id in ids if id in stored]
    if not drafts:
        return Verification(verdicts=())
    rng = random.Random(seed_of(run, "audit", run.compile_id, slice_row.position))
    question, judged = audit_question(run, slice_row)
    conversation = audit_slice(question, judged, rng.choice(drafts), rng)
    verification, _ = run_dialogue(run, step, session, f"audit:{slice_row.position}", conversation)
    return verification


def _save(run: CompileRun, slice_row: Slice, plan: OfferPlan, verification: Verification) -> None:
    row = locked_calibration(run.tenant_id, *verified_by(plan))
    Verdict.objects.bulk_create(audit_rows(run, plan, verification))
    audits = audits_of(verification.verdicts)
    row.n_audited += audits.n
    row.n_audited_refused += audits.n_refused
    row.n_audited_bad += audits.n_refused_twice
    count_audit_controls(row, verification.controls)
    suspend_beyond_bound(run, row, slice=slice_row.name)
    row.save()
    slice_row.offer_plan = replace(plan, is_audited=True)
    slice_row.save(update_fields=["drafts"])
