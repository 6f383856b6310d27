"""The draft cache's rows and sums as the API writes them."""

from collections.abc import Sequence
from typing import Any

from backend.domain.drafts.calibration import GRID_VERSION, predict
from backend.domain.drafts.judge_controls import exact_interval
from backend.domain.drafts.vocabulary import Saving
from backend.domain.ids import Prefix, encode_id
from backend.drafts.calibrations import curve_of, measured_bad_rate
from backend.drafts.models import Calibration, Draft, Scope, Verdict
from backend.drafts.purging import Purged
from backend.drafts.tallies import Band, FamilyStats, Holdings, ScopeStats, Side, Tally
from backend.rest.times import rfc3339

LEVEL = 0.95  # of every interval
CURVE_POINTS_PPM = range(0, 1_000_001, 50_000)


def family_shape(family: FamilyStats) -> dict[str, Any]:
    return {
        "object": "draft_stats",
        "family": family.family,
        **holdings_shape(family.holdings),
        "lookups": tally_shape(family.tally, [band for scope in family.scopes for band in scope.verified]),
        "labels": {"n_reused": family.labels.n_reused, "avoided_microusd": family.labels.saving.avoided},
        "net_microusd": (family.tally.saving + family.labels.saving).net,
        "holdback": holdback_shape(family.held_back, family.not_held_back),
        "scopes": [scope_shape(scope) for scope in family.scopes],
    }


def scope_shape(scope: ScopeStats) -> dict[str, Any]:
    return {
        "teacher": scope.scope.teacher,
        "embedder": scope.scope.embedder,
        **holdings_shape(scope.holdings),
        "lookups": tally_shape(scope.tally, scope.verified),
        "strategies": [
            strategy_shape(name, tally, scope.bands.get(name, ()), scope.calibrations.get(name))
            for name, tally in scope.tallies.items()
        ],
    }


def holdings_shape(held: Holdings) -> dict[str, Any]:
    return {
        "n_drafts": held.n_drafts,
        "n_kept": held.n_kept,
        "n_quarantined": held.n_quarantined,
        "n_sources": held.n_sources,
        "n_bytes": held.n_bytes,
        "n_tokens": held.n_tokens,
        "cost_microusd": held.cost_microusd,
        "newest_at": rfc3339(held.newest_at),
    }


def tally_shape(tally: Tally, verified: Sequence[Band]) -> dict[str, Any]:
    """`verified` are the verdicts that the acceptance is counted over."""
    return {
        "n_lookups": tally.n_lookups,
        "arms": dict(sorted(tally.arms.items())),
        "n_shown": tally.n_shown,
        "n_accepted": tally.n_accepted,
        "n_reused": tally.n_reused,
        "acceptance": rate_shape(sum(b.n_accepted for b in verified), sum(b.n_shown for b in verified)),
        "kept_tokens": dict(sorted(tally.kept_tokens.items())),
        **saving_shape(tally.saving),
    }


def saving_shape(saving: Saving) -> dict[str, int]:
    return {
        "avoided_microusd": saving.avoided,
        "verification_microusd": saving.verification,
        "embedding_microusd": saving.embedding,
        "audit_microusd": saving.audits,
        "exploration_microusd": saving.exploration,
        "net_microusd": saving.net,
    }


def rate_shape(k: int, n: int) -> dict[str, int | None]:
    """`k` of `n` with its exact 95 % interval; nulls where there is nothing to divide."""
    if n == 0:
        return {"k": k, "n": n, "rate_ppm": None, "low_ppm": None, "high_ppm": None}
    low, high = exact_interval(k, n, LEVEL)
    return {"k": k, "n": n, "rate_ppm": ppm(k / n), "low_ppm": ppm(low), "high_ppm": ppm(high)}


