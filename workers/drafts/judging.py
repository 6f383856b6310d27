"""The question to the teacher, or to the spec's own judge, about the drafts of several slices: put together from the
compile's rows, asked through the journal."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

import numpy as np

from backend.compiles.models import Candidate, Slice, TeacherCall
from backend.compiles.states import ANSWERED_STATES, CANDIDATE_CALLS, DELEGATE_CALLS, CandidateState
from backend.domain.answers.candidates import Origin
from backend.domain.drafts.offer_plan import OfferPlan
from backend.domain.drafts.vocabulary import CERTIFIES, StoredDraft, Strategy, Verification
from backend.domain.errors import PaymentRequired
from backend.domain.lifecycle import StepName
from backend.domain.spec.parsing import Spec, judged_by
from backend.drafts.cache import load_drafts
from workers.candidates.engine_proposals import cache_salt_of
from workers.candidates.ranking import stack
from workers.drafts.described_slices import describe
from workers.drafts.dialogues import run_dialogue
from workers.embedding.protocol import Rows
from workers.step.durable import CompileRun
from workers.step.teacher_session import TeacherSession, seed_of
from workers.teachers.judges.batches import NO_DRAFT
from workers.teachers.judges.compile_judge import judge_compile
from workers.teachers.judges.judged_slices import Control, JudgedSlice, JudgeQuestion, judge_question
from workers.teachers.protocol import TeacherFailed

MAX_POSITIVES = 8  # of a slice's fresh candidates, as positive controls
MAX_NEGATIVES = 16
NEAR_SHARE = 0.25  # of the texts of other labels: the nearest are near misses, the very nearest may be none


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The verdicts by the slice's position; `refusal` says why there are none where the teacher could not be asked.
    Where it was another model that refused, the teacher may still be asked (`can_ask_teacher`)."""

    by_slice: Mapping[int, Verification]
    refusal: str = ""
    can_ask_teacher: bool = False


def load_planned(run: CompileRun, plan: OfferPlan) -> dict[UUID, StoredDraft]:
    """The drafts of a plan that compete unverified, and its far ones, by id; what was deleted since is not there."""
    distances = {one.draft_id: one.distance for one in plan.pooled} | {one.draft_id: one.distance for one in plan.far}
    kinships = {one.draft_id: one.kinship for one in plan.pooled}
    with run.transaction():
        stored = load_drafts(run.tenant_id, run.spec.family, distances)
    return {id: replace(draft, kinship=kinships.get(id, draft.kinship)) for id, draft in stored.items()}


def judge_drafts(
    run: CompileRun,
    step: StepName,
    session: TeacherSession,
    slices: Sequence[Slice],
    asked: Mapping[int, Sequence[StoredDraft]],
    *,
    far: Mapping[int, Sequence[StoredDraft]],
    turn: int,
    strategy: Strategy,
) -> Judged:
    """Ask the teacher, or the spec's own judge, about the drafts by the position of their slice, in one conversation;
    `session` is of the one that `strategy` names. Where it cannot be asked, the compile does without them. `slices` are
    all of the compile."""
    is_delegate = strategy is Strategy.DELEGATE
    question = _question(run, judged_by(run.spec) if is_delegate else run.spec, slices, asked, far)
    rng = random.Random(seed_of(run, "verification", run.compile_id, turn))
    key = f"{DELEGATE_CALLS if is_delegate else 'drafts:'}all:{turn}"
    conversation = judge_compile(question, rng, CERTIFIES[strategy])
    try:
        by_slice, revisions = run_dialogue(run, step, session, key, conversation)
    except PaymentRequired:
        return Judged(by_slice={}, refusal="the budget has no room for the question")
    except TeacherFailed as failed:
        if failed.retryable:
            raise
        who = "the judge" if is_delegate else "the teacher"
        return Judged(by_slice={}, refusal=f"{who} refused the question", can_ask_teacher=is_delegate)
    if is_delegate:
        revisions = _revisions_of_teacher(run)
    return Judged(by_slice=_of_known_revision(run, slices, by_slice, revisions))


def _revisions_of_teacher(run: CompileRun) -> set[str]:
    """The revisions that wrote this compile's candidates."""
    calls = TeacherCall.objects.filter(
        tenant_id=run.tenant_id,
        compile_id=run.compile_id,
        key__startswith=CANDIDATE_CALLS,
        model=run.spec.teacher.model,
        state__in=ANSWERED_STATES,
    )
    with run.transaction():
        return set(calls.exclude(revision="").values_list("revision", flat=True))


