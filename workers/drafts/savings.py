"""The account of a slice's drafts, closed when the slice is synthesized: what was avoided, what verifying cost, and
what remains. Everything from billed usage and the price in force; a net below zero is written down as one."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db.models import Count, Sum

from backend.compiles.models import Candidate, Slice, TeacherCall
from backend.compiles.states import ANSWERED_STATES, CandidateState
from backend.domain.answers.candidates import Origin
from backend.domain.drafts.judge_controls import exact_interval
from backend.domain.drafts.vocabulary import Arm, Saving, Strategy
from backend.domain.lifecycle import StepName
from backend.domain.money.pricing import TeacherPrice, cost_microusd, price_book
from backend.domain.planning.estimates import CHOICES_PER_CALL
from backend.drafts.calibrations import locked_calibration
from backend.drafts.models import Offer
from backend.drafts.running import running_rate
from backend.usage.savings import note_saving
from workers.candidates.embedding_usage import SKU
from workers.candidates.slices import slice_text
from workers.durable import CompileRun
from workers.embedding.protocol import Embedder


def close_account(run: CompileRun, pool: Slice, price: TeacherPrice, embedder: Embedder) -> None:
    """Write the slice's Offer, inside the transaction that ends its synthesis; the caller saves the slice. Nothing
    where the slice never looked."""
    plan = pool.drafts
    if plan is None or plan["state"] == "closed":
        return
    arm = Arm(plan["arm"])
    saving = _saving(run, pool, plan, price, embedder)
    Offer.objects.bulk_create(
        [
            Offer(
                id=UUID(plan["offer"]),
                tenant_id=run.tenant_id,
                compile_id=run.compile_id,
                slice_position=pool.position,
                scope_id=None if plan["scope"] is None else UUID(plan["scope"]),
                family=run.spec.family,
                strategy=plan["strategy"],
                arm=arm,
                n_wanted=plan["n_wanted"],
                n_sources=plan["n_sources"],
                nearest_distance=plan["nearest_distance"],
                break_even=plan.get("break_even"),
                n_shown=plan["n_shown"],
                n_accepted=plan["n_accepted"],
                n_reused=pool.n_from_drafts,
                kept_tokens=plan.get("kept_tokens", {}),
                fresh_microusd=plan.get("fresh_microusd"),
                avoided_microusd=saving.avoided,
                verification_microusd=saving.verification,
                embedding_microusd=saving.embedding,
                audit_microusd=saving.audits,
                exploration_microusd=saving.exploration,
                price_version=price.version,
            )
        ],
        ignore_conflicts=True,
    )
    note_saving(
        run.tenant_id,
        run.compile_id,
        step=StepName.SYNTHESIS,
        source_key=f"drafts:{run.compile_id}:{pool.position}",
        saving=saving,
        price_version=price.version,
    )
    _remember_spending(run, pool, plan, arm, saving)
    pool.drafts = plan | {"state": "closed", "saving": saving_json(saving)}


def _saving(run: CompileRun, pool: Slice, plan: dict[str, Any], price: TeacherPrice, embedder: Embedder) -> Saving:
    asked = _billed(run, f"drafts:{pool.position}:")
    is_probe = plan["arm"] == Arm.PROBED
    text = slice_text(run.spec, pool)
    looked = plan["scope"] is not None
    return Saving(
        avoided=_avoided(run, pool, price),
        verification=0 if is_probe else asked,
        exploration=asked if is_probe else 0,
        audits=_billed(run, f"audit:{pool.position}:"),
        embedding=cost_microusd(embedder.count_tokens([text]), price_book().prices[SKU]) if looked else 0,
    )


def _billed(run: CompileRun, prefix: str) -> int:
    paid = _calls(run, prefix).aggregate(cost=Sum("cost_microusd"))
    return paid["cost"] or 0


def _calls(run: CompileRun, prefix: str) -> Any:
    return TeacherCall.objects.filter(
        tenant_id=run.tenant_id, compile_id=run.compile_id, key__startswith=prefix, state__in=ANSWERED_STATES
    )


def _avoided(run: CompileRun, pool: Slice, price: TeacherPrice) -> int:
    """What the teacher would have been paid for as many candidates: their tokens as output, and the prompts of the
    calls that were not made, as long as those of the slice that were."""
    entered = Candidate.objects.filter(
        tenant_id=run.tenant_id, slice=pool, origin=Origin.DRAFT, state=CandidateState.VALID
    )
    n_tokens = entered.aggregate(n=Sum("n_tokens"))["n"] or 0
    if not n_tokens:
        return 0
    n = pool.n_candidates
    calls_avoided = -(-n // CHOICES_PER_CALL) - -(-(n - pool.n_from_drafts) // CHOICES_PER_CALL)
    made = _calls(run, f"synthesis:{pool.position}:").aggregate(n=Count("id"), tokens=Sum("input_tokens"))
    if not made["n"]:  # every candidate is a draft: as long as the other slices' prompts, else nothing is claimed
        made = _calls(run, "synthesis:").aggregate(n=Count("id"), tokens=Sum("input_tokens"))
    prompt_tokens = made["tokens"] // made["n"] if made["n"] else 0
    return price.cost_microusd(input_tokens=calls_avoided * prompt_tokens, output_tokens=n_tokens)


def _remember_spending(run: CompileRun, pool: Slice, plan: dict[str, Any], arm: Arm, saving: Saving) -> None:
    """What the lock-out guard goes by: look-ups, how long nothing was shown, what was spent, and to explore."""
    if plan["scope"] is None or plan["strategy"] in ("", Strategy.ENGINE, Strategy.REPEAT):
        return
    row = locked_calibration(run.tenant_id, UUID(plan["scope"]), Strategy(plan["strategy"]))
    row.n_lookups += 1
    row.n_since_shown += arm == Arm.NOT_WORTH
    row.spent_microusd += _billed(run, f"synthesis:{pool.position}:") + saving.verification + saving.exploration
    row.explored_microusd += saving.exploration
    row.save()


def saving_json(saving: Saving) -> dict[str, int]:
    return {
        "avoided_microusd": saving.avoided,
        "verification_microusd": saving.verification,
        "embedding_microusd": saving.embedding,
        "audit_microusd": saving.audits,
        "exploration_microusd": saving.exploration,
        "net_microusd": saving.net,
    }


def drafts_of_compile(run: CompileRun, pools: Sequence[Slice]) -> dict[str, Any]:
    """What the receipt says of drafts: this compile's counts and account, slice by slice and as a whole, and the
    family's running acceptance rate up to now. Integers."""
    told = [pool for pool in pools if pool.drafts is not None]
    total = sum((_saving_of(pool) for pool in told), Saving())
    n_shown, n_accepted = (sum(pool.drafts[name] for pool in told if pool.drafts) for name in ("n_shown", "n_accepted"))
    kept: dict[str, int] = {}
    for pool in told:
        for certificate, n in (pool.drafts or {}).get("kept_tokens", {}).items():
            kept[certificate] = kept.get(certificate, 0) + n
    return {
        "lookups": sum(pool.drafts["scope"] is not None for pool in told if pool.drafts),
        "offered": n_shown,
        "accepted": n_accepted,
        "entered": sum(pool.n_from_drafts for pool in told),
        "acceptance": rate_json(n_accepted, n_shown),
        "kept_tokens": kept,
        "max_bad_rate_ppm": round(run.spec.draft_cache.max_bad_rate * 1_000_000),
        "saving": saving_json(total),
        "family": running_rate(run.tenant_id, run.spec.family),
        "slices": [_slice_json(pool) for pool in told],
    }


