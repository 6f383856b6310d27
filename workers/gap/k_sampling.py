"""`training_stats.k_sampling` of the artifact: what was sampled, what was kept, why, and what it cost
(docs/kolm-format.md, section 7). Integers only."""

from typing import Any

from django.db.models import Count, Sum

from backend.compiles.models import Compile, Slice, TeacherCall
from backend.compiles.reactions import own, split_from, split_into
from backend.compiles.states import ANSWERED_STATES
from backend.domain.lifecycle import StepName
from workers.drafts.savings import drafts_of_compile
from workers.durable import CompileRun
from workers.gap.selection_record import at_k_requested, without_columns

VERSION = 1
_WRITES_CANDIDATES = (StepName.SYNTHESIS, StepName.SELECTION)


def k_sampling(run: CompileRun, compile: Compile, *, embedder: str, labels: dict[str, Any]) -> dict[str, Any]:
    """Of a compile whose selection is done; `embedder` is its identity, `labels` what the labeling step told."""
    pools = list(Slice.objects.filter(tenant_id=run.tenant_id, compile=compile).order_by("position"))
    sampling = run.spec.sampling
    signals = sorted({pool.signal for pool in pools if pool.signal})
    return {
        "version": VERSION,
        "embedder": _embedder(embedder, pools),
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
        "slices": [_slice_entry(run, pool) for pool in pools],
        "labels": labels,
        "teacher": _teacher(run, compile),
        "draft_cache": _draft_cache(run, pools, labels),
        "log": "\n".join(text for pool in pools if (text := (pool.selection or {}).get("log"))),
    }


def _embedder(identity: str, pools: list[Slice]) -> dict[str, Any]:
    """`name@sha256:...` taken apart; the width is that of the slices' own vectors."""
    name, _, digest = identity.rpartition("@sha256:")
    return {"id": name, "dim": len(bytes(pools[0].embedding or b"")) // 4 if pools else None, "sha256": digest}


def _slice_entry(run: CompileRun, pool: Slice) -> dict[str, Any]:
    """What the split at the K that was asked for looked like, and what was kept in the end."""
    record = pool.selection or {}
    forced, mitigation = at_k_requested(record), record.get("mitigation", "none")
    return {
        "slice": pool.name,
        "split_from": split_from(pool),
        "split_into": split_into(pool),
        "ranker": pool.signal or "none",
        "n_generated": pool.n_generated,
        "n_from_drafts": pool.n_from_drafts,
        "n_rejected": pool.n_rejected,
        "n_duplicates": pool.n_duplicates,
        "n_taken_over": next((e["n_taken_over"] for e in pool.reactions if e["reaction"] == "split_off"), 0),
        "n_verified": record.get("n", 0),
        "k_requested": pool.k_requested,
        "k_actual": pool.k_actual,
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
        "reactions": own(pool),
        "cluster_sizes": record.get("cluster_sizes", []),
        "picks": record.get("picks", []),
        "mean_score_ppm": record.get("mean_score_ppm"),
        "mean_pairwise_ppm": record.get("mean_pairwise_ppm"),
        "coverage_radius_ppm": record.get("coverage_radius_ppm"),
        "report": without_columns({name: value for name, value in record.items() if name != "log"}),
    }


def _teacher(run: CompileRun, compile: Compile) -> dict[str, Any]:
    """The calls that wrote candidates and named halves; what labels cost stands in the labeling step's receipt."""
    paid = TeacherCall.objects.filter(
        tenant_id=run.tenant_id, compile=compile, step__in=_WRITES_CANDIDATES, state__in=ANSWERED_STATES
    )
    sums = paid.aggregate(
        calls=Count("id"), tokens_in=Sum("input_tokens"), tokens_out=Sum("output_tokens"), cost=Sum("cost_microusd")
    )
    return {
        "calls": sums["calls"],
        "tokens_in": sums["tokens_in"] or 0,
        "tokens_out": sums["tokens_out"] or 0,
        "cost_microusd": sums["cost"] or 0,
    }


def _draft_cache(run: CompileRun, pools: list[Slice], labels: dict[str, Any]) -> dict[str, Any]:
    """What the synthesis step's receipt says of drafts, in short. `tokens_saved` are the accepted drafts' that the
    teacher did not write again; `saved_microusd` is net of what verifying cost, and may be below zero."""
    told = drafts_of_compile(run, pools)
    return {
        "lookups": told["lookups"],
        "offered": told["offered"],
        "accepted": told["accepted"],
        "acceptance_rate_ppm": told["acceptance"]["rate_ppm"],
        "acceptance_low_ppm": told["acceptance"]["low_ppm"],
        "acceptance_high_ppm": told["acceptance"]["high_ppm"],
        "kept_tokens": told["kept_tokens"],
        "tokens_saved": sum(told["kept_tokens"].values()),
        "saved_microusd": told["saving"]["net_microusd"],
        "labels_reused": labels.get("n_labeled_before", 0),
    }


def _ppm(value: float) -> int:
    return round(value * 1_000_000)
