"""Plans which drafts a slice's teacher is shown, before anything is asked. A compile carries the plan out (`offering`),
a preview shows it (`live.previewed_slices`); both have it made by `plan_offer`, so that neither knows a rule the other
does not."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from backend.compiles.models import Slice
from backend.domain.drafts.calibration import distance_at
from backend.domain.drafts.offer_plan import OfferPlan, OfferState, PlannedDraft, ShownDraft
from backend.domain.drafts.policy import Decision
from backend.domain.drafts.pool_policy import PoolDecision
from backend.domain.drafts.vocabulary import Arm, StoredDraft, Strategy
from backend.drafts.cache import NearSource, far_drafts
from backend.drafts.models import Scope
from backend.rest.new_ids import new_uuid7
from workers.drafts.proposals import PlanContext, Proposal, drafts_for_the_engine, propose
from workers.drafts.repeats import repeats
from workers.drafts.scopes import revision_of
from workers.step.teacher_profile import caps_of, identity_of

N_CONTROLS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedOffer:
    """The plan, with what it was made of: the drafts of this very prompt, at most N, the other near sources, and the
    proposal that won."""

    plan: OfferPlan
    repeats: tuple[StoredDraft, ...] = ()
    others: tuple[NearSource, ...] = ()
    proposal: Proposal | None = None


def plan_offer(
    context: PlanContext, slice_row: Slice, scope: Scope | None, near: Sequence[NearSource], exemplars: Sequence[str]
) -> PlannedOffer:
    """Decide about one slice. Reads only. `exemplars` are those of the slice's first prompt."""
    plan = OfferPlan(
        offer_id=new_uuid7(),
        arm=Arm.NO_DRAFTS,
        n_wanted=slice_row.n_candidates,
        n_sources=len(near),
        nearest_distance=min((source.distance for source in near), default=None),
    )
    if scope is None or not any(source.drafts for source in near):
        return PlannedOffer(plan=plan)
    plan = replace(plan, scope_id=scope.id)
    if context.is_held_back:
        return PlannedOffer(plan=replace(plan, arm=Arm.HELD_BACK))
    plan = replace(plan, missing_ppm={source.source_id: source.missing_ppm for source in near})
    return _plan_near(context, slice_row, scope, near, exemplars, plan)


def _plan_near(
    context: PlanContext,
    slice_row: Slice,
    scope: Scope,
    near: Sequence[NearSource],
    exemplars: Sequence[str],
    plan: OfferPlan,
) -> PlannedOffer:
    """Take the repeats first; then decide what the engine, where the spec asks for that, or the teacher is shown of the
    others."""
    spec = context.spec
    identity = identity_of(spec.teacher)
    caps = caps_of(spec.teacher)
    same = repeats(context.tenant_id, spec, slice_row, near, identity, exemplars)
    again = tuple(draft for source in same for draft in source.drafts)[: slice_row.n_candidates]
    others = tuple(source for source in near if source not in same)
    planned = PlannedOffer(plan=plan, repeats=again, others=others)
    if caps.engine_drafts and spec.draft_cache.verify == "engine":
        proposed = drafts_for_the_engine(others)
        return replace(planned, plan=replace(plan, arm=Arm.OFFERED, strategy=Strategy.ENGINE, proposed=proposed))
    n_open = plan.n_wanted - len(again)
    if n_open > 0 and others:
        proposal = propose(context, slice_row, scope, others, exemplars, n_open=n_open)
        if isinstance(proposal, Arm):
            plan = replace(plan, arm=proposal)
        else:
            plan = _with_proposal(context, slice_row, scope, others, plan, proposal)
            planned = replace(planned, proposal=proposal)
    if again and plan.arm in (Arm.NO_DRAFTS, Arm.NOT_WORTH):
        plan = replace(plan, arm=Arm.OFFERED, strategy=Strategy.REPEAT)
    return replace(planned, plan=plan)


def _with_proposal(
    context: PlanContext,
    slice_row: Slice,
    scope: Scope,
    near: Sequence[NearSource],
    plan: OfferPlan,
    proposal: Proposal,
) -> OfferPlan:
    """Note the decision, the drafts that it shows, and those of far slices that are planted among them as controls."""
    decision = proposal.decision
    plan = replace(
        plan,
        arm=decision.arm,
        strategy=proposal.strategy,
        break_even=decision.break_even if math.isfinite(decision.break_even) else None,
        threshold_distance=distance_at(proposal.curves.of(near[0].kinship), decision.break_even),
        fresh_microusd=proposal.fresh_microusd,
        price_version=context.price.version,
        gate_threshold=proposal.gate_threshold,
    )
    shown = _pool_of(proposal, decision) if isinstance(decision, PoolDecision) else _order_shown(proposal, decision)
    if not shown:
        return plan
    far = far_drafts(
        context.tenant_id,
        scope,
        np.frombuffer(bytes(slice_row.embedding or b""), dtype=np.float32),
        near={source.source_id for source in near},
        n=N_CONTROLS,
        seed=context.control_seed,
    )
    plan = replace(
        plan,
        revision=revision_of(scope),
        far=tuple(PlannedDraft(draft_id=draft.draft_id, distance=draft.distance) for draft in far),
    )
    if isinstance(decision, PoolDecision):
        return replace(
            plan,
            state=OfferState.POOLED,
            pooled=shown,
            n_pooled=len(shown),
            n_counted=decision.n_counted,
        )
    return replace(plan, state=OfferState.PLANNED, shown=shown, n_first=len(decision.first))


def _pool_of(proposal: Proposal, decision: PoolDecision) -> tuple[ShownDraft, ...]:
    """The drafts that compete unverified, best first."""
    return tuple(
        _as_shown(proposal.drafts[i], predicted, propensity)
        for i, predicted, propensity in zip(decision.pooled, decision.predicted, decision.propensity, strict=True)
    )


def _order_shown(proposal: Proposal, decision: Decision) -> tuple[ShownDraft, ...]:
    """The drafts in the order of showing; those of the adaptive probe stand first."""
    expected = {i: (p, q) for i, p, q in zip(decision.shown, decision.predicted, decision.propensity, strict=True)}
    first = list(decision.first)
    order = [*first, *(i for i in decision.shown if i not in set(first))]
    return tuple(_as_shown(proposal.drafts[i], *expected[i]) for i in order)


def _as_shown(draft: StoredDraft, predicted: float, propensity: float) -> ShownDraft:
    return ShownDraft(
        draft_id=draft.draft_id,
        distance=draft.distance,
        predicted=predicted,
        propensity=propensity,
        kinship=draft.kinship,
    )
