"""What a compile of a spec would do about each of its slices, as a preview shows it: decided as the compile decides,
and nothing of it carried out."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from backend.compiles.models import Slice
from backend.domain.drafts.calibration import interval
from backend.domain.drafts.vocabulary import Arm, StoredDraft, Strategy
from backend.domain.money.pricing import TeacherPrice, price_book, teacher_price
from backend.domain.planning.estimates import CHOICES_PER_CALL
from backend.domain.spec.parsing import Spec
from backend.drafts.cache import NearSource
from backend.drafts.calibrations import calibration
from backend.drafts.models import Scope
from backend.drafts.previews import PreviewedSlice
from workers.drafts.proposals import (
    Proposal,
    asked_of,
    fresh_cost,
    look_in,
    offered_by,
    propose,
    verifiers_of,
    with_old_prompts,
)
from workers.drafts.repeats import repeats
from workers.teachers.factory import caps_of, identity_of
from workers.teachers.verifiers.protocol import Asked

REASONS = {
    Arm.OFFERED: "These drafts are expected to cost less than the teacher's own writing.",
    Arm.PROBED: "Nothing was shown for long: a few drafts are shown to see whether that is still right.",
    Arm.NOT_WORTH: "Verifying any of these drafts is expected to cost more than it saves.",
    Arm.NO_DRAFTS: "The cache holds no draft for this family, teacher, sampling policy and embedder.",
    Arm.SUSPENDED: "Too many accepted drafts of this family were bad; it is generated afresh.",
    Arm.OFF: "The spec offers no drafts (draft_cache.enabled, draft_cache.verify).",
}


def look_up(
    tenant_id: UUID, spec: Spec, slices: Sequence[Slice], vectors: Any, *, embedder: str
) -> list[PreviewedSlice]:
    """What would be offered for each of these slices, inside the tenant's scope. The share that is held back at random
    is not drawn here."""
    if not spec.draft_cache.enabled or spec.draft_cache.verify == "off":
        return [_nothing(pool, Arm.OFF) for pool in slices]
    stock = look_in(tenant_id, spec, identity_of(spec.teacher), embedder, vectors, seed=spec.sampling.seed)
    if stock.scope is None:
        return [_nothing(pool, Arm.NO_DRAFTS) for pool in slices]
    price = teacher_price(price_book(), spec.teacher.model, spec.teacher.price)
    return [
        _prospect(tenant_id, spec, stock.scope, pool, near, price)
        for pool, near in zip(slices, stock.near, strict=True)
    ]


def _nothing(pool: Slice, arm: Arm, near: Sequence[NearSource] = ()) -> PreviewedSlice:
    return PreviewedSlice(
        name=pool.name,
        strategy=None,
        arm=arm,
        n_sources=len(near),
        nearest_distance=near[0].distance if near else None,
        n_drafts=sum(len(source.drafts) for source in near),
        n_shown=0,
        expected_accepted=0.0,
        acceptance_low=None,
        acceptance_high=None,
        fresh_microusd=None,
        expected_avoided_microusd=0.0,
        expected_verification_microusd=0.0,
        expected_net_microusd=0.0,
        break_even=None,
        reason=REASONS[arm],
    )


def _prospect(
    tenant_id: UUID,
    spec: Spec,
    scope: Scope,
    pool: Slice,
    near: Sequence[NearSource],
    price: TeacherPrice,
) -> PreviewedSlice:
    asked = asked_of(spec, pool, n=CHOICES_PER_CALL, exemplars=pool.exemplars)
    asked = with_old_prompts(tenant_id, spec, asked, [source.source_id for source in near])
    same = repeats(tenant_id, spec, pool, near, identity_of(spec.teacher), pool.exemplars)
    again = [draft for source in same for draft in source.drafts][: pool.n_candidates]
    others = [source for source in near if source not in same]
    verifiers = verifiers_of(spec, caps_of(spec.teacher), asked.policy)
    rows = {v.strategy: calibration(tenant_id, scope.id, v.strategy) for v in verifiers}
    if any(row.suspended_at is not None for row in rows.values()) and not again:
        return _nothing(pool, Arm.SUSPENDED, near)
    drafts = {v.strategy: offered_by(v.strategy, others) for v in verifiers}
    n_open = pool.n_candidates - len(again)
    found = propose(asked, verifiers, drafts, rows, price, n_wanted=n_open, seed=pool.name)
    free = _again(pool, near, again, asked, price) if again else _nothing(pool, Arm.NO_DRAFTS, near)
    return free if found is None else _with_shown(free, found, n_open, others)


def _again(
    pool: Slice, near: Sequence[NearSource], drafts: Sequence[StoredDraft], asked: Asked, price: TeacherPrice
) -> PreviewedSlice:
    """Of drafts that were written for this very prompt."""
    fresh = fresh_cost(asked, price, output_tokens=sum(d.n_tokens for d in drafts) / len(drafts))
    return replace(
        _nothing(pool, Arm.OFFERED, near),
        strategy=Strategy.REPEAT,
        n_shown=len(drafts),
        expected_accepted=float(len(drafts)),
        fresh_microusd=fresh,
        expected_avoided_microusd=len(drafts) * fresh,
        expected_net_microusd=len(drafts) * fresh,
        break_even=0.0,
        reason="The teacher wrote these drafts for this very prompt: there is nothing to ask.",
    )


def _with_shown(free: PreviewedSlice, found: Proposal, n_open: int, near: Sequence[NearSource]) -> PreviewedSlice:
    """Together with what the teacher would be asked about."""
    low, high = interval(found.curve, near[0].distance, 0.95)
    told = replace(
        free,
        acceptance_low=low,
        acceptance_high=high,
        fresh_microusd=found.fresh_microusd,
        break_even=found.decision.break_even,
    )
    if not found.decision.shown:
        if free.n_shown:
            return told
        return replace(told, arm=found.decision.arm, strategy=found.strategy, reason=REASONS[found.decision.arm])
    accepted = min(float(n_open), float(sum(found.decision.predicted)))
    avoided = accepted * found.fresh_microusd
    net = found.decision.expected_net_microusd
    return replace(
        told,
        arm=found.decision.arm,
        strategy=found.strategy,
        n_shown=free.n_shown + len(found.decision.shown),
        expected_accepted=free.expected_accepted + accepted,
        expected_avoided_microusd=free.expected_avoided_microusd + avoided,
        expected_verification_microusd=avoided - net,
        expected_net_microusd=free.expected_net_microusd + net,
        reason=REASONS[found.decision.arm],
    )
