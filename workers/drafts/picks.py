"""Drafts that compete unverified: the teacher is asked about those that selection picks, and about no others.

A pool of fresh candidates and unverified drafts is selected from, as if all were the teacher's: drafts that counted for
less than the others would hardly be picked where scores are close, and the pool would be the fresh ones alone. Those of
the picks that are drafts are put to the teacher, all slices in one conversation. What it refuses
leaves the pool, and so do drafts that its verdicts make unlikely; then selection picks again. It ends when no pick is
unverified, after three turns at the latest. Where refusals have left a pool short, the teacher writes more.

Where the spec names a judge of its own, that is asked in the teacher's place, as long as it is within its bounds. What
it leaves void stays in the pool, and the teacher is asked in the next turn.

Each turn is one transaction, and everything it goes by is in rows and in the journal: a process that takes over asks
the same question and finds its answers there.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from backend.compiles.models import Candidate, Slice
from backend.compiles.reactions import first_round
from backend.compiles.states import CandidateState
from backend.domain.answers.candidates import Origin
from backend.domain.drafts.calibration import acceptance_after
from backend.domain.drafts.offer_plan import OfferPlan, OfferState, ShownDraft
from backend.domain.drafts.pool_policy import FLOOR
from backend.domain.drafts.vocabulary import CERTIFIES, DraftVerdict, StoredDraft, Strategy, VerdictKind, Verification
from backend.domain.lifecycle import StepName
from backend.domain.spec.defaults import buys_in_rounds
from workers.candidates.generation import embed_slice, fill_round
from workers.drafts.delegates import standing_of
from workers.drafts.gate_verification import gate_scores
from workers.drafts.judging import judge_drafts, load_planned
from workers.drafts.records import record_verdicts, save_verdicts, verified_by
from workers.embedding.protocol import Embedder
from workers.step.durable import CompileRun
from workers.step.teacher_session import judge_session, teacher_session
from workers.teachers.protocol import TeacherFailed

N_TURNS = 3
LEAST_POOL = 0.9  # of N; below it fresh candidates fill the pool up
REFUSED, UNLIKELY = "draft_refused", "draft_unlikely"  # why a draft is no candidate
NOT_VERIFIED, NOT_ASKED = "draft_not_verified", "draft_not_asked"

Pick = Callable[[Slice, Sequence[Candidate]], Sequence[Candidate]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooling:
    """What the selection step lends: `rows` scores and reads a slice's valid candidates, `pick` selects of them."""

    embedder: Embedder
    heldout: frozenset[str]
    rows: Callable[[Slice], list[Candidate]]
    pick: Pick


def verify_picks(run: CompileRun, pooling: Pooling) -> None:
    """Verify the drafts that are picked of this compile's slices. Safe to run again at any point."""
    while slices := [row for row in _slices(run) if _is_open(row)]:
        for slice_row in slices:
            _top_up(run, slice_row, pooling)
        asked = {row.position: unverified_picks(run, row, pooling) for row in slices}
        _end(run, [row for row in slices if not asked[row.position]])
        todo = [row for row in slices if asked[row.position]]
        ids = {position: {c.draft_id for c in rows} for position, rows in asked.items() if rows}
        for strategy, rows in _by_strategy(run, todo).items():
            _ask(run, rows, ids, strategy)


def is_unverified(row: Candidate) -> bool:
    """Say whether a candidate is a draft that nobody has verified."""
    return row.origin == Origin.DRAFT and not row.certificate


def unverified_picks(run: CompileRun, slice_row: Slice, pooling: Pooling) -> list[Candidate]:
    """The unverified drafts among the slice's picks; all that it has where rounds of labelling may buy any of them."""
    rows = pooling.rows(slice_row)
    unverified = [row for row in rows if is_unverified(row)]
    if not unverified or _plan(slice_row).n_turns >= N_TURNS:
        return []
    if buys_in_rounds(run.spec):
        return unverified
    return [row for row in pooling.pick(slice_row, rows) if is_unverified(row)]


def leave_out(rows: Sequence[Candidate], reason: str) -> None:
    """Take unverified drafts out of their pool, for good."""
    for row in rows:
        row.move(CandidateState.REJECTED)
        row.reasons = [reason]
    Candidate.objects.bulk_update(rows, ["state", "reasons"], batch_size=500)


def _slices(run: CompileRun) -> list[Slice]:
    with run.transaction():
        return list(Slice.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id).order_by("position"))


def _is_open(slice_row: Slice) -> bool:
    return slice_row.offer_plan is not None and slice_row.offer_plan.state is OfferState.POOLED


