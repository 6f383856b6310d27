"""The saving of a slice's drafts, worked out when the slice is synthesized: what was avoided, what verifying cost, and
what remains. Everything from billed usage and the price in force; a net below zero is written down as one."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from django.db.models import Sum
from django.utils import timezone

from backend.compiles.draft_savings import DraftSavings, savings_of_compile
from backend.compiles.models import Candidate, Slice, TeacherCall
from backend.compiles.states import ANSWERED_STATES, CandidateState
from backend.domain.answers.candidates import Origin
from backend.domain.drafts.judge_controls import exact_interval
from backend.domain.drafts.offer_plan import OfferPlan, OfferState, saving_to_json
from backend.domain.drafts.vocabulary import Arm, EngineTokens, Repeatability, Saving, Strategy
from backend.domain.lifecycle import StepName
from backend.domain.money.pricing import TeacherPrice, cost_microusd, price_book
from backend.drafts.models import Offer
from backend.drafts.statistics import running_rate
from backend.usage.savings import note_saving
from workers.candidates.embedding_usage import SKU
from workers.candidates.slices import slice_text
from workers.drafts.delegates import locked_row
from workers.drafts.records import verified_by
from workers.embedding.protocol import Embedder
from workers.step.durable import CompileRun


def close_offer(run: CompileRun, slice_row: Slice, price: TeacherPrice, embedder: Embedder) -> None:
    """Write the slice's Offer, inside the transaction that ends its synthesis, or its selection where drafts compete
    for that; the caller saves the slice. Nothing where the slice never looked."""
    plan = slice_row.offer_plan
    if plan is None or plan.state is OfferState.CLOSED:
        return
    plan = replace(plan, n_avoided=_count_avoided(slice_row, plan), pooled=())
    saving = _saving(run, slice_row, plan, price, embedder)
    Offer.objects.bulk_create([_offer(run, slice_row, plan, saving, price)], ignore_conflicts=True)
    note_saving(
        run.tenant_id,
        run.compile_id,
        step=StepName.SYNTHESIS,
        source_key=f"drafts:{run.compile_id}:{slice_row.position}",
        saving=saving,
        price_version=price.version,
    )
    _remember_spending(run, slice_row, plan, saving)
    slice_row.offer_plan = replace(plan, state=OfferState.CLOSED, saving=saving)


def _offer(run: CompileRun, slice_row: Slice, plan: OfferPlan, saving: Saving, price: TeacherPrice) -> Offer:
    return Offer(
        id=plan.offer_id,
        tenant_id=run.tenant_id,
        compile_id=run.compile_id,
        slice_position=slice_row.position,
        scope_id=plan.scope_id,
        family=run.spec.family,
        strategy="" if plan.strategy is None else plan.strategy,
        arm=plan.arm,
        n_wanted=plan.n_wanted,
        n_sources=plan.n_sources,
        nearest_distance=plan.nearest_distance,
        break_even=plan.break_even,
        n_shown=plan.n_shown,
        n_accepted=plan.n_accepted,
        n_reused=slice_row.n_from_drafts,
        n_pooled=plan.n_pooled,
        n_avoided=plan.n_avoided,
        kept_tokens=dict(plan.kept_tokens),
        engine_written=plan.engine.written,
        engine_proposed=plan.engine.proposed,
        engine_kept=plan.engine.kept,
        fresh_microusd=plan.fresh_microusd,
        avoided_microusd=saving.avoided,
        verification_microusd=saving.verification,
        embedding_microusd=saving.embedding,
        audit_microusd=saving.audits,
        exploration_microusd=saving.exploration,
        price_version=price.version,
    )


def _saving(run: CompileRun, slice_row: Slice, plan: OfferPlan, price: TeacherPrice, embedder: Embedder) -> Saving:
    asked = _sum_billed(run, f"drafts:{slice_row.position}:") + plan.judged_microusd
    is_probe = plan.arm is Arm.PROBED
    text = slice_text(slice_row)
    looked = plan.scope_id is not None
    return Saving(
        avoided=_cost_avoided(run, slice_row, plan, price),
        verification=0 if is_probe else asked,
        exploration=asked if is_probe else 0,
        audits=_sum_billed(run, f"audit:{slice_row.position}:"),
        embedding=cost_microusd(embedder.count_tokens([text]), price_book(timezone.now()).prices[SKU]) if looked else 0,
    )


def _sum_billed(run: CompileRun, prefix: str) -> int:
    paid = _calls(run, prefix).aggregate(cost=Sum("cost_microusd"))
    return paid["cost"] or 0


def _calls(run: CompileRun, prefix: str) -> Any:
    return TeacherCall.objects.filter(
        tenant_id=run.tenant_id, compile_id=run.compile_id, key__startswith=prefix, state__in=ANSWERED_STATES
    )


def _count_avoided(slice_row: Slice, plan: OfferPlan) -> int:
    """The candidates that the teacher did not write because of drafts: those that entered without a question, and of
    those that competed as many as they counted for, less what the teacher's verdicts took from that."""
    if not plan.n_pooled:
        return int(slice_row.n_from_drafts)
    likely = math.floor(int(slice_row.n_from_drafts) - plan.n_free + math.fsum(one.predicted for one in plan.pooled))
    return plan.n_free + max(0, min(plan.n_counted, likely))


