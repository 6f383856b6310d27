"""`split_slice`: a slice that holds two groups of texts is made into two, each with its own hint for the teacher.

The two groups are the top two clusters of the slice's candidates. The teacher names them; where it cannot or its answer
is of no use, their own terms do. In one transaction with that answer the slice gives its share, N and K to the halves
in proportion to the groups, its valid candidates go to the half they are in, and it is done: it picks nothing itself.
Each half then asks for its N with its own name and hint, and is verified and selected like any other slice. A half is
never split again.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from backend.compiles.models import Candidate, Slice
from backend.compiles.reactions import is_half, note
from backend.domain.lifecycle import StepName
from backend.domain.planning.teacher_estimates import HALVES_SHOWN
from backend.domain.selection.select import SelectionReport
from backend.domain.selection.slice_split import (
    MAX_NAME_CHARS,
    MAX_PART_HINT_CHARS,
    HalfName,
    HalfSize,
    divide,
    full_hint,
    full_names,
    halves,
    names_from_terms,
    read_names,
)
from workers.candidates.generation import model_of
from workers.candidates.headroom import can_spare, price_of, worst_rounds
from workers.candidates.ranking import stack
from workers.candidates.slices import slice_spec
from workers.gap.selection_record import emit_report, split_record
from workers.step.durable import CompileRun
from workers.step.embedders import embedder_of
from workers.step.teacher_calls import PlannedCall, call_batch, worst_cost
from workers.step.teacher_session import seed_of, teacher_session
from workers.teachers.prompts.split import split_request
from workers.teachers.protocol import TeacherFailed

N_SHOWN = HALVES_SHOWN // 2  # texts of each half that the teacher is shown
FIRST_POSITION = 2000  # of halves: after every slice of a spec, and the captures


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """The halves that a split would make of a slice: each one's candidates, most central first, its exemplars and its
    size."""

    rows: tuple[list[Candidate], list[Candidate]]
    exemplars: tuple[list[str], list[str]]
    sizes: tuple[HalfSize, HalfSize]
    call: PlannedCall

    @property
    def texts(self) -> tuple[list[str], list[str]]:
        first, second = ([row.text for row in rows] for rows in self.rows)
        return first, second


def plan_division(run: CompileRun, slice_row: Slice, rows: Sequence[Candidate]) -> Division | str:
    """The division of the slice, or why it cannot be."""
    if slice_row.is_captured:
        return "captured"
    if is_half(slice_row):
        return "already_split"
    division = _division(run, slice_row, rows)
    if division is None:
        return "one_group"
    cost = worst_cost(price_of(run, slice_row), division.call.request)
    sizes = [size.n_candidates for size in division.sizes]
    extra = MAX_NAME_CHARS + MAX_PART_HINT_CHARS + 1
    return division if can_spare(run, cost + worst_rounds(run, slice_row, sizes, extra_chars=extra)) else "budget"


def _division(run: CompileRun, slice_row: Slice, rows: Sequence[Candidate]) -> Division | None:
    """The two halves of the slice's valid candidates (in the order of their keys); None where they are one group."""
    vectors = stack([row.embedding for row in rows])
    indices = halves(vectors)
    if indices is None:
        return None
    parts = [rows[i] for i in indices[0].tolist()], [rows[i] for i in indices[1].tolist()]
    one, two = divide(
        share_ppm=slice_row.share_ppm,
        n_candidates=slice_row.n_candidates,
        k=slice_row.k_requested,
        sizes=[len(part) for part in parts],
    )
    centres = np.stack([vectors[half].mean(axis=0) for half in indices])
    shown = [[row.text for row in part[:N_SHOWN]] for part in parts]
    request = split_request(
        run.spec, slice_spec(slice_row), first=shown[0], second=shown[1], seed=seed_of(run, "split", slice_row.name)
    )
    return Division(
        rows=parts,
        exemplars=_nearer(run, slice_row.exemplars, centres),
        sizes=(one, two),
        call=PlannedCall(key=f"selection:split:{slice_row.position}", request=request),
    )