def _plan(slice_row: Slice) -> OfferPlan:
    plan = slice_row.offer_plan
    assert plan is not None
    return plan


def _unverified(run: CompileRun, slice_row: Slice) -> list[Candidate]:
    rows = Candidate.objects.filter(
        tenant_id=run.tenant_id,
        slice=slice_row,
        state=CandidateState.VALID,
        origin=Origin.DRAFT,
        certificate="",
    )
    return list(rows.order_by("text_key"))


def _top_up(run: CompileRun, slice_row: Slice, pooling: Pooling) -> None:
    """Have the teacher write what refusals have left missing of N, where that is more than a tenth."""
    plan = _plan(slice_row)
    if not plan.n_turns or slice_row.round != first_round(slice_row):
        return
    with run.transaction():
        judged = Candidate.objects.filter(
            tenant_id=run.tenant_id,
            slice=slice_row,
            certificate__in=CERTIFIES.values(),
            state=CandidateState.VALID,
        )
        counted = math.floor(judged.count() + math.fsum(one.predicted for one in plan.pooled))
        if counted < plan.n_counted - (1 - LEAST_POOL) * slice_row.n_candidates:
            slice_row.offer_plan = replace(plan, n_counted=counted)
            slice_row.save(update_fields=["drafts"])
    try:
        with teacher_session(run) as session:
            fill_round(run, slice_row, session, pooling.heldout, StepName.SELECTION)
    except TeacherFailed as failed:
        if failed.retryable:
            raise
    embed_slice(run, slice_row, pooling.embedder, StepName.SELECTION)


def _end(run: CompileRun, slices: Sequence[Slice]) -> None:
    """Note that no pick of these slices waits for the teacher. Drafts that nobody was asked about stay in the pool that
    selection splits, where none of them is a pick; after the last turn they leave it."""
    with run.transaction():
        for slice_row in slices:
            plan = _plan(slice_row)
            if plan.n_turns >= N_TURNS:
                leave_out(_unverified(run, slice_row), NOT_ASKED)
                plan = replace(plan, pooled=())
            slice_row.n_from_drafts = (
                Candidate.objects.filter(
                    tenant_id=run.tenant_id, slice=slice_row, state=CandidateState.VALID, origin=Origin.DRAFT
                )
                .exclude(certificate="")
                .count()
            )
            slice_row.offer_plan = replace(plan, state=OfferState.VERIFIED)
            slice_row.save(update_fields=["drafts", "n_from_drafts"])


def _by_strategy(run: CompileRun, slices: Sequence[Slice]) -> dict[Strategy, list[Slice]]:
    """The slices by who is asked about their drafts. Where the spec's own judge is not within its bounds any more, that
    is the teacher, from now on."""
    groups: dict[Strategy, list[Slice]] = {}
    for slice_row in slices:
        scope_id, strategy = verified_by(_plan(slice_row))
        if strategy is Strategy.DELEGATE:
            with run.transaction():
                standing = standing_of(run.tenant_id, run.spec, scope_id)
                if standing is None or standing.refusal:
                    strategy = Strategy.JUDGE
                    slice_row.offer_plan = replace(_plan(slice_row), strategy=strategy)
                    slice_row.save(update_fields=["drafts"])
                    if standing is not None:
                        run.warn("draft_judge_not_used", standing.refusal, slice=slice_row.name)
        groups.setdefault(strategy, []).append(slice_row)
    return groups


def _ask(run: CompileRun, slices: Sequence[Slice], asked: Mapping[int, set[UUID]], strategy: Strategy) -> None:
    """One turn: the question about the drafts of these ids, by the position of their slice, and what comes of it."""
    loaded = {row.position: load_planned(run, _plan(row)) for row in slices}
    drafts = {
        row.position: [
            loaded[row.position][one.draft_id]
            for one in _plan(row).pooled
            if one.draft_id in asked[row.position] and one.draft_id in loaded[row.position]
        ]
        for row in slices
    }
    far = {
        row.position: [draft for one in _plan(row).far if (draft := loaded[row.position].get(one.draft_id))]
        for row in slices
    }
    turn = max(_plan(row).n_turns for row in slices)
    is_delegate = strategy is Strategy.DELEGATE
    with judge_session(run) if is_delegate else teacher_session(run) as session:
        shown = {position: rows for position, rows in drafts.items() if rows}
        judged = judge_drafts(run, session, _slices(run), shown, far=far, turn=turn, strategy=strategy)
    scores = {row.position: _gate_scores(run, row, drafts[row.position]) for row in slices}
    with run.transaction():
        is_last = bool(judged.refusal) and not judged.can_ask_teacher
        if is_last:
            run.warn("drafts_not_verified", f"No drafts are used: {judged.refusal}.")
        elif judged.refusal:
            run.warn("draft_judge_not_used", f"The teacher judges the drafts: {judged.refusal}.")
        for slice_row in slices:
            verification = judged.by_slice.get(slice_row.position, Verification(verdicts=(), is_void=True))
            at = slice_row.position
            _save(run, slice_row, asked[at], loaded[at], verification, scores[at], is_last=is_last)


