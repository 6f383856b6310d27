"""The first four steps of an ablation: what its compile made is copied, and kept as the arm has it.

The copies cost nothing and are the source's to the last bit: slices, gold split, texts, embeddings, verdicts and
scores. Then arm `all` keeps every valid candidate, arm `random` as many as the source did, drawn by the seed, and arm
`fixed` what the spec selects at the K of a fixed plan; of captures it picks a start, as a compile with that plan does.
Texts that the source has had labelled bring their labels along, so that the two sides never differ by the luck of a
label. From labelling on an arm is a compile like any other; one with another student takes the labelling too. Every
step may be run again from anywhere.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

from django.db import connection, models

from backend.compiles.lifecycle.ablations import k_fixed, label_costs
from backend.compiles.models import Candidate, Compile, Slice, StepRun
from backend.compiles.reactions import split_into
from backend.compiles.states import LABELED_STATES, CandidateState
from backend.domain.canonical import sha256_of
from backend.domain.lifecycle import StepName
from backend.domain.planning.ablations import STUDENT_ARMS, Arm
from backend.domain.planning.label_plans import first_captures
from backend.domain.planning.step_outputs import (
    LabelingOut,
    SelectionOut,
    SlicingOut,
    SynthesisOut,
    VerificationOut,
)
from backend.domain.selection.options import Method
from backend.domain.selection.select import Selection, select
from backend.domain.spec.parsing import canonical_spec
from workers.candidates.ranking import stack
from workers.gap.mitigation import BASELINES, select_as_asked
from workers.gap.selection_record import Chosen, emit_report, selection_record, without_columns
from workers.labeling.ablated_pairs import as_inputs, copy_labeling, keep_labeled, public_id, source_step
from workers.labeling.reuse import take_labels_over
from workers.step.durable import CompileRun
from workers.step.result import StepDone, finish_step

COPIED_AT_ONCE = 500  # candidates a transaction: a few MB of embeddings, far from any time limit
_MADE_LATER = {"id", "tenant_id", "compile", "created_at"}
_OF_SLICE = _MADE_LATER | {"k_requested", "k_actual", "selection"}
_OF_CANDIDATE = _MADE_LATER | {
    "slice", "state", "reasons", "cost_microusd", "score", "signal", "cluster", "label", "answer", "votes",
    "agreement_ppm", "known_answers", "n_wanted", "bought_in", "bought_for", "posterior",
}  # fmt: skip


def copy_slicing(run: CompileRun) -> StepDone:
    """The source's slices and its gold split. K is what the arm keeps of each."""
    with run.transaction() as fenced:
        source, step = source_step(fenced.compile, StepName.SLICING)
        theirs = list(Slice.objects.filter(tenant_id=run.tenant_id, compile=source).order_by("position"))
        valid = Candidate.objects.filter(tenant_id=run.tenant_id, compile=source).exclude(state=CandidateState.REJECTED)
        n_valid = dict(valid.values_list("slice").annotate(n=models.Count("id")))
        rows = []
        for slice_row in theirs:
            k = _k_of(run, Arm(fenced.compile.arm), slice_row, n_valid.get(slice_row.id, 0))
            values = _columns(slice_row, _OF_SLICE) | {"is_synthesized": True, "k_requested": k}
            if split_into(slice_row):  # its halves have its candidates
                values |= {"k_actual": 0, "selection": slice_row.selection}
            rows.append(Slice(tenant_id=run.tenant_id, compile=fenced.compile, **values))
        Slice.objects.bulk_create(rows)
        output = SlicingOut.from_json(step.output)
        done = StepDone(
            inputs={"spec": sha256_of(canonical_spec(run.spec))} | as_inputs(output),
            output=replace(output, copied_from=public_id(source)),
        )
        finish_step(run, fenced, StepName.SLICING, done)
    return done


def _k_of(run: CompileRun, arm: Arm, theirs: Slice, n: int) -> int:
    """The number that the arm keeps of a slice with `n` valid candidates before a label is known."""
    if arm is Arm.ALL:
        return n
    if arm is Arm.RANDOM or arm in STUDENT_ARMS:
        return theirs.k_actual or 0
    return first_captures(run.spec, theirs.n_candidates) if theirs.is_captured else k_fixed(run.spec, theirs)


