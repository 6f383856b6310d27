"""Synthesis, pass 1: N candidates per slice from the teacher, checked as they come.

When a slice has its N, two tells are read and acted on by themselves (facts a.1 of the seeds' public pages): a reject
rate over 30 % asks again with two exemplars; a pool of one or two near-duplicate groups (mode collapse) asks again
hotter, twice, then asks the fallback model. Each is recorded in `Slice.reactions` and as a warning event.
"""

import numpy as np

from backend.compiles.models import Candidate, Slice
from backend.compiles.reactions import note, times
from backend.compiles.states import CandidateState
from backend.domain.canonical import sha256_of
from backend.domain.drafts.offer_plan import OfferState
from backend.domain.lifecycle import StepName
from backend.domain.planning.step_outputs import SlicingOut, SynthesisOut
from backend.domain.selection.linkage.clustering import n_near_duplicate_groups
from backend.domain.spec.defaults import buys_in_rounds
from workers.candidates.generation import MAX_TEMPERATURE, embed_slice, fill_round, heldout_keys, hotter_ppm, model_of
from workers.drafts.evidence.audit import audit_drafts
from workers.drafts.lookup import look_up_drafts
from workers.drafts.offering import offer_drafts
from workers.drafts.picks import verify_all
from workers.drafts.savings import close_offer, drafts_of_compile
from workers.embedding.protocol import Embedder
from workers.step.batch_planning import StepBatches
from workers.step.batch_wait import send_batches
from workers.step.durable import CompileRun
from workers.step.embedders import embedder_of
from workers.step.result import StepDone, StepWaiting, finish_step
from workers.step.teacher_session import teacher_session

MAX_REJECT_SHARE = 0.30
COLLAPSED_GROUPS = 2
MAX_HOTTER_ROUNDS = 2


def run_synthesis(run: CompileRun) -> StepDone | StepWaiting:
    embedder = embedder_of(run)
    heldout = heldout_keys(run)
    slices = _slices(run)
    lookup = look_up_drafts(run, slices, embedder)
    batches = StepBatches(run=run, step=StepName.SYNTHESIS)
    for slice_row in slices:
        if slice_row.round == 0 and not (slice_row.is_captured or slice_row.is_synthesized):
            with teacher_session(run) as session:
                offer_drafts(run, slice_row, session, lookup, heldout)
    if buys_in_rounds(run.spec):
        verify_all(run, embedder)
        slices = _slices(run)
    is_done = True
    for slice_row in slices:
        if slice_row.is_captured:
            embed_slice(run, slice_row, embedder, StepName.SYNTHESIS)
        else:
            is_done &= synthesize_slice(run, slice_row, embedder, heldout, batches)
    if not is_done:
        return send_batches(run, batches)
    with run.transaction() as fenced:
        done = _summary(run)
        finish_step(run, fenced, StepName.SYNTHESIS, done)
    return done


def synthesize_slice(
    run: CompileRun,
    slice_row: Slice,
    embedder: Embedder,
    heldout: frozenset[str],
    batches: StepBatches,
) -> bool:
    """Bring one slice, drafts counted, to its N candidates, and react to what the pool looks like. Safe to run again at
    any point. False where its next round waits for a batch."""
    while not slice_row.is_synthesized:
        with teacher_session(run, model=model_of(run, slice_row)) as session:
            if not fill_round(run, slice_row, session, heldout, StepName.SYNTHESIS, batches=batches):
                return False
            if slice_row.round == 0 and not _is_pooled(slice_row):
                audit_drafts(run, slice_row, session, StepName.SYNTHESIS)
        embed_slice(run, slice_row, embedder, StepName.SYNTHESIS)
        reaction = _reaction(run, slice_row)
        with run.transaction():
            _react(run, slice_row, reaction)
            if slice_row.is_synthesized:
                if not _is_pooled(slice_row):
                    close_offer(run, slice_row, session.price, embedder)
                slice_row.save(update_fields=["drafts"])
    return True


def _is_pooled(slice_row: Slice) -> bool:
    """Say whether unverified drafts compete for the slice's picks: selection closes their account."""
    plan = slice_row.offer_plan
    return plan is not None and plan.state is OfferState.POOLED


def _reaction(run: CompileRun, slice_row: Slice) -> str | None:
    """The reaction that the pool asks for: "exemplars", "hotter", "fallback_model", "collapsed" (nothing left to try)
    or None."""
    with run.transaction():
        vectors = list(
            Candidate.objects.filter(tenant_id=run.tenant_id, slice=slice_row, state=CandidateState.VALID)
            .order_by("text_key")
            .values_list("embedding", flat=True)
        )
    if slice_row.n_rejected > MAX_REJECT_SHARE * slice_row.n_generated and not times(slice_row, "exemplars"):
        return "exemplars"
    rows = np.array([np.frombuffer(v, dtype=np.float32) for v in vectors])
    if slice_row.n_candidates < 4 or (len(rows) and n_near_duplicate_groups(rows) > COLLAPSED_GROUPS):
        return None
    if times(slice_row, "hotter") < MAX_HOTTER_ROUNDS and slice_row.temperature_ppm < MAX_TEMPERATURE * 1_000_000:
        return "hotter"
    if run.spec.teacher.fallback_model and not times(slice_row, "fallback_model"):
        return "fallback_model"
    return "collapsed"


def _react(run: CompileRun, slice_row: Slice, reaction: str | None) -> None:
    if reaction is None or reaction == "collapsed":
        slice_row.is_synthesized = True
    else:
        slice_row.round += 1
    if reaction == "hotter":
        slice_row.temperature_ppm = hotter_ppm(slice_row)
    if reaction is not None:
        note(slice_row, reaction)
        run.warn(*_REACTIONS[reaction], slice=slice_row.name, step=StepName.SYNTHESIS.value)
    slice_row.save()


_REACTIONS = {
    "exemplars": (
        "high_reject_rate",
        "More than 30 % of the candidates failed the checks; asking again with two exemplars.",
    ),
    "hotter": ("mode_collapse", "The candidates are variations of one or two; asking again at a higher temperature."),
    "fallback_model": ("mode_collapse", "Two hotter rounds did not help; asking the fallback model."),
    "collapsed": (
        "collapse_detected",
        "The candidates are variations of one or two. Widen the slice's hint, split it, or name a fallback_model.",
    ),
}


def _slices(run: CompileRun) -> list[Slice]:
    with run.transaction():
        return list(Slice.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id).order_by("position"))


def _summary(run: CompileRun) -> StepDone:
    slices = Slice.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id).order_by("position")
    keys = Candidate.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id).order_by("text_key")
    output = SynthesisOut(
        candidates=sha256_of(list(keys.values_list("text_key", flat=True))),
        slices=[
            {
                "name": p.name,
                "n_generated": p.n_generated,
                "n_from_drafts": p.n_from_drafts,
                "n_rejected": p.n_rejected,
                "n_duplicates": p.n_duplicates,
                "rounds": p.round + 1,
                "reactions": [r["reaction"] for r in p.reactions],
            }
            for p in slices
        ],
        drafts=drafts_of_compile(run, list(slices)),
    )
    return StepDone(inputs=run.output(SlicingOut).digests(), output=output)