def _save(
    run: CompileRun,
    slice_row: Slice,
    asked: set[UUID],
    loaded: Mapping[UUID, StoredDraft],
    verification: Verification,
    scores: Mapping[UUID, float],
    *,
    is_last: bool,
) -> None:
    """Save one slice's verdicts, what they make of its candidates, and what they teach."""
    plan = _plan(slice_row)
    accepted = {v.draft_id: v for v in verification.verdicts if v.is_accepted and v.kind is VerdictKind.VERDICT}
    judged = {v.draft_id for v in verification.verdicts if v.kind is VerdictKind.VERDICT}
    goes_on = plan.strategy is Strategy.DELEGATE and bool(asked - judged)  # with the teacher
    rest = _still_likely(plan, loaded, verification.verdicts, without=judged if goes_on else asked)
    if is_last:
        rest = ()
    kept = {one.draft_id for one in rest}
    rows = _unverified(run, slice_row)
    entered = [row for row in rows if row.draft_id in accepted]
    for row in entered:
        row.certificate = accepted[row.draft_id].certificate or ""
        row.cost_microusd = accepted[row.draft_id].cost_microusd
    Candidate.objects.bulk_update(entered, ["certificate", "cost_microusd"], batch_size=500)
    gone = [row for row in rows if row.draft_id not in accepted and row.draft_id not in kept]
    leave_out([row for row in gone if row.draft_id in judged], REFUSED)
    leave_out([row for row in gone if row.draft_id in asked - judged], NOT_VERIFIED)
    leave_out([row for row in gone if row.draft_id not in asked], UNLIKELY)
    save_verdicts(run, plan, verification, list(loaded.values()), scores)
    plan = record_verdicts(plan, verification, len(entered))
    slice_row.offer_plan = replace(
        plan,
        strategy=Strategy.JUDGE if goes_on else plan.strategy,
        pooled=rest,
        n_turns=N_TURNS if is_last else plan.n_turns + 1,
        judged_microusd=plan.judged_microusd + verification.cost.amount_microusd,
        controls=plan.far,
    )
    slice_row.save(update_fields=["drafts"])
    if verification.verdicts:
        message = f"{slice_row.name}: {len(entered)} of {len(verification.verdicts)} drafts taken"
        run.progress(StepName.SELECTION, done=0, total=slice_row.n_candidates, message=message)


def _still_likely(
    plan: OfferPlan, loaded: Mapping[UUID, StoredDraft], verdicts: Sequence[DraftVerdict], *, without: set[UUID]
) -> tuple[ShownDraft, ...]:
    """The drafts `without` those that were asked about, each with what is expected of it now: drafts of one source
    succeed and fail together. Those below the floor are no longer among them."""
    source_of = {id: draft.source_id for id, draft in loaded.items()}
    counted = [v for v in verdicts if v.kind is VerdictKind.VERDICT]
    n_shown = Counter(source_of[v.draft_id] for v in counted)
    n_accepted = Counter(source_of[v.draft_id] for v in counted if v.is_accepted)
    rest = []
    for one in plan.pooled:
        source = source_of.get(one.draft_id)
        if source is None or one.draft_id in without:
            continue
        predicted = acceptance_after(one.predicted, n_shown[source], n_accepted[source])
        if predicted >= FLOOR:
            rest.append(replace(one, predicted=predicted))
    return tuple(rest)


def _gate_scores(run: CompileRun, slice_row: Slice, drafts: Sequence[StoredDraft]) -> dict[UUID, float]:
    """The scores that the task's verifiers give the judged drafts, where the spec lets them certify a gate."""
    if not run.spec.draft_cache.gate or not drafts:
        return {}
    scores = gate_scores(run, slice_row, [draft.text for draft in drafts])
    return {} if scores is None else {draft.draft_id: s for draft, s in zip(drafts, scores, strict=True)}
