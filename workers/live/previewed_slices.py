"""The preview of what a compile of a spec would do about each of its slices: the plan that the compile makes
(`plan.plan_offer`), with nothing of it carried out. What a compile knows and a preview cannot are the candidates that
slices before this one will have, and the lot that holds slices back."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from django.conf import settings

from backend.compiles.models import Slice
from backend.compiles.uploads.inputs import load_captures, load_gold, split
from backend.domain.answers.candidates import text_key
from backend.domain.drafts.calibration import interval
from backend.domain.drafts.pool_policy import PoolDecision
from backend.domain.drafts.vocabulary import Arm, StoredDraft, Strategy
from backend.domain.money.pricing import TeacherPrice, price_book
from backend.domain.money.teacher_prices import resolve_judge_price, resolve_prices
from backend.domain.spec.parsing import Spec, judge_of
from backend.drafts.cache import NearSource
from backend.drafts.previews import PreviewedSlice
from workers.drafts.delegates import standing_of
from workers.drafts.fresh_costs import fresh_cost, verification_context
from workers.drafts.lookup import drafts_off_label, look_up, offers_drafts
from workers.drafts.plan import PlannedOffer, plan_offer
from workers.drafts.proposals import PlanContext, Proposal
from workers.embedding.protocol import Embedder

REASONS = {
    Arm.OFFERED: "These drafts are expected to cost less than the teacher's own writing.",
    Arm.PROBED: "Nothing was shown for long: a few drafts are shown to see whether that is still right.",
    Arm.NOT_WORTH: "Verifying any of these drafts is expected to cost more than it saves.",
    Arm.NO_DRAFTS: "The cache holds no draft for this family, teacher, sampling policy and embedder.",
    Arm.SUSPENDED: "Too many accepted drafts of this family were bad; it is generated afresh.",
    Arm.OFF: "The spec offers no drafts (draft_cache.enabled, draft_cache.verify).",
}
OF_THE_ENGINE = "These drafts go along with the requests: the teacher's engine verifies them while it writes."
OF_THIS_PROMPT = "The teacher wrote these drafts for this very prompt: there is nothing to ask."


def preview_slices(
    tenant_id: UUID, spec: Spec, slices: Sequence[Slice], vectors: Any, *, embedder: Embedder
) -> list[PreviewedSlice]:
    """Preview what would be offered for each of these slices, inside the tenant's scope; `vectors` are theirs, (n,
    d)."""
    if not offers_drafts(spec):
        return [_nothing(slice_row, Arm.OFF) for slice_row in slices]
    result = look_up(tenant_id, spec, slices, embedder.identity, vectors, seed=spec.sampling.seed)
    if result.scope is None:
        return [_nothing(slice_row, Arm.NO_DRAFTS) for slice_row in slices]
    price = resolve_prices(spec.teacher, book=price_book(), operator=settings.KOLM_TEACHER_PRICES).main
    standing = standing_of(tenant_id, spec, result.scope.id)
    texts = _texts_of(tenant_id, spec)
    off_label = drafts_off_label(spec, slices, result.near, texts.gold, embedder)
    rows = []
    for slice_row, near, off in zip(slices, result.near, off_label, strict=True):
        context = _context(tenant_id, spec, price, texts, slice_row, slices, off)
        planned = plan_offer(context, slice_row, result.scope, near, slice_row.exemplars)
        row = _preview_plan(spec, slice_row, near, planned, price)
        is_passed_on = standing is not None and standing.refusal and planned.plan.strategy is Strategy.JUDGE
        rows.append(replace(row, reason=f"{row.reason} {standing.refusal}") if standing and is_passed_on else row)
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class _Texts:
    """The keys of the texts that a compile of the spec begins with."""

    heldout: frozenset[str]
    captures: frozenset[str]
    gold: list[dict[str, str]]


def _texts_of(tenant_id: UUID, spec: Spec) -> _Texts:
    gold = split(tenant_id, spec, load_gold(tenant_id, spec))
    return _Texts(
        heldout=frozenset(text_key(example.input) for example in gold.heldout),
        captures=frozenset(map(text_key, load_captures(tenant_id, spec))),
        gold=[{"input": example.input, "output": str(example.output)} for example in gold.train],
    )


def _context(
    tenant_id: UUID,
    spec: Spec,
    price: TeacherPrice,
    texts: _Texts,
    slice_row: Slice,
    filled: Sequence[Slice],
    off_label: frozenset[UUID],
) -> PlanContext:
    def known_keys(keys: Collection[str]) -> set[str]:
        return set(keys) & texts.captures

    return PlanContext(
        tenant_id=tenant_id,
        spec=spec,
        price=price,
        heldout=texts.heldout,
        known_keys=known_keys,
        filled=filled,
        judge_price=_judge_price(spec),
        off_label=off_label,
        lot=slice_row.name,
        control_seed=spec.sampling.seed,
    )


def _judge_price(spec: Spec) -> TeacherPrice | None:
    judge = judge_of(spec)
    if judge is None:
        return None
    return resolve_judge_price(judge, book=price_book(), operator=settings.KOLM_TEACHER_PRICES)


def _preview_plan(
    spec: Spec, slice_row: Slice, near: Sequence[NearSource], planned: PlannedOffer, price: TeacherPrice
) -> PreviewedSlice:
    """The plan in figures: what the repeats bring, and then what the teacher, or its engine, would be shown."""
    plan = planned.plan
    nothing = replace(_nothing(slice_row, plan.arm, near), strategy=plan.strategy)
    free = _with_repeats(spec, slice_row, planned.repeats, nothing, price) if planned.repeats else nothing
    if plan.strategy is Strategy.ENGINE:
        return replace(free, n_shown=free.n_shown + len(plan.proposed), reason=OF_THE_ENGINE)
    if planned.proposal is None:
        return free
    n_open = plan.n_wanted - len(planned.repeats)
    return _with_shown(free, planned.proposal, planned.others[0], n_open=n_open)


def _nothing(slice_row: Slice, arm: Arm, near: Sequence[NearSource] = ()) -> PreviewedSlice:
    return PreviewedSlice(
        name=slice_row.name,
        strategy=None,
        arm=arm,
        n_sources=len(near),
        nearest_distance=min((source.distance for source in near), default=None),
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


def _with_repeats(
    spec: Spec, slice_row: Slice, drafts: Sequence[StoredDraft], nothing: PreviewedSlice, price: TeacherPrice
) -> PreviewedSlice:
    """Drafts that were written for this very prompt: they cost nothing, and each saves a fresh candidate."""
    context = verification_context(spec, slice_row, slice_row.exemplars)
    fresh = fresh_cost(context, price, drafts=drafts)
    return replace(
        nothing,
        n_shown=len(drafts),
        expected_accepted=float(len(drafts)),
        fresh_microusd=fresh,
        expected_avoided_microusd=len(drafts) * fresh,
        expected_net_microusd=len(drafts) * fresh,
        break_even=0.0,
        reason=OF_THIS_PROMPT if nothing.strategy is Strategy.REPEAT else nothing.reason,
    )


def _with_shown(free: PreviewedSlice, proposal: Proposal, first: NearSource, *, n_open: int) -> PreviewedSlice:
    """The figures with the drafts that would compete or be verified; `first` is the closest source of them."""
    decision = proposal.decision
    low, high = interval(proposal.curves.of(first.kinship), first.distance, 0.95)
    known = replace(
        free,
        acceptance_low=low,
        acceptance_high=high,
        fresh_microusd=proposal.fresh_microusd,
        break_even=decision.break_even,
    )
    if isinstance(decision, PoolDecision):
        n_shown, accepted = len(decision.pooled), float(decision.n_counted)
    else:
        n_shown, accepted = len(decision.shown), min(float(n_open), float(sum(decision.predicted)))
    if not n_shown:
        return known
    avoided = accepted * proposal.fresh_microusd
    net = decision.expected_net_microusd
    return replace(
        known,
        n_shown=free.n_shown + n_shown,
        expected_accepted=free.expected_accepted + accepted,
        expected_avoided_microusd=free.expected_avoided_microusd + avoided,
        expected_verification_microusd=avoided - net,
        expected_net_microusd=free.expected_net_microusd + net,
        reason=REASONS[free.arm],
    )
