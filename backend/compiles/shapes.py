"""The public shapes: rows as the JSON that the API answers."""

from typing import Any

from backend.compiles.models import Candidate, Compile, CompileEvent, Slice, StepRun, TeacherKey, Upload
from backend.compiles.reactions import split_from, split_into
from backend.domain.ids import Prefix, encode_id
from backend.domain.lifecycle import STEPS
from backend.domain.planning.ablations import Comparison
from backend.rest.times import rfc3339


def compile_shape(row: Compile, *, with_spec: bool = True) -> dict[str, Any]:
    failure = None
    if row.failure_code:
        failure = {"code": row.failure_code, "message": row.failure_message, "step": row.failed_step or None}
    shape: dict[str, Any] = {
        "id": encode_id(Prefix.COMPILE, row.id),
        "object": "compile",
        "name": row.name,
        "family": row.family,
        "status": row.status,
        "spec_sha256": row.spec_sha256,
        "estimate": row.estimate,
        "budget_microusd": row.budget_microusd,
        "reserved_microusd": row.reserved_microusd,
        "spent_microusd": row.spent_microusd,
        "waste_microusd": row.waste_microusd,
        "currency": "usd",
        "k_score_ppm": row.k_score_ppm,
        "evaluation": row.evaluation,
        "gate": row.gate,
        "artifact": None if row.artifact_id is None else encode_id(Prefix.ARTIFACT, row.artifact_id),
        "ablation": ablation_part(row),
        "failure": failure,
        "sequence": row.event_seq,
        "created_at": rfc3339(row.created_at),
        "started_at": rfc3339(row.started_at),
        "ended_at": rfc3339(row.ended_at),
        "last_progress_at": rfc3339(row.last_progress_at),
    }
    return shape | ({"spec": row.spec} if with_spec else {})


def ablation_part(row: Compile) -> dict[str, Any] | None:
    """Return the compile that this one is an ablation of, and the arm."""
    return None if row.ablation_of is None else {"of": encode_id(Prefix.COMPILE, row.ablation_of), "arm": row.arm}


def ablation_shape(row: Compile, comparison: Comparison | None) -> dict[str, Any]:
    """One arm as `GET /v1/compiles/{id}/ablations` lists it; `comparison` once it is measured."""
    whole = compile_shape(row, with_spec=False)
    kept = ("id", "name", "status", "failure", "spent_microusd", "k_score_ppm", "created_at", "ended_at")
    return {
        "object": "ablation",
        **{name: whole[name] for name in kept},
        **whole["ablation"],
        "comparison": None if comparison is None else comparison.to_json(),
    }


def step_shape(row: StepRun) -> dict[str, Any]:
    return {
        "id": encode_id(Prefix.STEP, row.id),
        "object": "step",
        "name": row.name,
        "position": STEPS.index(row.name),  # type: ignore[arg-type]
        "status": row.status,
        "attempts": row.attempts,
        "progress": {"done": row.done, "total": row.total, "message": row.message},
        "estimate": row.estimate or None,
        "spent_microusd": row.spent_microusd,
        "waste_microusd": row.waste_microusd,
        "output": row.output or None,
        "started_at": rfc3339(row.started_at),
        "ended_at": rfc3339(row.ended_at),
    }


def slice_shape(row: Slice) -> dict[str, Any]:
    report = {k: v for k, v in (row.selection or {}).items() if k != "cluster_of"} or None
    return {
        "id": encode_id(Prefix.SLICE, row.id),
        "object": "slice",
        "name": row.name,
        "share_ppm": row.share_ppm,
        "hint": row.hint,
        "label": row.label or None,
        "n_candidates": row.n_candidates,
        "n_generated": row.n_generated,
        "n_from_drafts": row.n_from_drafts,
        "n_rejected": row.n_rejected,
        "n_duplicates": row.n_duplicates,
        "k_requested": row.k_requested,
        "k_actual": row.k_actual,
        "signal": row.signal or None,
        "split_from": split_from(row),
        "split_into": split_into(row),
        "reactions": row.reactions,
        "drafts": _drafts_shape(row),
        "selection": report,
    }


def _drafts_shape(row: Slice) -> dict[str, Any] | None:
    """Counts and money; null for a slice that looked for no drafts (captures, halves, a cache that is off)."""
    plan = row.drafts
    if plan is None:
        return None
    return {
        "arm": plan["arm"],
        "strategy": plan["strategy"] or None,
        "n_sources": plan["n_sources"],
        "nearest_distance": plan["nearest_distance"],
        "break_even": plan.get("break_even"),
        "threshold_distance": plan.get("threshold_distance"),
        "offered": plan["n_shown"],
        "accepted": plan["n_accepted"],
        "entered": row.n_from_drafts,
        "saving": plan.get("saving"),
    }


def candidate_shape(row: Candidate, slice_name: str) -> dict[str, Any]:
    return {
        "id": encode_id(Prefix.CANDIDATE, row.id),
        "object": "candidate",
        "slice": slice_name,
        "text": row.text,
        "origin": row.origin,
        "certificate": row.certificate or None,
        "state": row.state,
        "reasons": row.reasons,
        "score": row.score,
        "signal": row.signal or None,
        "logprob": row.logprob,
        "n_tokens": row.n_tokens,
        "cluster": row.cluster,
        "label": row.label or None,
        "answer": row.answer or None,
        "votes": row.votes,
        "agreement_ppm": row.agreement_ppm,
        "cost_microusd": row.cost_microusd,
        "created_at": rfc3339(row.created_at),
    }


def event_shape(row: CompileEvent) -> dict[str, Any]:
    return {
        "object": "event",
        "type": row.type,
        "seq": row.seq,
        "data": row.data,
        "created_at": rfc3339(row.created_at),
    }


def upload_shape(row: Upload) -> dict[str, Any]:
    return {
        "id": encode_id(Prefix.UPLOAD, row.id),
        "object": "upload",
        "purpose": row.purpose,
        "sha256": row.sha256,
        "size_bytes": row.size_bytes,
        "n_rows": row.n_rows,
        "created_at": rfc3339(row.created_at),
    }


def teacher_key_shape(row: TeacherKey) -> dict[str, Any]:
    return {
        "id": encode_id(Prefix.TEACHER_KEY, row.id),
        "object": "teacher_key",
        "name": row.name,
        "last4": row.last4,
        "created_at": rfc3339(row.created_at),
    }