def _of_known_revision(
    run: CompileRun, slices: Sequence[Slice], by_slice: Mapping[int, Verification], revisions: set[str]
) -> dict[int, Verification]:
    """The verdicts, but those of a teacher that turns out to be another than the one that wrote the drafts."""
    kept: dict[int, Verification] = {}
    for slice_row in slices:
        if slice_row.position not in by_slice:
            continue
        one, plan = by_slice[slice_row.position], slice_row.offer_plan
        known = "" if plan is None or run.spec.teacher.revision else plan.revision
        if known and revisions - {known}:
            with run.transaction():
                run.warn(
                    "teacher_revision_changed",
                    "The teacher is another revision than the one that wrote the drafts: their verdicts count for "
                    "nothing.",
                    slice=slice_row.name,
                )
            one = Verification(verdicts=(), cost=one.cost, is_void=True)
        kept[slice_row.position] = one
    return kept


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pool:
    """A slice's valid candidates: `texts` in the order of their keys, with unit `rows` (n, d); `is_fresh` those that
    the teacher wrote for this compile."""

    label: str
    texts: list[str]
    ids: list[UUID]
    is_fresh: list[bool]
    rows: Rows

    @property
    def fresh(self) -> list[str]:
        return [text for text, is_fresh in zip(self.texts, self.is_fresh, strict=True) if is_fresh]


def _question(
    run: CompileRun,
    asked_of: Spec,
    slices: Sequence[Slice],
    asked: Mapping[int, Sequence[StoredDraft]],
    far: Mapping[int, Sequence[StoredDraft]],
) -> JudgeQuestion:
    filled = [slice_row for slice_row in slices if not slice_row.is_captured]
    pools = {slice_row.position: _pool(run, slice_row) for slice_row in filled}
    judged = tuple(_as_asked(slice_row, pools, asked, far) for slice_row in filled)
    salt = cache_salt_of(run) if asked_of.teacher.engine is not None else None
    return judge_question(asked_of, judged, seed=seed_of(run, "judge"), cache_salt=salt)


def audit_question(run: CompileRun, slice_row: Slice) -> tuple[JudgeQuestion, JudgedSlice]:
    """The slice in the company of the compile's others, to ask about one of its drafts again."""
    slices = Slice.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id, is_captured=False)
    with run.transaction():
        filled = list(slices.order_by("position"))
    plan = slice_row.offer_plan
    far = [] if plan is None else list(load_planned(run, plan).values())
    asked: dict[int, Sequence[StoredDraft]] = {slice_row.position: ()}
    question = _question(run, run.spec, filled, asked, {slice_row.position: far})
    return question, next(one for one in question.slices if one.key == slice_row.position)


def _as_asked(
    slice_row: Slice,
    pools: "Mapping[int, _Pool]",
    asked: Mapping[int, Sequence[StoredDraft]],
    far: Mapping[int, Sequence[StoredDraft]],
) -> JudgedSlice:
    position, shown = slice_row.position, describe(slice_row)
    if position not in asked:
        return shown
    return replace(
        shown,
        drafts=tuple(asked[position]),
        negatives=_near_misses(position, pools) or _as_controls(far.get(position, ())),
        positives=tuple(pools[position].fresh[:MAX_POSITIVES]),
    )


def _pool(run: CompileRun, slice_row: Slice) -> _Pool:
    valid = Candidate.objects.filter(tenant_id=run.tenant_id, slice=slice_row, state=CandidateState.VALID)
    with run.transaction():
        rows = list(valid.exclude(embedding=None).order_by("text_key").only("text", "draft_id", "origin", "embedding"))
    return _Pool(
        label=slice_row.label,
        texts=[row.text for row in rows],
        ids=[row.draft_id or NO_DRAFT for row in rows],
        is_fresh=[row.origin == Origin.FRESH for row in rows],
        rows=stack([row.embedding for row in rows]),
    )


def _near_misses(position: int, pools: Mapping[int, _Pool]) -> tuple[Control, ...]:
    """Texts of other labels that lie near the slice's own, in no order: a judge that accepts one errs where it matters.
    The teacher's new texts where there are any. Nothing where the slice has no label, or no other one has texts."""
    mine = pools[position]
    others = [pool for pool in pools.values() if mine.label and pool.label and pool.label != mine.label and pool.texts]
    if not others or not mine.texts:
        return ()
    centre = mine.rows.mean(axis=0)
    is_fresh = np.array([each for pool in others for each in pool.is_fresh])
    texts = [(text, id) for pool in others for text, id in zip(pool.texts, pool.ids, strict=True)]
    cosines = np.concatenate([pool.rows for pool in others]) @ centre
    places = np.flatnonzero(is_fresh) if is_fresh.any() else np.arange(len(texts))
    n_near = max(MAX_NEGATIVES, round(NEAR_SHARE * len(places)))
    near = places[np.argsort(-cosines[places], kind="stable")][:n_near].tolist()
    chosen = random.Random(f"near misses/{position}/{len(texts)}").sample(near, min(MAX_NEGATIVES, len(near)))
    return tuple(Control(text=texts[i][0], draft_id=texts[i][1]) for i in chosen)


def _as_controls(drafts: Sequence[StoredDraft]) -> tuple[Control, ...]:
    return tuple(Control(text=draft.text, draft_id=draft.draft_id) for draft in drafts)
