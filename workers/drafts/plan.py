"""Plans which drafts a slice's teacher is shown, before anything is asked. A compile carries the plan out (`offering`),
a preview shows it (`preview`); both have it made by `plan_offer`, so that neither knows a rule the other does not."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

import numpy as np

from backend.compiles.models import Slice
from backend.domain.answers.candidates import text_key
from backend.domain.drafts.calibration import distance_at
from backend.domain.drafts.offer_plan import OfferPlan, OfferState, PlannedDraft, ShownDraft
from backend.domain.drafts.vocabulary import Arm, StoredDraft, Strategy
from backend.domain.money.pricing import TeacherPrice
from backend.domain.planning.estimates import CHOICES_PER_CALL
from backend.domain.spec.parsing import Spec
from backend.drafts.cache import NearSource, far_drafts
from backend.drafts.calibrations import calibration
from backend.drafts.models import Scope
from backend.rest.new_ids import new_uuid7
from workers.drafts.gate_verification import certified_threshold_of
from workers.drafts.proposals import (
    MAX_SHOWN,
    Proposal,
    offered_by,
    propose,
    verification_context,
    verifiers_of,
    with_old_prompts,
)
from workers.drafts.repeats import repeats
from workers.drafts.scopes import revision_of
from workers.scoring.verifier import check_text, gate_reasons
from workers.step.teacher_profile import caps_of, identity_of
from workers.teachers.verifiers.gate_verifier import GateVerifier

N_CONTROLS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanContext:
    """The values that a plan depends on beside the slice and what is near it. `heldout` are the keys of texts that no
    candidate may repeat, `known_keys` says which of some keys are candidates already; `lot` and `control_seed` are
    where the decision's and the controls' randomness begins. A preview draws no slice to be held back."""

    tenant_id: UUID
    spec: Spec
    price: TeacherPrice
    heldout: frozenset[str]
    known_keys: Callable[[Collection[str]], set[str]]
    lot: str
    control_seed: int
    is_held_back: bool = False


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
        nearest_distance=near[0].distance if near else None,
    )
    if scope is None or not any(source.drafts for source in near):
        return PlannedOffer(plan=plan)
    plan = replace(plan, scope_id=scope.id)
    if context.is_held_back:
        return PlannedOffer(plan=replace(plan, arm=Arm.HELD_BACK))
    plan = replace(plan, missing_ppm={source.source_id: source.missing_ppm for source in near})
    spec = context.spec
    same = repeats(context.tenant_id, spec, slice_row, near, identity_of(spec.teacher), exemplars)
    again = tuple(draft for source in same for draft in source.drafts)[: slice_row.n_candidates]
    others = tuple(source for source in near if source not in same)
    if caps_of(spec.teacher).engine_drafts and spec.draft_cache.verify in ("auto", "engine"):
        return PlannedOffer(plan=_with_proposed(plan, others), repeats=again, others=others)
    plan, proposal = _with_shown(context, slice_row, scope, others, exemplars, plan, n_open=plan.n_wanted - len(again))
    if again and plan.arm in (Arm.NO_DRAFTS, Arm.NOT_WORTH):
        plan = replace(plan, arm=Arm.OFFERED, strategy=Strategy.REPEAT)
    return PlannedOffer(plan=plan, repeats=again, others=others, proposal=proposal)


def _with_proposed(plan: OfferPlan, near: Sequence[NearSource]) -> OfferPlan:
    """Have every draft go along with the fresh requests: the engine verifies while it writes, and asks nothing more.
    There are no verdicts: which tokens it kept is in the engine's own metrics."""
    drafts = [draft for source in near for draft in source.drafts][:MAX_SHOWN]
    proposed = tuple(PlannedDraft(draft_id=draft.draft_id, distance=draft.distance) for draft in drafts)
    return replace(plan, arm=Arm.OFFERED, strategy=Strategy.ENGINE, proposed=proposed)


