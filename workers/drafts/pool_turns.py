"""One question about drafts that compete unverified, and what its verdicts make of them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from backend.compiles.models import Candidate, Slice
from backend.compiles.states import CandidateState
from backend.domain.answers.candidates import Origin
from backend.domain.drafts.calibration import acceptance_after
from backend.domain.drafts.offer_plan import OfferPlan, ShownDraft
from backend.domain.drafts.pool_policy import FLOOR
from backend.domain.drafts.vocabulary import DraftVerdict, StoredDraft, Strategy, VerdictKind, Verification
from backend.domain.lifecycle import StepName
from workers.drafts.delegates import standing_of
from workers.drafts.gate_verification import gate_scores
from workers.drafts.judging import judge_drafts, load_planned
from workers.drafts.records import record_verdicts, save_verdicts, verified_by
from workers.step.durable import CompileRun
from workers.step.teacher_session import judge_session, teacher_session

N_TURNS = 3  # questions about a slice's drafts
REFUSED, UNLIKELY = "draft_refused", "draft_unlikely"  # why a draft is no candidate
NOT_VERIFIED, NOT_ASKED = "draft_not_verified", "draft_not_asked"


def is_unverified(row: Candidate) -> bool:
    """Say whether a candidate is a draft that nobody has verified."""
    return row.origin == Origin.DRAFT and not row.certificate


def leave_out(rows: Sequence[Candidate], reason: str) -> None:
    """Take unverified drafts out of their pool, for good."""
    for row in rows:
        row.move(CandidateState.REJECTED)
        row.reasons = [reason]
    Candidate.objects.bulk_update(rows, ["state", "reasons"], batch_size=500)


def slices_of(run: CompileRun) -> list[Slice]:
    """All slices of the compile."""
    with run.transaction():
        return list(Slice.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id).order_by("position"))


def plan_of(slice_row: Slice) -> OfferPlan:
    """The plan of a slice that has one."""
    plan = slice_row.offer_plan
    assert plan is not None
    return plan


def unverified_of(run: CompileRun, slice_row: Slice) -> list[Candidate]:
    """The drafts that compete in the slice's pool and that nobody has verified, inside a transaction."""
    rows = Candidate.objects.filter(
        tenant_id=run.tenant_id,
        slice=slice_row,
        state=CandidateState.VALID,
        origin=Origin.DRAFT,
        certificate="",
    )
    return list(rows.order_by("text_key"))


def ask_about(run: CompileRun, step: StepName, slices: Sequence[Slice], asked: Mapping[int, set[UUID]]) -> None:
    """One turn: a question to the teacher, or to the spec's own judge, about the drafts of these ids by the position of
    their slice, and what comes of it."""
    for strategy, rows in _by_strategy(run, slices).items():
        _ask(run, step, rows, asked, strategy)


def _by_strategy(run: CompileRun, slices: Sequence[Slice]) -> dict[Strategy, list[Slice]]:
    """The slices by who is asked about their drafts. Where the spec's own judge is not within its bounds any more, that
    is the teacher, from now on."""
    groups: dict[Strategy, list[Slice]] = {}
    for slice_row in slices:
        scope_id, strategy = verified_by(plan_of(slice_row))
        if strategy is Strategy.DELEGATE:
            with run.transaction():
                standing = standing_of(run.tenant_id, run.spec, scope_id)
                if standing is None or standing.refusal:
                    strategy = Strategy.JUDGE
                    slice_row.offer_plan = replace(plan_of(slice_row), strategy=strategy)
                    slice_row.save(update_fields=["drafts"])
                    if standing is not None:
                        run.warn("draft_judge_not_used", standing.refusal, slice=slice_row.name)
        groups.setdefault(strategy, []).append(slice_row)
    return groups


def _ask(
    run: CompileRun,
    step: StepName,
    slices: Sequence[Slice],
    asked: Mapping[int, set[UUID]],
    strategy: Strategy,
) -> None:
    """One turn: the question about the drafts of these ids, by the position of their slice, and what comes of it."""
    loaded = {row.position: load_planned(run, plan_of(row)) for row in slices}
    drafts = {
        row.position: [
            loaded[row.position][one.draft_id]
            for one in plan_of(row).pooled
            if one.draft_id in asked[row.position] and one.draft_id in loaded[row.position]
        ]
        for row in slices
    }
    far = {
        row.position: [draft for one in plan_of(row).far if (draft := loaded[row.position].get(one.draft_id))]
        for row in slices
    }
    turn = max(plan_of(row).n_turns for row in slices)
    is_delegate = strategy is Strategy.DELEGATE
    with judge_session(run) if is_delegate else teacher_session(run) as session:
        shown = {position: rows for position, rows in drafts.items() if rows}
        judged = judge_drafts(run, step, session, slices_of(run), shown, far=far, turn=turn, strategy=strategy)
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
            _save(run, step, slice_row, asked[at], loaded[at], verification, scores[at], is_last=is_last)


def _save(
    run: CompileRun,
    step: StepName,
    slice_row: Slice,
    asked: set[UUID],
    loaded: Mapping[UUID, StoredDraft],
    verification: Verification,
    scores: Mapping[UUID, float],
    *,
    is_last: bool,
) -> None:
    """Save one slice's verdicts, what they make of its candidates, and what they teach."""
    plan = plan_of(slice_row)
    accepted = {v.draft_id: v for v in verification.verdicts if v.is_accepted and v.kind is VerdictKind.VERDICT}
    judged = {v.draft_id for v in verification.verdicts if v.kind is VerdictKind.VERDICT}
    goes_on = plan.strategy is Strategy.DELEGATE and bool(asked - judged)  # with the teacher
    rest = _still_likely(plan, loaded, verification.verdicts, without=judged if goes_on else asked)
    if is_last:
        rest = ()
    kept = {one.draft_id for one in rest}
    rows = unverified_of(run, slice_row)
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
        run.progress(step, done=0, total=slice_row.n_candidates, message=message)


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