def _nearer(run: CompileRun, texts: Sequence[str], centres: np.ndarray) -> tuple[list[str], list[str]]:
    """The slice's exemplars, each with the half it is closer to: the wrong ones would lead the teacher astray."""
    if not texts:
        return [], []
    lengths = np.maximum(np.linalg.norm(centres, axis=1, keepdims=True), 1e-9)
    cosines = embedder_of(run).embed(list(texts)) @ (centres / lengths).T
    is_second = cosines[:, 1] > cosines[:, 0] + 1e-6
    return (
        [text for text, moved in zip(texts, is_second, strict=True) if not moved],
        [text for text, moved in zip(texts, is_second, strict=True) if moved],
    )


def split(run: CompileRun, slice_row: Slice, division: Division, report: SelectionReport) -> None:
    """Have the halves named and make them. Done once, however often a process dies on the way."""

    def save(answer: str | None) -> None:
        _make_halves(run, slice_row, division, report, answer)

    if run.spec.teacher.provider == "replay":  # a recording knows nothing of this slice
        with run.transaction():
            save(None)
        return
    with teacher_session(run, model=model_of(run, slice_row)) as session:
        try:
            call_batch(
                run,
                StepName.SELECTION,
                session.teacher,
                session.price,
                [division.call],
                lambda _, calls: save(calls[0].choices[0]["text"]),
            )
        except TeacherFailed as error:
            if error.retryable:
                raise
            with run.transaction():
                save(None)


def _make_halves(
    run: CompileRun, slice_row: Slice, division: Division, report: SelectionReport, answer: str | None
) -> None:
    """Make the halves in the transaction of the teacher's answer; None where it has none."""
    taken = list(
        Slice.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id).values_list("name", flat=True)
    )
    parts, names, named_by = _name_halves(slice_row.name, division, answer, taken)
    children = [
        _half(run, slice_row, division, nth, name=name, part=part)
        for nth, (name, part) in enumerate(zip(names, parts, strict=True))
    ]
    note(
        slice_row,
        "split_slice",
        into=list(names),
        named_by=named_by,
        share_ppm=slice_row.share_ppm,
        sizes=[len(rows) for rows in division.rows],
    )
    slice_row.share_ppm, slice_row.k_actual = 0, 0
    slice_row.selection = split_record(slice_row, report)
    slice_row.save()
    emit_report(run, slice_row)
    for child, rows in zip(children, division.rows, strict=True):
        child.save(force_insert=True)
        # scored anew, against the exemplars of the half
        Candidate.objects.filter(tenant_id=run.tenant_id, id__in=[row.id for row in rows]).update(
            slice=child, score=None, signal=""
        )
    run.warn(
        "slice_split",
        f"Slice {slice_row.name} holds {report.n_groups} distinct groups for K = {slice_row.k_requested}; it is now "
        f"two: {names[0]} and {names[1]}, named by {_NAMERS[named_by]}.",
        slice=slice_row.name,
        into=list(names),
    )


_NAMERS = {"teacher": "the teacher", "terms": "their own terms"}


def _name_halves(
    parent: str, division: Division, answer: str | None, taken: Sequence[str]
) -> tuple[Sequence[HalfName], tuple[str, ...], str]:
    """The parts, the full names, and who gave them: the teacher, else the halves' own terms, else numbers."""
    proposed = None if answer is None else read_names(answer)
    names = None if proposed is None else full_names(parent, proposed, taken)
    if proposed is not None and names is not None:
        return proposed, names, "teacher"
    own: Sequence[HalfName] = names_from_terms(*division.texts)
    numbers = itertools.count(1)
    while (names := full_names(parent, own, taken)) is None:  # a slice has that name
        own = [replace(part, name=f"part {next(numbers)}") for part in own]
    return own, names, "terms"


def _half(run: CompileRun, slice_row: Slice, division: Division, nth: int, *, name: str, part: HalfName) -> Slice:
    size = division.sizes[nth]
    child = Slice(
        tenant_id=run.tenant_id,
        compile_id=run.compile_id,
        position=FIRST_POSITION + 2 * slice_row.position + nth,
        name=name,
        share_ppm=size.share_ppm,
        hint=full_hint(slice_row.hint, part),
        exemplars=division.exemplars[nth],
        label=slice_row.label,
        n_candidates=size.n_candidates,
        k_requested=size.k,
        round=slice_row.round + 1,
        temperature_ppm=slice_row.temperature_ppm,
        reactions=slice_row.reactions,
    )
    facts: dict[str, Any] = {"from": slice_row.name, "n_taken_over": len(division.rows[nth])}
    note(child, "split_off", **facts)
    return child