def _with_shown(
    context: PlanContext,
    slice_row: Slice,
    scope: Scope,
    near: Sequence[NearSource],
    exemplars: Sequence[str],
    plan: OfferPlan,
    *,
    n_open: int,
) -> tuple[OfferPlan, Proposal | None]:
    """Decide what the teacher is asked about for the `n_open` candidates that the repeats leave open."""
    if n_open <= 0 or not near:
        return plan, None
    spec = context.spec
    prompt = verification_context(spec, slice_row, n=CHOICES_PER_CALL, exemplars=exemplars)
    prompt = with_old_prompts(context.tenant_id, spec, prompt, [source.source_id for source in near])
    threshold = certified_threshold_of(context.tenant_id, spec, scope.id) if spec.draft_cache.gate else None
    verifiers = verifiers_of(spec, caps_of(spec.teacher), prompt.policy)
    if threshold is not None:  # its quote needs no scores; those are worked out when it verifies
        verifiers = (*verifiers, GateVerifier(scores=lambda _: None, threshold=threshold))
    calibrations = {v.strategy: calibration(context.tenant_id, scope.id, v.strategy) for v in verifiers}
    if any(row.suspended_at is not None for row in calibrations.values()):
        return replace(plan, arm=Arm.SUSPENDED), None
    fitting = _fitting(context, offered_by(Strategy.JUDGE, near))
    drafts = {
        v.strategy: offered_by(v.strategy, near) if v.strategy == Strategy.LOGPROBS else fitting for v in verifiers
    }
    proposal = propose(prompt, verifiers, drafts, calibrations, context.price, n_wanted=n_open, seed=context.lot)
    if proposal is None:
        return plan, None
    break_even = proposal.decision.break_even
    plan = replace(
        plan,
        arm=proposal.decision.arm,
        strategy=proposal.strategy,
        break_even=break_even if math.isfinite(break_even) else None,
        threshold_distance=distance_at(proposal.curve, break_even),
        fresh_microusd=proposal.fresh_microusd,
        price_version=context.price.version,
        gate_threshold=threshold,
    )
    return _to_be_shown(context, slice_row, scope, near, plan, proposal), proposal


def _to_be_shown(
    context: PlanContext,
    slice_row: Slice,
    scope: Scope,
    near: Sequence[NearSource],
    plan: OfferPlan,
    proposal: Proposal,
) -> OfferPlan:
    """Name the drafts that the decision shows, and those of far slices that are planted among them as controls."""
    if not proposal.decision.shown:
        return plan
    far = far_drafts(
        context.tenant_id,
        scope,
        np.frombuffer(bytes(slice_row.embedding or b""), dtype=np.float32),
        near={source.source_id for source in near},
        n=N_CONTROLS,
        seed=context.control_seed,
    )
    return replace(
        plan,
        state=OfferState.PLANNED,
        revision=revision_of(scope),
        shown=_order_shown(proposal),
        n_first=len(proposal.decision.first),
        far=tuple(PlannedDraft(draft_id=draft.draft_id, distance=draft.distance) for draft in far),
    )


def _order_shown(proposal: Proposal) -> tuple[ShownDraft, ...]:
    """The drafts in the order of showing; those of the adaptive probe stand first."""
    decision = proposal.decision
    expected = {i: (p, q) for i, p, q in zip(decision.shown, decision.predicted, decision.propensity, strict=True)}
    first = list(decision.first)
    order = [*first, *(i for i in decision.shown if i not in set(first))]
    return tuple(
        ShownDraft(
            draft_id=proposal.drafts[i].draft_id,
            distance=proposal.drafts[i].distance,
            predicted=expected[i][0],
            propensity=expected[i][1],
        )
        for i in order
    )


def _fitting(context: PlanContext, drafts: Sequence[StoredDraft]) -> tuple[StoredDraft, ...]:
    """The drafts that could become candidates: what fails a check, or is here already, is not asked about. Only for
    rules that need no sample of the teacher's distribution."""
    keys = {draft.draft_id: text_key(draft.text) for draft in drafts}
    known = context.known_keys(keys.values())
    fitting = []
    for draft in drafts:
        key = keys[draft.draft_id]
        if key in known or check_text(draft.text, context.heldout, key) or gate_reasons(context.spec, draft.text):
            continue
        known.add(key)
        fitting.append(draft)
    return tuple(fitting)
