"""Verification: every valid candidate gets its score, and the slice its ranking signal: verifier if the spec names one,
else log-prob, else none."""

from collections import Counter

from backend.blobs import get_jsonl
from backend.compiles.models import Candidate, Slice
from backend.compiles.states import CandidateState
from backend.domain.canonical import sha256_of
from backend.domain.lifecycle import StepName
from backend.domain.planning.step_outputs import SlicingOut, VerificationOut
from workers.candidates.ranking import score_slice
from workers.step.durable import CompileRun
from workers.step.embedders import embedder_of
from workers.step.result import StepDone, finish_step


def run_verification(run: CompileRun) -> StepDone:
    embedder = embedder_of(run)
    with run.transaction():
        slices = list(Slice.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id).order_by("position"))
    gold = get_jsonl(run.tenant_id, run.output(SlicingOut).gold_train)
    for done, slice_row in enumerate(slices, start=1):
        score_slice(run, slice_row, embedder, gold)
        with run.transaction():
            run.progress(
                StepName.VERIFICATION,
                done=done,
                total=len(slices),
                message=f"{slice_row.name}: ranked by {slice_row.signal}",
            )
    with run.transaction() as fenced:
        done_step = _summary(run, slices)
        finish_step(run, fenced, StepName.VERIFICATION, done_step)
    return done_step


def _summary(run: CompileRun, slices: list[Slice]) -> StepDone:
    rows = list(
        Candidate.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id)
        .order_by("text_key")
        .values_list("text_key", "state", "score", "reasons")
    )
    reasons = Counter(reason for _, _, _, each in rows for reason in each)
    scores = [[key, state, None if score is None else f"{score:.6f}"] for key, state, score, _ in rows]
    output = VerificationOut(
        scores=sha256_of(scores),
        n_candidates=len(rows),
        n_valid=sum(state == CandidateState.VALID for _, state, _, _ in rows),
        rejected_for=dict(sorted(reasons.items())),
        signal={slice_row.name: slice_row.signal for slice_row in slices},
    )
    return StepDone(inputs={"candidates": sha256_of([key for key, *_ in rows])}, output=output)
