"""Which drafts a slice's teacher is to be shown, decided before anything is asked: a JSON value that is saved with the
slice (no text in it) and carried out by `verification_dialogue`."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np

from backend.compiles.models import Candidate, Slice
from backend.domain.answers.candidates import text_key
from backend.domain.drafts.calibration import distance_at
from backend.domain.drafts.vocabulary import Arm, StoredDraft, Strategy
from backend.domain.planning.estimates import CHOICES_PER_CALL
from backend.drafts.cache import NearSource, far_drafts
from backend.drafts.calibrations import calibration
from backend.drafts.models import Scope
from backend.rest.new_ids import new_uuid7
from workers.candidates.generation import shown_exemplars
from workers.drafts.gate_verification import certified, gate_of
from workers.drafts.proposals import (
    MAX_SHOWN,
    Proposal,
    Stock,
    asked_of,
    offered_by,
    propose,
    verifiers_of,
    with_old_prompts,
)
from workers.drafts.repeats import repeats
from workers.drafts.scopes import revision_of
from workers.durable import CompileRun
from workers.scoring.verifier import check_text, gate_reasons
from workers.step.teacher_session import TeacherSession, seed_of
from workers.teachers.factory import caps_of, identity_of

N_CONTROLS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Market:
    """The cache as one compile sees it: what was found, and for which slices."""

    stock: Stock
    near: dict[UUID, tuple[NearSource, ...]]  # by the slice's id


def plan(
    run: CompileRun, pool: Slice, session: TeacherSession, market: Market | None, heldout: frozenset[str]
) -> dict[str, Any]:
    near = () if market is None else market.near.get(pool.id, ())
    base: dict[str, Any] = {
        "state": "told",
        "offer": str(new_uuid7()),
        "n_wanted": pool.n_candidates,
        "n_sources": len(near),
        "nearest_distance": near[0].distance if near else None,
        "strategy": "",
        "scope": None,
        "n_shown": 0,
        "n_accepted": 0,
    }
    if market is None:
        return base | {"arm": Arm.OFF.value}
    scope = market.stock.scope
    if scope is None or not any(source.drafts for source in near):
        return base | {"arm": Arm.NO_DRAFTS.value}
    base["scope"] = str(scope.id)
    if random.Random(f"holdback/{run.compile_id}/{pool.position}").random() < run.spec.draft_cache.holdback:
        return base | {"arm": Arm.HELD_BACK.value}
    same = repeats(run.tenant_id, run.spec, pool, near, identity_of(run.spec.teacher), shown_exemplars(run, pool))
    base["repeats"] = [str(draft.draft_id) for source in same for draft in source.drafts][: pool.n_candidates]
    base["missing_ppm"] = {str(source.source_id): source.missing_ppm for source in near}
    others = [source for source in near if source not in same]
    if caps_of(run.spec.teacher).engine_drafts and run.spec.draft_cache.verify in ("auto", "engine"):
        return base | _engine_plan(others)
    n_wanted = pool.n_candidates - len(base["repeats"])
    planned = _verified_plan(run, pool, session, scope, others, n_wanted, heldout)
    if base["repeats"] and planned["arm"] in (Arm.NO_DRAFTS, Arm.NOT_WORTH):
        planned |= {"arm": Arm.OFFERED.value, "strategy": Strategy.REPEAT.value}
    return base | planned


def _engine_plan(near: Sequence[NearSource]) -> dict[str, Any]:
    """Every draft goes along with the fresh requests: the engine verifies while it writes, and asks nothing more. There
    are no verdicts: which tokens it kept is in the engine's own metrics."""
    drafts = [draft for source in near for draft in source.drafts][:MAX_SHOWN]
    return {
        "arm": Arm.OFFERED.value,
        "strategy": Strategy.ENGINE.value,
        "n_proposed": len(drafts),
        "engine": [[str(draft.draft_id), draft.distance] for draft in drafts],
    }