def copy_candidates(run: CompileRun) -> StepDone:
    """The source's candidates, the rejected ones too, with their embeddings; no call, no cost."""
    with run.transaction() as fenced:
        source, step = source_step(fenced.compile, StepName.SYNTHESIS)
        ids = list(
            Candidate.objects.filter(tenant_id=run.tenant_id, compile=source)
            .order_by("text_key")
            .values_list("id", flat=True)
        )
        slice_of = _slices_of(run, source)
    for first in range(0, len(ids), COPIED_AT_ONCE):
        run.stop.check()
        with run.transaction() as fenced:
            part = Candidate.objects.filter(tenant_id=run.tenant_id, id__in=ids[first : first + COPIED_AT_ONCE])
            copies = [_copy(fenced.compile, row, slice_of[row.slice_id]) for row in part.order_by("text_key")]
            Candidate.objects.bulk_create(copies, ignore_conflicts=True)  # of a process that died: there already
            done_so_far = min(first + COPIED_AT_ONCE, len(ids))
            run.progress(StepName.SYNTHESIS, done=done_so_far, total=len(ids), message="candidates copied")
    with run.transaction() as fenced:
        keys = Candidate.objects.filter(tenant_id=run.tenant_id, compile=fenced.compile).order_by("text_key")
        copied = SynthesisOut.from_json(step.output)
        output = replace(
            copied,
            candidates=sha256_of(list(keys.values_list("text_key", flat=True))),
            copied_from=public_id(source),
            n_copied=len(ids),
        )
        done = StepDone(inputs=as_inputs(copied), output=output)
        finish_step(run, fenced, StepName.SYNTHESIS, done)
    return done


def copy_scores(run: CompileRun) -> StepDone:
    """The source's scores, by text. Nothing is computed anew: the same candidates, the same verdicts."""
    with run.transaction() as fenced:
        source, step = source_step(fenced.compile, StepName.VERIFICATION)
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE compiles_candidate AS mine SET score = theirs.score, signal = theirs.signal"
                " FROM compiles_candidate AS theirs WHERE mine.tenant_id = %s AND mine.compile_id = %s"
                " AND theirs.tenant_id = %s AND theirs.compile_id = %s AND theirs.text_key = mine.text_key",
                [run.tenant_id, fenced.compile.id, run.tenant_id, source.id],
            )
        rows = Candidate.objects.filter(tenant_id=run.tenant_id, compile=fenced.compile).order_by("text_key")
        scores = [
            [key, state, None if score is None else f"{score:.6f}"]
            for key, state, score in rows.values_list("text_key", "state", "score")
        ]
        copied = VerificationOut.from_json(step.output)
        done = StepDone(
            inputs={"candidates": sha256_of([key for key, *_ in scores])} | as_inputs(copied),
            output=replace(copied, scores=sha256_of(scores), copied_from=public_id(source)),
        )
        finish_step(run, fenced, StepName.VERIFICATION, done)
    return done


def keep_as_arm(run: CompileRun) -> StepDone:
    """All of a slice, K of it by lot, or K as the spec selects; no reaction, no drafts. Labels that the source has
    bought are taken over."""
    with run.transaction() as fenced:
        source, _ = source_step(fenced.compile, StepName.SELECTION)
        labels_step, arm = source_step(fenced.compile, StepName.LABELING)[1], fenced.compile.arm
        slices = list(Slice.objects.filter(tenant_id=run.tenant_id, compile=fenced.compile).order_by("position"))
    for n_done, slice_row in enumerate(slices, start=1):
        run.stop.check()
        if slice_row.selection is None:
            keep_labeled(run, slice_row, source) if Arm(arm) in STUDENT_ARMS else _keep(run, slice_row)
        with run.transaction():
            message = f"{slice_row.name}: {slice_row.k_actual} of {slice_row.n_candidates}"
            run.progress(StepName.SELECTION, done=n_done, total=len(slices), message=message)
    with run.transaction() as fenced:
        take_labels_over(fenced.compile, source)
        done = _summary(run, fenced.compile, source, labels_step)
        finish_step(run, fenced, StepName.SELECTION, done)
    return done


