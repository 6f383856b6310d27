"""Offering drafts to the teacher before it writes afresh: planned, asked, saved.

The plan (which drafts, how far, what was expected) is saved before the first call, so that a process that takes over
asks the same question and finds the journaled answers. What the answers say is saved in one transaction: accepted
drafts as candidates, every verdict, what they teach the calibration. The account is closed when the slice is
(`savings`): only then is known what the teacher's own writing cost.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import numpy as np

from backend.compiles.models import Compile, Outbox, Slice
from backend.domain.drafts.vocabulary import StoredDraft, Strategy, Verification
from backend.domain.errors import PaymentRequired
from backend.domain.lifecycle import StepName
from backend.drafts.cache import load_drafts
from backend.drafts.models import Scope
from backend.queue import TaskName
from workers.drafts.admission import enter, with_bounds, with_told
from workers.drafts.gate_verification import gate_scores
from workers.drafts.plan import Market, plan
from workers.drafts.proposals import look_in
from workers.drafts.records import save_repeats, save_verdicts
from workers.drafts.repeats import taken
from workers.drafts.verification_dialogue import ask_about, unasked
from workers.durable import CompileRun
from workers.embedding.protocol import Embedder
from workers.step.teacher_session import TeacherSession, seed_of
from workers.teachers.factory import identity_of
from workers.teachers.protocol import TeacherFailed


def open_market(run: CompileRun, pools: Sequence[Slice], embedder: Embedder) -> Market | None:
    """One look-up for all slices that have not looked yet; None where nothing is to be offered."""
    todo = [pool for pool in pools if pool.drafts is None and not pool.is_captured and not pool.is_synthesized]
    if not run.spec.draft_cache.enabled or run.spec.draft_cache.verify == "off" or not todo:
        return None
    vectors = np.stack([np.frombuffer(bytes(pool.embedding or b""), dtype=np.float32) for pool in todo])
    with run.fenced():
        stock = look_in(
            run.tenant_id,
            run.spec,
            identity_of(run.spec.teacher),
            embedder.identity,
            vectors,
            seed=seed_of(run, "drafts", run.compile_id),
        )
        _ask_for_reembedding(run, embedder)
    return Market(stock=stock, near={pool.id: near for pool, near in zip(todo, stock.near, strict=True)})


def _ask_for_reembedding(run: CompileRun, embedder: Embedder) -> None:
    """Drafts of an embedder that was replaced are seen by nobody: have them embedded again, for the next compile."""
    old = Scope.objects.filter(tenant_id=run.tenant_id, family=run.spec.family).exclude(
        embedder__in=("", embedder.identity)
    )
    for scope in old:
        Outbox.objects.create(
            task=TaskName.DRAFTS_REEMBED, ids={"tenant_id": str(run.tenant_id), "scope_id": str(scope.id)}
        )


def offer_drafts(
    run: CompileRun, pool: Slice, session: TeacherSession, market: Market | None, heldout: frozenset[str]
) -> None:
    """Let drafts compete for the slice's N before anything is written. Safe to run again at any point."""
    if pool.drafts is None:
        if market is None:
            return
        with run.fenced() as compile:
            pool.drafts = plan(run, pool, session, market, heldout)
            _take_repeats(run, compile, pool, heldout)
            pool.save(update_fields=["drafts", "n_from_drafts"])
    if pool.drafts["state"] == "asked":
        _settle(run, pool, *_told_of(run, pool, session), heldout)


def _take_repeats(run: CompileRun, compile: Compile, pool: Slice, heldout: frozenset[str]) -> None:
    """The drafts of this very prompt, in the transaction of the plan: there is nothing to ask about them."""
    wanted = [UUID(id) for id in pool.drafts.pop("repeats", [])]
    stored = load_drafts(run.tenant_id, run.spec.family, dict.fromkeys(wanted, 0.0))
    drafts = [stored[id] for id in wanted if id in stored]
    if not drafts:
        return
    told = with_bounds(taken(drafts), drafts, pool.drafts["missing_ppm"])
    pool.n_from_drafts = enter(run, compile, pool, told, drafts, heldout)
    save_repeats(run, pool.drafts, told, drafts)
    pool.drafts = with_told(pool.drafts, told, pool.n_from_drafts)


def _told_of(run: CompileRun, pool: Slice, session: TeacherSession) -> tuple[Verification, list[StoredDraft], str]:
    """What the teacher said of the planned drafts, which they are, and why nothing where it could not be asked: that
    does not end a compile, which can do without."""
    try:
        told, shown = ask_about(run, pool, session, pool.drafts)
    except PaymentRequired:
        return unasked(), [], "the budget has no room for the question"
    except TeacherFailed as failed:
        if failed.retryable:
            raise
        return unasked(), [], "the teacher refused the question"
    return with_bounds(told, shown, pool.drafts["missing_ppm"]), shown, ""


def _settle(
    run: CompileRun,
    pool: Slice,
    told: Verification,
    shown: Sequence[StoredDraft],
    refusal: str,
    heldout: frozenset[str],
) -> None:
    """Candidates, verdicts and what they teach, in one transaction."""
    planned = pool.drafts
    scores = _gate_scores(run, pool, planned, shown)
    with run.fenced() as compile:
        if refusal:
            run.warn("drafts_not_verified", f"Slice {pool.name}: no drafts: {refusal}.", slice=pool.name)
        entered = enter(run, compile, pool, told, shown, heldout)
        save_verdicts(run, planned, told, shown, scores)
        pool.n_from_drafts += entered
        done = {name: value for name, value in planned.items() if name not in _CARRIED_OUT}
        pool.drafts = with_told(done, told, entered) | {"state": "told", "controls": planned["far"]}
        pool.save(update_fields=["drafts", "n_from_drafts"])
        if told.verdicts:
            message = f"{pool.name}: {entered} of {len(told.verdicts)} drafts taken"
            run.progress(StepName.SYNTHESIS, done=0, total=pool.n_candidates, message=message)


def _gate_scores(
    run: CompileRun, pool: Slice, planned: dict[str, Any], shown: Sequence[StoredDraft]
) -> dict[UUID, float]:
    """What the task's verifiers give the judged drafts, where the spec lets them certify a gate."""
    if not run.spec.draft_cache.gate or planned["strategy"] != Strategy.JUDGE or not shown:
        return {}
    scores = gate_scores(run, pool, [draft.text for draft in shown])
    return {} if scores is None else {draft.draft_id: s for draft, s in zip(shown, scores, strict=True)}


_CARRIED_OUT = frozenset({"shown", "first", "far", "missing_ppm", "revision"})