def strategy_shape(name: str, tally: Tally, bands: Sequence[Band], known: Calibration | None) -> dict[str, Any]:
    """Return a strategy's figures. `known` is None for one that was never used so far: nothing was audited, the judge's
    errors are unknown."""
    known = known or Calibration(log_posterior=b"", grid_version=GRID_VERSION)
    return {
        "strategy": name,
        "lookups": tally_shape(tally, bands),
        "is_suspended": known.suspended_at is not None,
        "suspended_at": rfc3339(known.suspended_at),
        "bad_drafts": bad_drafts_shape(known),
        "negative_controls": rate_shape(known.n_negative_accepted, known.n_negative_controls),
        "positive_controls": rate_shape(known.n_positive_accepted, known.n_positive_controls),
        "n_observations": known.n_observations,
        "by_distance": [
            {"distance_ppm": ppm(band.distance), **rate_shape(band.n_accepted, band.n_shown)} for band in bands
        ],
        "curve": curve_shape(known),
    }


def bad_drafts_shape(known: Calibration) -> dict[str, int | None]:
    """The share of accepted drafts that are bad, as the fall-back sees it: its interval holds at all times at once."""
    rate = measured_bad_rate(known)
    return {
        "n_audited": known.n_audited,
        "n_refused": known.n_audited_bad,
        "rate_ppm": None if rate.estimate is None else ppm(rate.estimate),
        "low_ppm": ppm(rate.low),
        "high_ppm": ppm(rate.high),
        "bound_ppm": None if known.max_bad_rate is None else ppm(known.max_bad_rate),
    }


def curve_shape(known: Calibration) -> list[dict[str, int]] | None:
    """The acceptance that the next look-up expects, by distance; None before the first verdict."""
    if known.n_observations == 0 or known.grid_version != GRID_VERSION:
        return None
    expected = predict(curve_of(known), [point / 1_000_000 for point in CURVE_POINTS_PPM])
    return [
        {"distance_ppm": point, "acceptance_ppm": ppm(float(value))}
        for point, value in zip(CURVE_POINTS_PPM, expected, strict=True)
    ]


def holdback_shape(held_back: Side | None, others: Side | None) -> dict[str, Any] | None:
    if held_back is None or others is None:
        return None
    return {"held_back": _side_shape(held_back), "not_held_back": _side_shape(others)}


def _side_shape(side: Side) -> dict[str, Any]:
    cost = side.cost_per_candidate_microusd
    return {
        "n_slices": side.n_slices,
        "n_candidates": side.n_candidates,
        "cost_per_candidate_microusd": None if cost is None else round(cost, 3),
        "mean_score": None if side.mean_score is None else round(side.mean_score, 6),
    }


def draft_shape(row: Draft, scope: Scope, text: str | None) -> dict[str, Any]:
    return {
        "id": encode_id(Prefix.DRAFT, row.id),
        "object": "draft",
        "family": scope.family,
        "teacher": scope.teacher,
        "embedder": scope.embedder,
        "text": text,
        "state": row.state,
        "is_kept": row.is_kept,
        "score": row.score,
        "signal": row.signal or None,
        "logprob": row.logprob,
        "n_tokens": row.n_tokens,
        "n_bytes": row.n_bytes,
        "n_shown": row.n_shown,
        "n_accepted": row.n_accepted,
        "root": None if row.root_id is None else encode_id(Prefix.DRAFT, row.root_id),
        "compile": encode_id(Prefix.COMPILE, row.compile_id),
        "cost_microusd": row.cost_microusd,
        "created_at": rfc3339(row.created_at),
        "expires_at": rfc3339(row.expires_at),
    }


def verdict_shape(row: Verdict) -> dict[str, Any]:
    return {
        "compile": encode_id(Prefix.COMPILE, row.compile_id),
        "strategy": row.strategy,
        "kind": row.kind,
        "certificate": row.certificate or None,
        "is_accepted": row.is_accepted,
        "distance_ppm": ppm(row.distance),
        "predicted_ppm": ppm(row.predicted),
        "n_tokens_kept": row.n_tokens_kept,
        "cost_microusd": row.cost_microusd,
        "created_at": rfc3339(row.created_at),
    }


def purge_shape(family: str, purged: Purged) -> dict[str, Any]:
    return {
        "object": "draft_purge",
        "family": family,
        "n_drafts": purged.n_drafts,
        "n_sources": purged.n_sources,
        "n_label_drafts": purged.n_label_drafts,
        "n_calibrations": purged.n_calibrations,
        "n_keys": purged.n_keys,
    }


def ppm(share: float) -> int:
    return round(share * 1_000_000)