def _verified_plan(
    run: CompileRun,
    pool: Slice,
    session: TeacherSession,
    scope: Scope,
    near: Sequence[NearSource],
    n_wanted: int,
    heldout: frozenset[str],
) -> dict[str, Any]:
    """For what the repeats leave open."""
    if n_wanted <= 0 or not near:
        return {"arm": Arm.NO_DRAFTS.value}
    asked = asked_of(run.spec, pool, n=CHOICES_PER_CALL, exemplars=shown_exemplars(run, pool))
    asked = with_old_prompts(run.tenant_id, run.spec, asked, [source.source_id for source in near])
    verifiers = verifiers_of(run.spec, caps_of(run.spec.teacher), asked.policy)
    threshold = certified(run, scope.id) if run.spec.draft_cache.gate else None
    if threshold is not None:
        verifiers = (*verifiers, gate_of(run, pool, threshold))
    rows = {v.strategy: calibration(run.tenant_id, scope.id, v.strategy) for v in verifiers}
    if any(row.suspended_at is not None for row in rows.values()):
        return {"arm": Arm.SUSPENDED.value}
    fitting = _fitting(run, offered_by(Strategy.JUDGE, near), heldout)
    drafts = {
        v.strategy: offered_by(v.strategy, near) if v.strategy == Strategy.LOGPROBS else fitting for v in verifiers
    }
    found = propose(
        asked,
        verifiers,
        drafts,
        rows,
        session.price,
        n_wanted=n_wanted,
        seed=f"{run.compile_id}/{pool.position}",
    )
    if found is None:
        return {"arm": Arm.NO_DRAFTS.value}
    summary = {
        "arm": found.decision.arm.value,
        "strategy": found.strategy.value,
        "break_even": found.decision.break_even if math.isfinite(found.decision.break_even) else None,
        "threshold_distance": distance_at(found.curve, found.decision.break_even),
        "fresh_microusd": found.fresh_microusd,
        "price_version": session.price.version,
        "gate_threshold": threshold,
    }
    if not found.decision.shown:
        return summary
    vector = np.frombuffer(bytes(pool.embedding or b""), dtype=np.float32)
    far = far_drafts(
        run.tenant_id,
        scope,
        vector,
        near={source.source_id for source in near},
        n=N_CONTROLS,
        seed=seed_of(run, "controls", pool.position),
    )
    return summary | {
        "state": "asked",
        "revision": revision_of(scope),
        "shown": _shown_rows(found, found.decision.shown),
        "first": len(found.decision.first),
        "far": [[str(draft.draft_id), draft.distance] for draft in far],
    }


def _shown_rows(found: Proposal, order: Sequence[int]) -> list[list[Any]]:
    """[draft, distance, predicted, propensity] in the order of showing; those of the adaptive probe stand first."""
    decision = found.decision
    expected = {i: (p, q) for i, p, q in zip(decision.shown, decision.predicted, decision.propensity, strict=True)}
    first = list(decision.first)
    return [
        [str(found.drafts[i].draft_id), found.drafts[i].distance, *expected[i]]
        for i in [*first, *(i for i in order if i not in set(first))]
    ]


def _fitting(run: CompileRun, drafts: Sequence[StoredDraft], heldout: frozenset[str]) -> tuple[StoredDraft, ...]:
    """The drafts that could become candidates of this compile: what fails a check, or is here already, is not asked
    about. Only for rules that need no sample of the teacher's distribution."""
    keys = {draft.draft_id: text_key(draft.text) for draft in drafts}
    known = set(
        Candidate.objects.filter(
            tenant_id=run.tenant_id, compile_id=run.compile_id, text_key__in=list(keys.values())
        ).values_list("text_key", flat=True)
    )
    fitting = []
    for draft in drafts:
        key = keys[draft.draft_id]
        if key in known or check_text(draft.text, heldout, key) or gate_reasons(run.spec, draft.text):
            continue
        known.add(key)
        fitting.append(draft)
    return tuple(fitting)
