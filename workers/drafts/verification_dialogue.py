"""The dialogue with the teacher about a slice's drafts before anything is written, under an exact rule or the gate."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from backend.compiles.models import Slice
from backend.domain.drafts.calibration import SourceCount
from backend.domain.drafts.offer_plan import OfferPlan
from backend.domain.drafts.vocabulary import StoredDraft, Strategy, Verification
from backend.domain.errors import PaymentRequired
from backend.domain.lifecycle import StepName
from backend.drafts.cache import load_drafts
from backend.drafts.calibrations import calibration, source_counts
from backend.drafts.models import Verdict
from workers.candidates.generation import shown_exemplars
from workers.drafts.admission import with_bounds
from workers.drafts.dialogues import run_dialogue
from workers.drafts.fresh_costs import fresh_cost, verification_context, with_old_prompts
from workers.drafts.gate_verification import gate_verifier
from workers.drafts.proposals import decide_by, verifiers_of
from workers.drafts.records import verified_by
from workers.step.durable import CompileRun
from workers.step.teacher_session import TeacherSession, seed_of
from workers.teachers.protocol import TeacherFailed
from workers.teachers.verifiers.protocol import DraftVerifier, VerificationContext


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asking:
    """The values that one slice's questions have in common."""

    run: CompileRun
    slice_row: Slice
    session: TeacherSession
    plan: OfferPlan
    verifier: DraftVerifier
    context: VerificationContext


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedDrafts:
    """The verdicts and the drafts they are about; `refusal` says why there are none where the teacher could not be
    asked."""

    verification: Verification
    shown: Sequence[StoredDraft] = ()
    refusal: str = ""


def verify_drafts(run: CompileRun, slice_row: Slice, session: TeacherSession, plan: OfferPlan) -> VerifiedDrafts:
    """Get the teacher's verdicts on the planned drafts. Where it cannot be asked, the compile does without them."""
    try:
        verification, shown = _verify(run, slice_row, session, plan)
    except PaymentRequired:
        return VerifiedDrafts(verification=_nothing_verified(), refusal="the budget has no room for the question")
    except TeacherFailed as failed:
        if failed.retryable:
            raise
        return VerifiedDrafts(verification=_nothing_verified(), refusal="the teacher refused the question")
    return VerifiedDrafts(verification=with_bounds(verification, shown, plan.missing_ppm), shown=shown)


def _verify(
    run: CompileRun, slice_row: Slice, session: TeacherSession, plan: OfferPlan
) -> tuple[Verification, list[StoredDraft]]:
    """Ask about the planned drafts; after an adaptive probe, about the rest only where it still pays."""
    context, drafts = _load(run, slice_row, plan)
    dialogue = _Asking(
        run=run,
        slice_row=slice_row,
        session=session,
        plan=plan,
        verifier=_verifier(run, slice_row, context, plan),
        context=context,
    )
    here = {draft.draft_id for draft in drafts}
    n_first = sum(one.draft_id in here for one in plan.shown[: plan.n_first])
    if not n_first:
        return _ask(dialogue, drafts, stage=0), drafts
    probe, rest = drafts[:n_first], drafts[n_first:]
    first = _ask(dialogue, probe, stage=0)
    more = _still_worth(dialogue, probe, rest, first)
    if not more:
        return first, probe
    later = _ask(dialogue, more, stage=1)
    return _join(first, later), [*probe, *more]


def _load(run: CompileRun, slice_row: Slice, plan: OfferPlan) -> tuple[VerificationContext, list[StoredDraft]]:
    """The slice and its drafts as planned; a draft that was deleted since is not asked about."""
    distances = {one.draft_id: one.distance for one in plan.shown}
    context = verification_context(run.spec, slice_row, shown_exemplars(run, slice_row))
    with run.transaction():
        stored = load_drafts(run.tenant_id, run.spec.family, distances)
        sources = [draft.source_id for draft in stored.values()]
        context = with_old_prompts(run.tenant_id, run.spec, context, sources)
    return context, [stored[one.draft_id] for one in plan.shown if one.draft_id in stored]


def _verifier(run: CompileRun, slice_row: Slice, context: VerificationContext, plan: OfferPlan) -> DraftVerifier:
    if plan.strategy is Strategy.GATE:
        return gate_verifier(run, slice_row, plan.gate_threshold)
    able = verifiers_of(run.spec, context.policy)
    return next(verifier for verifier in able if verifier.strategy == plan.strategy)


def _ask(dialogue: _Asking, drafts: Sequence[StoredDraft], *, stage: int) -> Verification:
    """Verify these drafts, unless the teacher turns out to be another than the one that wrote them."""
    if not drafts:
        return _nothing_verified()
    run, slice_row, plan = dialogue.run, dialogue.slice_row, dialogue.plan
    rng = random.Random(seed_of(run, "verification", run.compile_id, slice_row.position, stage))
    conversation = dialogue.verifier.verify(dialogue.context, drafts, rng)
    verification, revisions = run_dialogue(
        run, StepName.SYNTHESIS, dialogue.session, f"drafts:{slice_row.position}:{stage}", conversation
    )
    if plan.revision and not run.spec.teacher.revision and revisions - {plan.revision}:
        with run.transaction():
            run.warn(
                "teacher_revision_changed",
                "The teacher is another revision than the one that wrote the drafts: their verdicts count for nothing.",
                slice=slice_row.name,
            )
        return Verification(verdicts=(), cost=verification.cost, audit_cost=verification.audit_cost, is_void=True)
    return verification


def _still_worth(
    dialogue: _Asking, probe: Sequence[StoredDraft], rest: Sequence[StoredDraft], first: Verification
) -> list[StoredDraft]:
    """The drafts that the probe's verdicts leave worth showing of the rest."""
    if not rest or first.is_void:
        return []
    run, slice_row = dialogue.run, dialogue.slice_row
    scope_id, strategy = verified_by(dialogue.plan)
    with run.transaction():
        row = calibration(run.tenant_id, scope_id, strategy)
    decision = decide_by(
        dialogue.verifier,
        dialogue.context,
        rest,
        row,
        dialogue.session.price,
        fresh=fresh_cost(dialogue.context, dialogue.session.price, drafts=rest),
        n_wanted=slice_row.n_candidates - sum(bool(verdict.text) for verdict in first.verdicts),
        rng=random.Random(f"{run.compile_id}/{slice_row.position}/rest"),
        probe=probe,
        counts=_counts_of(first, probe),
    )
    return [rest[i] for i in decision.shown]


def _counts_of(verification: Verification, drafts: Sequence[StoredDraft]) -> dict[UUID, SourceCount]:
    """Count what was shown and accepted by source, as `source_counts` of the rows that these verdicts will be."""
    by_id = {draft.draft_id: draft for draft in drafts}
    return source_counts(
        [
            Verdict(
                kind=verdict.kind,
                source_id=by_id[verdict.draft_id].source_id,
                distance=by_id[verdict.draft_id].distance,
                is_accepted=verdict.is_accepted,
            )
            for verdict in verification.verdicts
        ]
    )


def _join(first: Verification, later: Verification) -> Verification:
    return Verification(
        verdicts=first.verdicts + later.verdicts,
        controls=first.controls + later.controls,
        cost=first.cost + later.cost,
        audit_cost=first.audit_cost + later.audit_cost,
        is_void=first.is_void and later.is_void,
        repeatability=first.repeatability + later.repeatability,
    )


def _nothing_verified() -> Verification:
    """The verification of drafts that nobody was asked about."""
    return Verification(verdicts=(), is_void=True)
