"""`training_stats.k_sampling` of the artifact: what was sampled, what was kept, why, and what it cost
(docs/kolm-format.md, section 7). Integers only."""

from typing import Any

from django.db.models import Count, Q, Sum

from backend.compiles.models import Compile, Slice, TeacherCall
from backend.compiles.reactions import own, split_from, split_into
from backend.compiles.states import ANSWERED_STATES, DELEGATE_CALLS, REWARD_CALLS
from backend.domain.lifecycle import StepName
from workers.drafts.savings import drafts_of_compile
from workers.gap.selection_record import at_k_requested, without_columns
from workers.step.durable import CompileRun

VERSION = 1
_WRITES_CANDIDATES = (StepName.SYNTHESIS, StepName.SELECTION)


def k_sampling(run: CompileRun, compile: Compile, *, embedder: str, labels: dict[str, Any]) -> dict[str, Any]:
    """The record of a compile whose selection is done; `embedder` is its identity, `labels` what the labeling step
    told."""
    slices = list(Slice.objects.filter(tenant_id=run.tenant_id, compile=compile).order_by("position"))
    sampling = run.spec.sampling
    signals = sorted({slice_row.signal for slice_row in slices if slice_row.signal})
    return {
        "version": VERSION,
        "embedder": _embedder(embedder, slices),
        "metric": "cosine",
        "ranker": signals[0] if len(signals) == 1 else "mixed" if signals else "none",
        "method": sampling.method,
        "linkage": sampling.linkage,
        "lambda_ppm": _ppm(sampling.diversity_lambda),
        "penalty": sampling.penalty,
        "min_distance_ppm": _ppm(sampling.min_distance),
        "score_floor_ppm": None if sampling.score_floor is None else _ppm(sampling.score_floor),
        "overcluster_ppm": _ppm(sampling.overcluster),
        "on_gap": list(sampling.on_gap),
        "seed": sampling.seed,
        "slices": [_slice_entry(run, slice_row) for slice_row in slices],
        "labels": labels,
        "teacher": _teacher(run, compile),
        "draft_cache": _draft_cache(run, slices, labels),
        "log": "\n".join(text for slice_row in slices if (text := (slice_row.selection or {}).get("log"))),
    }


def _embedder(identity: str, slices: list[Slice]) -> dict[str, Any]:
    """`name@sha256:...` taken apart; the width is that of the slices' own vectors."""
    name, _, digest = identity.rpartition("@sha256:")
    return {"id": name, "dim": len(bytes(slices[0].embedding or b"")) // 4 if slices else None, "sha256": digest}


def _slice_entry(run: CompileRun, slice_row: Slice) -> dict[str, Any]:
    """The split at the K that was asked for, and what was kept in the end."""
    record = slice_row.selection or {}
    forced, mitigation = at_k_requested(record), record.get("mitigation", "none")
    return {
        "slice": slice_row.name,
        "split_from": split_from(slice_row),
        "split_into": split_into(slice_row),
        "ranker": slice_row.signal or "none",
        "n_generated": slice_row.n_generated,
        "n_from_drafts": slice_row.n_from_drafts,
        "n_rejected": slice_row.n_rejected,
        "n_duplicates": slice_row.n_duplicates,
        "n_taken_over": next((e["n_taken_over"] for e in slice_row.reactions if e["reaction"] == "split_off"), 0),
        "n_verified": record.get("n", 0),
        "k_requested": slice_row.k_requested,
        "k_actual": slice_row.k_actual,
        "method": record.get("method", run.spec.sampling.method),
        "method_reason": record.get("method_reason", ""),
        "k_natural": forced.get("k_natural", 0),
        "silhouette_natural_ppm": forced.get("silhouette_natural_ppm"),
        "silhouette_forced_ppm": forced.get("silhouette_forced_ppm"),
        "min_inter_cluster_ppm": forced.get("min_inter_cluster_ppm"),
        "n_groups": forced.get("n_groups", 0),
        "severity": forced.get("severity", "none"),
        "gap_detected": forced.get("gap_detected", False) or mitigation != "none",
        "mitigation": mitigation,
        "resynth_rounds": record.get("resynth_rounds", 0),
        "reactions": own(slice_row),
        "cluster_sizes": record.get("cluster_sizes", []),
        "picks": record.get("picks", []),
        "mean_score_ppm": record.get("mean_score_ppm"),
        "mean_pairwise_ppm": record.get("mean_pairwise_ppm"),
        "coverage_radius_ppm": record.get("coverage_radius_ppm"),
        "report": without_columns({name: value for name, value in record.items() if name != "log"}),
    }


def _teacher(run: CompileRun, compile: Compile) -> dict[str, Any]:
    """The calls that wrote candidates and named halves; what labels cost stands in the labeling step's receipt, and
    what rewards and a judge of drafts cost in those of the steps that asked them."""
    paid = TeacherCall.objects.filter(
        tenant_id=run.tenant_id, compile=compile, step__in=_WRITES_CANDIDATES, state__in=ANSWERED_STATES
    ).exclude(Q(key__startswith=REWARD_CALLS) | Q(key__startswith=DELEGATE_CALLS))
    sums = paid.aggregate(
        calls=Count("id"), tokens_in=Sum("input_tokens"), tokens_out=Sum("output_tokens"), cost=Sum("cost_microusd")
    )
    return {
        "calls": sums["calls"],
        "tokens_in": sums["tokens_in"] or 0,
        "tokens_out": sums["tokens_out"] or 0,
        "cost_microusd": sums["cost"] or 0,
    }


def _draft_cache(run: CompileRun, slices: list[Slice], labels: dict[str, Any]) -> dict[str, Any]:
    """The part about drafts of the synthesis step's receipt, in short. `tokens_saved` are the accepted drafts' that the
    teacher did not write again; `saved_microusd` is net of what verifying cost, and may be below zero."""
    drafts = drafts_of_compile(run, slices)
    return {
        "lookups": drafts["lookups"],
        "offered": drafts["offered"],
        "accepted": drafts["accepted"],
        "acceptance_rate_ppm": drafts["acceptance"]["rate_ppm"],
        "acceptance_low_ppm": drafts["acceptance"]["low_ppm"],
        "acceptance_high_ppm": drafts["acceptance"]["high_ppm"],
        "kept_tokens": drafts["kept_tokens"],
        "tokens_saved": sum(drafts["kept_tokens"].values()),
        "saved_microusd": drafts["saving"]["net_microusd"],
        "labels_reused": labels.get("n_labeled_before", 0),
    }


def _ppm(value: float) -> int:
    return round(value * 1_000_000)
