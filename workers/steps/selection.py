"""Selection, carried out: N candidates of a slice in, K picks out, the N-K rejects kept as drafts in the same
transaction. What is done where a slice holds too few distinct candidates is `mitigation`'s."""

from collections.abc import Sequence

from backend.blobs import get_jsonl
from backend.compiles.models import Candidate, Slice
from backend.compiles.states import CandidateState
from backend.domain.answers.rewards import Calibration
from backend.domain.canonical import sha256_of
from backend.domain.lifecycle import StepName
from backend.domain.planning.label_plans import first_captures, picks_in_rounds
from backend.domain.planning.step_outputs import SelectionOut, SlicingOut, VerificationOut
from backend.drafts.eviction import shrink
from backend.drafts.models import Draft
from workers.candidates.generation import add_round, heldout_keys, model_of
from workers.candidates.ranking import ranking_of, score_slice
from workers.candidates.rewards import ask_rewards
from workers.candidates.slices import slice_text
from workers.drafts.evidence.audit import audit_drafts
from workers.drafts.keeping import keep_drafts, note_outcome
from workers.drafts.picks import Pooling, verify_picks
from workers.drafts.pool_turns import NOT_ASKED, is_unverified, leave_out
from workers.drafts.savings import close_offer, drafts_of_compile
from workers.gap.mitigation import choose, select_as_asked, warn_of_gap
from workers.gap.selection_record import Chosen, emit_report, selection_record, without_columns
from workers.step.durable import CompileRun
from workers.step.embedders import embedder_of
from workers.step.result import StepDone, finish_step
from workers.step.teacher_session import teacher_session


def run_selection(run: CompileRun) -> StepDone:
    _verify_drafts(run)
    while (slice_row := _next_slice(run)) is not None:
        _select_slice(run, slice_row)
        with run.transaction():
            slices = _slices(run)
            done = sum(part.selection is not None for part in slices)
            message = f"{slice_row.name}: {slice_row.k_actual} of {slice_row.n_candidates}"
            run.progress(StepName.SELECTION, done=done, total=len(slices), message=message)
    with run.transaction() as fenced:
        done_step = _summary(run, _slices(run))
        finish_step(run, fenced, StepName.SELECTION, done_step)
    shrink(run.tenant_id)
    return done_step


def _verify_drafts(run: CompileRun) -> None:
    """Have the teacher verify the drafts that are picked, before any slice is selected from for good."""
    with run.transaction():
        has_pool = any(row.selection is None and row.offer_plan is not None for row in _slices(run))
    if not has_pool:
        return

    def rows(slice_row: Slice) -> list[Candidate]:
        _finish_round(run, slice_row)
        return _valid(run, slice_row)

    def pick(slice_row: Slice, rows: Sequence[Candidate], k: int) -> list[Candidate]:
        chosen = select_as_asked(run, slice_row, rows, k)
        return [rows[i] for i in chosen.picks]

    verify_picks(run, Pooling(embedder=embedder_of(run), heldout=heldout_keys(run), rows=rows, pick=pick))
    with run.transaction():
        slices = [row for row in _slices(run) if row.offer_plan is not None and row.offer_plan.n_pooled]
    for slice_row in slices:
        with teacher_session(run) as session:
            audit_drafts(run, slice_row, session, StepName.SELECTION)


def _valid(run: CompileRun, slice_row: Slice) -> list[Candidate]:
    with run.transaction():
        valid = Candidate.objects.filter(tenant_id=run.tenant_id, slice=slice_row, state=CandidateState.VALID)
        return list(valid.order_by("text_key"))


def _slices(run: CompileRun) -> list[Slice]:
    return list(Slice.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id).order_by("position"))


def _next_slice(run: CompileRun) -> Slice | None:
    """The first slice that is not selected from yet; the halves of one that was split come last."""
    with run.transaction():
        return next((slice_row for slice_row in _slices(run) if slice_row.selection is None), None)


