"""Selection, carried out: N candidates of a slice in, K picks out, the N-K rejects kept as drafts in the same
transaction. What is done where a slice holds too few distinct candidates is `mitigation`'s."""

from backend.blobs import get_jsonl
from backend.compiles.models import Candidate, Slice
from backend.compiles.states import CandidateState
from backend.domain.canonical import sha256_of
from backend.domain.lifecycle import StepName
from backend.domain.planning.step_outputs import SelectionOut, SlicingOut
from backend.drafts.eviction import shrink
from backend.drafts.models import Draft
from workers.candidates.generation import add_round, heldout_keys
from workers.candidates.ranking import score_pool
from workers.candidates.slices import slice_text
from workers.drafts.keeping import keep_drafts, note_outcome
from workers.durable import CompileRun
from workers.embedding.sentence import load_embedder
from workers.gap.mitigation import choose, warn_of_gap
from workers.gap.selection_record import Chosen, selection_record, tell, without_columns
from workers.step.result import StepDone, finish_step


def run_selection(run: CompileRun) -> StepDone:
    while (pool := _next_pool(run)) is not None:
        _select_pool(run, pool)
        with run.fenced():
            pools = _pools(run)
            done = sum(part.selection is not None for part in pools)
            message = f"{pool.name}: {pool.k_actual} of {pool.n_candidates}"
            run.progress(StepName.SELECTION, done=done, total=len(pools), message=message)
    with run.fenced() as fenced:
        done_step = _summary(run, _pools(run))
        finish_step(run, fenced, StepName.SELECTION, done_step)
    shrink(run.tenant_id)
    return done_step


def _pools(run: CompileRun) -> list[Slice]:
    return list(Slice.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id).order_by("position"))


def _next_pool(run: CompileRun) -> Slice | None:
    """The first slice that is not selected from yet; the halves of one that was split come last."""
    with run.fenced():
        return next((pool for pool in _pools(run) if pool.selection is None), None)


def _select_pool(run: CompileRun, pool: Slice) -> None:
    while True:
        _finish_round(run, pool)
        valid = Candidate.objects.filter(tenant_id=run.tenant_id, slice=pool, state=CandidateState.VALID)
        with run.fenced():
            rows = list(valid.order_by("text_key"))
        chosen = choose(run, pool, rows)
        if pool.selection is not None:  # it was split
            return
        if chosen is not None:
            break
    with run.fenced():
        _save(run, pool, rows, chosen)
        if run.spec.draft_cache.enabled and not pool.is_captured:
            keep_drafts(run, pool, rows)
            note_outcome(run, pool, rows)


def _finish_round(run: CompileRun, pool: Slice) -> None:
    """Have every candidate of the round that was opened last, in this process or in one that died, written, checked and
    scored, and the slice's own vector made."""
    embedder = load_embedder()
    if pool.embedding is None:  # a half that was just split off
        (vector,) = embedder.embed([slice_text(run.spec, pool)])
        with run.fenced():
            pool.embedding = vector.tobytes()
            pool.save(update_fields=["embedding"])
    if not pool.is_synthesized:
        add_round(run, pool, embedder, heldout_keys(run))
    valid = Candidate.objects.filter(tenant_id=run.tenant_id, slice=pool, state=CandidateState.VALID)
    with run.fenced():
        is_scored = not valid.filter(score=None).exists()
    if not is_scored:
        score_pool(run, pool, embedder, get_jsonl(run.tenant_id, run.output(SlicingOut).gold_train))


def _save(run: CompileRun, pool: Slice, rows: list[Candidate], chosen: Chosen) -> None:
    """Picks, report and event, in one transaction."""
    picks = set(chosen.selection.picks)
    cluster_of = chosen.selection.report.cluster_of
    for i, row in enumerate(rows):
        row.move(CandidateState.PICKED if i in picks else CandidateState.DROPPED)
        row.cluster = cluster_of[i]
    Candidate.objects.bulk_update(rows, ["state", "cluster"], batch_size=500)
    pool.k_actual = len(picks)
    pool.selection = selection_record(pool, rows, chosen)
    pool.save()
    tell(run, pool)
    warn_of_gap(run, pool, chosen)


def _summary(run: CompileRun, pools: list[Slice]) -> StepDone:
    candidates = Candidate.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id)
    keys = list(candidates.filter(state=CandidateState.PICKED).order_by("text_key").values_list("text_key", flat=True))
    scored = candidates.filter(state__in=(CandidateState.PICKED, CandidateState.DROPPED)).order_by("text_key")
    output = SelectionOut(
        picks=sha256_of(keys),
        method=run.spec.sampling.method,
        n_picked=len(keys),
        n_drafts=Draft.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id, is_kept=False).count(),
        slices=[{"name": pool.name} | without_columns(pool.selection or {}) for pool in pools],
    )
    return StepDone(inputs={"scored": sha256_of(list(scored.values_list("text_key", flat=True)))}, output=output)