def rate_json(k: int, n: int) -> dict[str, int | None]:
    """k of n with its exact 95 % interval, in ppm; null without any."""
    low, high = exact_interval(k, n)
    return {
        "rate_ppm": round(k / n * 1_000_000) if n else None,
        "low_ppm": round(low * 1_000_000) if n else None,
        "high_ppm": round(high * 1_000_000) if n else None,
    }


def _saving_of(pool: Slice) -> Saving:
    said = (pool.drafts or {}).get("saving", {})
    return Saving(
        avoided=said.get("avoided_microusd", 0),
        verification=said.get("verification_microusd", 0),
        embedding=said.get("embedding_microusd", 0),
        audits=said.get("audit_microusd", 0),
        exploration=said.get("exploration_microusd", 0),
    )


def _slice_json(pool: Slice) -> dict[str, Any]:
    plan = pool.drafts or {}
    return {
        "name": pool.name,
        "arm": plan["arm"],
        "strategy": plan["strategy"],
        "n_sources": plan["n_sources"],
        "nearest_distance_ppm": _ppm(plan["nearest_distance"]),
        "break_even_ppm": _ppm(plan.get("break_even")),
        "threshold_distance_ppm": _ppm(plan.get("threshold_distance")),
        "offered": plan["n_shown"],
        "accepted": plan["n_accepted"],
        "entered": pool.n_from_drafts,
        "proposed": plan.get("n_proposed", 0),
        "kept_tokens": plan.get("kept_tokens", {}),
        "saving": plan.get("saving", {}),
    }


def _ppm(value: float | None) -> int | None:
    return None if value is None else round(value * 1_000_000)