def _select_slice(run: CompileRun, slice_row: Slice) -> None:
    if slice_row.is_captured and picks_in_rounds(run.spec):
        slice_row.k_requested = first_captures(run.spec, slice_row.n_candidates)  # labelling picks the others
    while True:
        _finish_round(run, slice_row)
        rows = _valid(run, slice_row)
        chosen = choose(run, slice_row, rows)
        if slice_row.selection is not None:  # it was split
            return
        if chosen is not None and not _let_go_of_unverified(run, rows, chosen):
            break
    with run.transaction():
        _save(run, slice_row, rows, chosen)
        leave_out([row for row in rows if is_unverified(row)], NOT_ASKED)
        if slice_row.offer_plan is not None:
            price = run.prices.of(model_of(run, slice_row) or run.spec.teacher.model)
            close_offer(run, slice_row, price, embedder_of(run))
            slice_row.save(update_fields=["drafts"])
        if run.spec.draft_cache.enabled and not slice_row.is_captured:
            keep_drafts(run, slice_row, rows, n_generated=slice_row.n_generated)
            note_outcome(run, slice_row, rows)


def _let_go_of_unverified(run: CompileRun, rows: Sequence[Candidate], chosen: Chosen) -> bool:
    """Take the unverified drafts out of a pool of which one would be picked now that a gap was acted on; say whether
    there were any."""
    unverified = [row for row in rows if is_unverified(row)]
    if not any(is_unverified(rows[i]) for i in chosen.selection.picks):
        return False
    with run.transaction():
        leave_out(unverified, NOT_ASKED)
    return True


def _finish_round(run: CompileRun, slice_row: Slice) -> None:
    """Have every candidate of the round that was opened last, in this process or in one that died, written, checked and
    scored, and the slice's own vector made."""
    embedder = embedder_of(run)
    if slice_row.embedding is None:  # a half that was just split off
        (vector,) = embedder.embed([slice_text(slice_row)])
        with run.transaction():
            slice_row.embedding = vector.tobytes()
            slice_row.save(update_fields=["embedding"])
    if not slice_row.is_synthesized:
        add_round(run, slice_row, embedder, heldout_keys(run), StepName.SELECTION)
    valid = Candidate.objects.filter(tenant_id=run.tenant_id, slice=slice_row, state=CandidateState.VALID)
    with run.transaction():
        is_scored = not valid.filter(score=None).exists()
    if not is_scored:
        ask_rewards(run, slice_row, StepName.SELECTION)
        gold = get_jsonl(run.tenant_id, run.output(SlicingOut).gold_train)
        rewarded = run.output(VerificationOut).reward
        calibration = None if rewarded is None else Calibration.from_json(rewarded["calibration"])
        score_slice(run, slice_row, ranking_of(run, embedder, gold, calibration))


def _save(run: CompileRun, slice_row: Slice, rows: list[Candidate], chosen: Chosen) -> None:
    """Picks, report and event, in one transaction."""
    picks = set(chosen.selection.picks)
    cluster_of = chosen.selection.report.cluster_of
    for i, row in enumerate(rows):
        row.cluster = cluster_of[i]
        if not is_unverified(row):
            row.move(CandidateState.PICKED if i in picks else CandidateState.DROPPED)
    Candidate.objects.bulk_update(rows, ["state", "cluster"], batch_size=500)
    slice_row.k_actual = len(picks)
    slice_row.selection = selection_record(slice_row, rows, chosen)
    slice_row.save()
    emit_report(run, slice_row)
    warn_of_gap(run, slice_row, chosen)


def _summary(run: CompileRun, slices: list[Slice]) -> StepDone:
    candidates = Candidate.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id)
    keys = list(candidates.filter(state=CandidateState.PICKED).order_by("text_key").values_list("text_key", flat=True))
    scored = candidates.filter(state__in=(CandidateState.PICKED, CandidateState.DROPPED)).order_by("text_key")
    output = SelectionOut(
        picks=sha256_of(keys),
        method=run.spec.sampling.method,
        n_picked=len(keys),
        n_drafts=Draft.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id, is_kept=False).count(),
        slices=[{"name": slice_row.name} | without_columns(slice_row.selection or {}) for slice_row in slices],
        drafts=drafts_of_compile(run, slices),
    )
    return StepDone(inputs={"scored": sha256_of(list(scored.values_list("text_key", flat=True)))}, output=output)