def _cost_avoided(run: CompileRun, slice_row: Slice, plan: OfferPlan, price: TeacherPrice) -> int:
    """The price that the teacher would have been paid for the candidates that it did not write: as much each as it was
    billed for those of the slice that it wrote, else of the compile, in calls of as many. Where it wrote none, what the
    plan says that one costs; without that the drafts' own tokens."""
    n = plan.n_avoided
    if n <= 0:
        return 0
    billed = _bill_of(_calls(run, f"synthesis:{slice_row.position}:"), price)
    billed = billed or _bill_of(_calls(run, "synthesis:"), price)
    if billed is not None:
        n_written = int(slice_row.n_candidates) - n
        n_calls = -(-(n_written + n) // billed.n_per_call) - -(-n_written // billed.n_per_call)
        return round(n_calls * billed.prompt_microusd + n * billed.output_microusd)
    if plan.fresh_microusd is not None:
        return round(n * plan.fresh_microusd)
    entered = Candidate.objects.filter(tenant_id=run.tenant_id, slice=slice_row, origin=Origin.DRAFT)
    entered = entered.exclude(state=CandidateState.REJECTED)
    return price.cost_microusd(input_tokens=0, output_tokens=entered.aggregate(n=Sum("n_tokens"))["n"] or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Billed:
    """The cost of what the teacher wrote, micro-USD as it was billed: of a call's prompt and of one choice; and how
    many choices a call gave at most."""

    prompt_microusd: float
    output_microusd: float
    n_per_call: int


def _bill_of(calls: Any, price: TeacherPrice) -> _Billed | None:
    """None where there were no calls, or none was answered."""
    rows = list(calls)
    n_choices = [len(call.choices or ()) for call in rows]
    if not sum(n_choices):
        return None
    prompts = [
        price.cost_microusd(
            input_tokens=call.input_tokens,
            output_tokens=0,
            cached_tokens=call.cached_tokens,
        )
        for call in rows
    ]
    outputs = sum(call.cost_microusd for call in rows) - sum(prompts)
    return _Billed(
        prompt_microusd=sum(prompts) / len(rows),
        output_microusd=max(0, outputs) / sum(n_choices),
        n_per_call=max(n_choices),
    )


def _remember_spending(run: CompileRun, slice_row: Slice, plan: OfferPlan, saving: Saving) -> None:
    """Remember what the lock-out guard goes by: look-ups, how long nothing was shown, what was spent, and to
    explore."""
    if plan.scope_id is None or plan.strategy in (None, Strategy.ENGINE, Strategy.REPEAT):
        return
    row = locked_row(run, *verified_by(plan))
    row.n_lookups += 1
    row.n_since_shown += plan.arm is Arm.NOT_WORTH
    row.spent_microusd += (
        _sum_billed(run, f"synthesis:{slice_row.position}:") + saving.verification + saving.exploration
    )
    row.explored_microusd += saving.exploration
    row.save()


def drafts_of_compile(run: CompileRun, slices: Sequence[Slice]) -> dict[str, Any]:
    """The receipt's part about drafts: this compile's counts and savings, slice by slice and as a whole, and the
    family's running acceptance rate up to now. Integers. Drafts of the very same prompt, which nobody was asked about,
    are in `repeated` and not in `offered`."""
    plans = [(slice_row, plan) for slice_row in slices if (plan := slice_row.offer_plan) is not None]
    savings = savings_of_compile(run.tenant_id, run.compile_id) or DraftSavings()
    kept: dict[str, int] = {}
    for _, plan in plans:
        for certificate, n in plan.kept_tokens.items():
            kept[certificate.value] = kept.get(certificate.value, 0) + n
    return {
        "lookups": sum(plan.scope_id is not None for _, plan in plans),
        "pooled": sum(plan.n_pooled for _, plan in plans),
        "offered": savings.n_asked,
        "accepted": savings.n_accepted,
        "repeated": savings.n_repeated,
        "entered": sum(slice_row.n_from_drafts for slice_row, _ in plans),
        "avoided": sum(plan.n_avoided for _, plan in plans),
        "acceptance": rate_json(savings.n_accepted, savings.n_asked),
        "kept_tokens": kept,
        "engine_tokens": asdict(sum((plan.engine for _, plan in plans), EngineTokens())),
        "repeatability": _repeatability_json(sum((plan.repeatability for _, plan in plans), Repeatability())),
        "max_bad_rate_ppm": round(run.spec.draft_cache.max_bad_rate * 1_000_000),
        "saving": saving_to_json(sum((plan.saving or Saving() for _, plan in plans), Saving())),
        "family": running_rate(run.tenant_id, run.spec.family),
        "slices": [_slice_json(slice_row, plan) for slice_row, plan in plans],
    }


def _repeatability_json(measured: Repeatability) -> dict[str, int | None]:
    """The total variation of two plain runs of one score: the mean of a token, in parts per million."""
    per_token = measured.per_token
    return {"n_tokens": measured.n_tokens, "tv_per_token_ppm": None if per_token is None else _ppm(per_token)}


def rate_json(k: int, n: int) -> dict[str, int | None]:
    """k of n with its exact 95 % interval, in ppm; null without any."""
    low, high = exact_interval(k, n)
    return {
        "rate_ppm": round(k / n * 1_000_000) if n else None,
        "low_ppm": round(low * 1_000_000) if n else None,
        "high_ppm": round(high * 1_000_000) if n else None,
    }


def _slice_json(slice_row: Slice, plan: OfferPlan) -> dict[str, Any]:
    return {
        "name": slice_row.name,
        "arm": plan.arm.value,
        "strategy": "" if plan.strategy is None else plan.strategy.value,
        "n_sources": plan.n_sources,
        "nearest_distance_ppm": _ppm(plan.nearest_distance),
        "break_even_ppm": _ppm(plan.break_even),
        "threshold_distance_ppm": _ppm(plan.threshold_distance),
        "offered": plan.n_shown,
        "accepted": plan.n_accepted,
        "entered": slice_row.n_from_drafts,
        "pooled": plan.n_pooled,
        "proposed": len(plan.proposed),
        "engine_tokens": asdict(plan.engine),
        "kept_tokens": {certificate.value: n for certificate, n in plan.kept_tokens.items()},
        "saving": {} if plan.saving is None else saving_to_json(plan.saving),
    }


def _ppm(value: float | None) -> int | None:
    return None if value is None else round(value * 1_000_000)