ARM_STEPS: dict[StepName, Callable[[CompileRun], StepDone]] = {
    StepName.SLICING: copy_slicing,
    StepName.SYNTHESIS: copy_candidates,
    StepName.VERIFICATION: copy_scores,
    StepName.SELECTION: keep_as_arm,
}
STUDENT_STEPS: dict[StepName, Callable[[CompileRun], StepDone]] = {**ARM_STEPS, StepName.LABELING: copy_labeling}


def _columns(row: models.Model, but: set[str]) -> dict[str, Any]:
    return {field.name: getattr(row, field.name) for field in row._meta.concrete_fields if field.name not in but}


def _slices_of(run: CompileRun, source: Compile) -> dict[UUID, UUID]:
    """{slice of the source: slice of this compile}."""
    mine = Slice.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id)
    at = dict(mine.values_list("position", "id"))
    theirs = Slice.objects.filter(tenant_id=run.tenant_id, compile=source)
    return {id: at[position] for id, position in theirs.values_list("id", "position")}


def _copy(compile: Compile, row: Candidate, slice_id: UUID) -> Candidate:
    is_rejected = row.state == CandidateState.REJECTED
    values = _columns(row, _OF_CANDIDATE) | {
        "slice_id": slice_id,
        "state": CandidateState.REJECTED if is_rejected else CandidateState.VALID,
        "reasons": row.reasons if is_rejected else [],
    }
    return Candidate(tenant_id=compile.tenant_id, compile=compile, **values)


def _keep(run: CompileRun, slice_row: Slice) -> None:
    with run.transaction():
        rows = list(
            Candidate.objects.filter(tenant_id=run.tenant_id, slice=slice_row, state=CandidateState.VALID).order_by(
                "text_key"
            )
        )
    kept = _select(run, slice_row, rows)
    picks = set(kept.picks)
    with run.transaction():
        for i, row in enumerate(rows):
            row.move(CandidateState.PICKED if i in picks else CandidateState.DROPPED)
            row.cluster = kept.report.cluster_of[i]
        Candidate.objects.bulk_update(rows, ["state", "cluster"], batch_size=500)
        slice_row.k_actual = len(picks)
        slice_row.selection = selection_record(slice_row, rows, Chosen(first=kept, selection=kept, mitigation="none"))
        slice_row.save()
        emit_report(run, slice_row)


def _select(run: CompileRun, slice_row: Slice, rows: list[Candidate]) -> Selection:
    """A baseline's choice, whatever the spec has for the others; what the spec selects for the other arm."""
    k, method = max(1, slice_row.k_requested), Method(run.spec.sampling.method)
    if method not in BASELINES:
        return select_as_asked(run, slice_row, rows, k)
    embeddings, keys = stack([row.embedding for row in rows]), [row.text_key for row in rows]
    scores = [0.0 if row.score is None else row.score for row in rows]
    return select(embeddings, scores, keys, k=k, method=method, seed=run.spec.sampling.seed)


def _summary(run: CompileRun, compile: Compile, source: Compile, labels_step: StepRun) -> StepDone:
    rows = Candidate.objects.filter(tenant_id=run.tenant_id, compile=compile).order_by("text_key")
    valid = list(rows.exclude(state=CandidateState.REJECTED).values_list("text_key", "state"))
    reused = [key for key, state in valid if state in LABELED_STATES]
    costs = label_costs(source)
    slices = Slice.objects.filter(tenant_id=run.tenant_id, compile=compile).order_by("position")
    kept = [key for key, state in valid if state != CandidateState.DROPPED]
    output = SelectionOut(
        picks=sha256_of(kept),
        method=run.spec.sampling.method,
        n_picked=len(kept),
        n_drafts=0,
        n_labels_reused=len(reused),
        reused_label_cost_microusd=sum(costs.get(key, 0) for key in reused),
        copied_from=public_id(source),
        slices=[{"name": slice_row.name} | without_columns(slice_row.selection or {}) for slice_row in slices],
    )
    labels = as_inputs(LabelingOut.from_json(labels_step.output))
    return StepDone(inputs={"scored": sha256_of([key for key, _ in valid])} | labels, output=output)
