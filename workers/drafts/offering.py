"""Lets drafts compete with what the teacher writes afresh: planned, then pooled unverified (`picks` asks about those
that selection wants), or under an exact rule verified at once and saved.

The plan (which drafts, how far, what was expected) is saved before the first call, so that a process that takes over
asks the same question and finds the journaled answers. What the answers say is saved in one transaction: accepted
drafts as candidates, every verdict, what they teach the calibration. The offer is closed when the slice is
(`savings`): only then is known what the teacher's own writing cost.
"""

import random
from collections.abc import Collection
from dataclasses import replace

from backend.compiles.models import Candidate, Slice
from backend.domain.drafts.offer_plan import OfferPlan, OfferState
from backend.domain.drafts.vocabulary import Strategy
from backend.domain.lifecycle import StepName
from workers.candidates.generation import shown_exemplars
from workers.drafts.admission import add_candidates, pool_drafts
from workers.drafts.lookup import DraftLookup
from workers.drafts.plan import PlannedOffer, plan_offer
from workers.drafts.proposals import PlanContext
from workers.drafts.records import record_verdicts, save_verdicts
from workers.drafts.repeats import take_repeats
from workers.drafts.verification_dialogue import VerifiedDrafts, verify_drafts
from workers.step.durable import CompileRun
from workers.step.teacher_session import TeacherSession, seed_of


def offer_drafts(
    run: CompileRun, slice_row: Slice, session: TeacherSession, lookup: DraftLookup | None, heldout: frozenset[str]
) -> None:
    """Let drafts compete for the slice's N before anything is written. Safe to run again at any point."""
    plan = slice_row.offer_plan
    if plan is None:
        if lookup is None:
            return
        with run.transaction() as fenced:
            planned = _plan(run, slice_row, session, lookup, heldout)
            plan = take_repeats(run, fenced.compile, slice_row, planned.plan, planned.repeats, heldout)
            if plan.state is OfferState.POOLED:
                plan = pool_drafts(run, fenced.compile, slice_row, plan, heldout)
            slice_row.offer_plan = plan
            slice_row.save(update_fields=["drafts", "n_from_drafts"])
    elif plan.state is OfferState.PLANNED and plan.strategy is Strategy.JUDGE:
        with run.transaction() as fenced:
            plan = pool_drafts(run, fenced.compile, slice_row, _as_pooled(plan), heldout)
            slice_row.offer_plan = plan
            slice_row.save(update_fields=["drafts"])
    if plan.state is OfferState.PLANNED:
        _save(run, slice_row, plan, verify_drafts(run, slice_row, session, plan), heldout)


def _as_pooled(plan: OfferPlan) -> OfferPlan:
    """A plan of the release before, which asked about drafts before anything was written."""
    return replace(plan, state=OfferState.POOLED, pooled=plan.shown, shown=(), n_first=0, n_counted=plan.n_wanted)


def _plan(
    run: CompileRun, slice_row: Slice, session: TeacherSession, lookup: DraftLookup, heldout: frozenset[str]
) -> PlannedOffer:
    """Plan the offer of one slice, inside a fenced transaction."""

    def known_keys(keys: Collection[str]) -> set[str]:
        candidates = Candidate.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id)
        return set(candidates.filter(text_key__in=list(keys)).values_list("text_key", flat=True))

    lot = random.Random(f"holdback/{run.compile_id}/{slice_row.position}").random()
    context = PlanContext(
        tenant_id=run.tenant_id,
        spec=run.spec,
        price=session.price,
        judge_price=run.prices.judge,
        heldout=heldout,
        known_keys=known_keys,
        filled=lookup.filled,
        off_label=lookup.off_label.get(slice_row.id, frozenset()),
        lot=f"{run.compile_id}/{slice_row.position}",
        control_seed=seed_of(run, "controls", slice_row.position),
        is_held_back=lot < run.spec.draft_cache.holdback,
    )
    near = lookup.near.get(slice_row.id, ())
    return plan_offer(context, slice_row, lookup.scope, near, shown_exemplars(run, slice_row))


def _save(
    run: CompileRun, slice_row: Slice, plan: OfferPlan, verified: VerifiedDrafts, heldout: frozenset[str]
) -> None:
    """Save candidates, verdicts and what they teach, in one transaction."""
    verification = verified.verification
    shown = verified.shown
    with run.transaction() as fenced:
        if verified.refusal:
            message = f"Slice {slice_row.name}: no drafts: {verified.refusal}."
            run.warn("drafts_not_verified", message, slice=slice_row.name)
        n_added = add_candidates(run, fenced.compile, slice_row, verification, shown, heldout)
        slice_row.n_from_drafts += n_added
        slice_row.offer_plan = _carried_out(record_verdicts(plan, verification, n_added))
        slice_row.save(update_fields=["drafts", "n_from_drafts"])
        save_verdicts(run, plan, verification, shown, {})
        if verification.verdicts:
            message = f"{slice_row.name}: {n_added} of {len(verification.verdicts)} drafts taken"
            run.progress(StepName.SYNTHESIS, done=0, total=slice_row.n_candidates, message=message)


def _carried_out(plan: OfferPlan) -> OfferPlan:
    """The plan without what was to be asked; its controls stay, for the audit."""
    return replace(
        plan,
        state=OfferState.VERIFIED,
        controls=plan.far,
        shown=(),
        n_first=0,
        far=(),
        missing_ppm={},
        revision="",
    )
