"""Audits: accepted drafts asked about again, beside candidates that the teacher just wrote for the same slice. They
change no verdict; they measure how many accepted drafts are bad, and above the tenant's bound the family generates
afresh from then on."""

import random
from dataclasses import replace

from backend.compiles.models import Candidate, Slice
from backend.compiles.states import CandidateState
from backend.domain.answers.candidates import Origin
from backend.domain.drafts.judge_controls import audits_of
from backend.domain.drafts.offer_plan import OfferPlan
from backend.domain.drafts.vocabulary import Strategy, Verification
from backend.domain.errors import PaymentRequired
from backend.drafts.cache import load_drafts
from backend.drafts.calibrations import locked_calibration
from backend.drafts.models import Verdict
from workers.candidates.generation import shown_exemplars
from workers.drafts.proposals import verification_context
from workers.drafts.records import audit_rows, count_controls, verified_by
from workers.drafts.suspension import suspend_beyond_bound
from workers.drafts.verification_dialogue import run_dialogue
from workers.step.durable import CompileRun
from workers.step.teacher_session import TeacherSession, seed_of
from workers.teachers.judges.draft_judge import JudgeVerifier
from workers.teachers.protocol import TeacherFailed

MAX_FRESH = 8  # of the slice's fresh candidates, as positive controls


def audit_drafts(run: CompileRun, slice_row: Slice, session: TeacherSession) -> None:
    """Audit the slice, if the lot falls on it; safe to run again at any point. An audit that cannot be had (the budget,
    a teacher that refuses) is left out: it decides nothing about this compile."""
    plan = slice_row.offer_plan
    if plan is None or plan.is_audited or not _is_drawn(run, slice_row, plan):
        return
    try:
        verification = _ask_again(run, slice_row, session, plan)
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


def _ask_again(run: CompileRun, slice_row: Slice, session: TeacherSession, plan: OfferPlan) -> Verification:
    with run.transaction():
        mine = Candidate.objects.filter(tenant_id=run.tenant_id, slice=slice_row, state=CandidateState.VALID).order_by(
            "text_key"
        )
        distances = dict.fromkeys(mine.filter(origin=Origin.DRAFT).values_list("draft_id", flat=True), 0.0)
        accepted = load_drafts(run.tenant_id, run.spec.family, distances)
        fresh = list(mine.filter(origin=Origin.FRESH).values_list("text", flat=True)[:MAX_FRESH])
        far = load_drafts(run.tenant_id, run.spec.family, {one.draft_id: one.distance for one in plan.controls})
    context = verification_context(run.spec, slice_row, shown_exemplars(run, slice_row))
    context = replace(context, far=tuple(far.values()), fresh=tuple(fresh))
    drafts = [accepted[id] for id in distances if id in accepted]
    rng = random.Random(seed_of(run, "audit", run.compile_id, slice_row.position))
    conversation = JudgeVerifier(audit_share=1.0).audit(context, drafts, rng)
    verification, _ = run_dialogue(run, session, f"audit:{slice_row.position}", conversation)
    return verification


def _save(run: CompileRun, slice_row: Slice, plan: OfferPlan, verification: Verification) -> None:
    row = locked_calibration(run.tenant_id, *verified_by(plan))
    Verdict.objects.bulk_create(audit_rows(run, plan, verification))
    audits = audits_of(verification.verdicts)
    row.n_audited += audits.n
    row.n_audited_refused += audits.n_refused
    row.n_audited_bad += audits.n_refused_twice
    count_controls(row, verification.controls)
    suspend_beyond_bound(run, row, slice=slice_row.name)
    row.save()
    slice_row.offer_plan = replace(plan, is_audited=True)
    slice_row.save(update_fields=["drafts"])
