"""Drafts that compete unverified: the teacher is asked about those that selection picks, and about no others.

A pool of fresh candidates and unverified drafts is selected from, as if all were the teacher's: drafts that counted for
less than the others would hardly be picked where scores are close, and the pool would be the fresh ones alone. Those of
the picks that are drafts are put to the teacher, all slices in one conversation, with as many more as it is expected to
refuse. What it refuses leaves the pool, and so do drafts that its verdicts make unlikely; then selection picks again.
It ends when no pick is unverified, or another question would cost more than writing what it asks about, after three
turns at the latest. Where refusals have left a pool short, the teacher writes more.

Where the spec names a judge of its own, that is asked in the teacher's place, as long as it is within its bounds. What
it leaves void stays in the pool, and the teacher is asked in the next turn.

Each turn is one transaction, and everything it goes by is in rows and in the journal: a process that takes over asks
the same question and finds its answers there.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from backend.compiles.models import Candidate, Slice
from backend.compiles.reactions import first_round
from backend.compiles.states import CandidateState
from backend.domain.answers.candidates import Origin
from backend.domain.drafts.offer_plan import OfferState
from backend.domain.drafts.question_policy import is_worth_asking_again
from backend.domain.drafts.vocabulary import CERTIFIES, Strategy
from backend.domain.lifecycle import StepName
from workers.candidates.generation import embed_slice, fill_round
from workers.drafts.described_slices import described_slices
from workers.drafts.pool_turns import (
    N_TURNS,
    NOT_ASKED,
    ask_about,
    is_unverified,
    leave_out,
    plan_of,
    slices_of,
    unverified_of,
)
from workers.drafts.proposals import QUOTED_ACCEPTANCE
from workers.embedding.protocol import Embedder
from workers.step.durable import CompileRun
from workers.step.teacher_session import teacher_session
from workers.teachers.judges.judge_quotes import quote_pool, request_tokens
from workers.teachers.protocol import TeacherFailed

LEAST_POOL = 0.9  # of N; below it fresh candidates fill the pool up

Pick = Callable[[Slice, Sequence[Candidate], int], Sequence[Candidate]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooling:
    """The selection step's part: `rows` scores and reads a slice's valid candidates, `pick` selects so many of
    them."""

    embedder: Embedder
    heldout: frozenset[str]
    rows: Callable[[Slice], list[Candidate]]
    pick: Pick


def verify_picks(run: CompileRun, pooling: Pooling) -> None:
    """Verify the drafts that are picked of this compile's slices. Safe to run again at any point."""
    while slices := [row for row in slices_of(run) if _is_open(row)]:
        for slice_row in slices:
            _top_up(run, slice_row, pooling)
        asked = {row.position: unverified_picks(run, row, pooling) for row in slices}
        if any(plan_of(row).n_turns for row in slices) and not _is_worth_a_question(run, slices, asked):
            _close_pools(run, slices)
        else:
            _turn(run, StepName.SELECTION, slices, asked)


def verify_all(run: CompileRun, embedder: Embedder) -> None:
    """Verify all drafts that compete, before anything is written: where rounds of labelling may buy any candidate, and
    all are asked about anyway, the teacher then writes no more than is missing. Safe to run again at any point."""
    while slices := [row for row in slices_of(run) if _is_open(row)]:
        for slice_row in slices:
            embed_slice(run, slice_row, embedder, StepName.SYNTHESIS)
        asked = {row.position: _open_drafts(run, row) for row in slices}
        _turn(run, StepName.SYNTHESIS, slices, asked)


def _turn(run: CompileRun, step: StepName, slices: Sequence[Slice], asked: Mapping[int, Sequence[Candidate]]) -> None:
    """End the slices of which no draft is to be asked about, and ask about those of the others."""
    _end(run, step, [row for row in slices if not asked[row.position]])
    ids = {position: {row.draft_id for row in rows} for position, rows in asked.items() if rows}
    if ids:
        ask_about(run, step, [row for row in slices if row.position in ids], ids)


def _open_drafts(run: CompileRun, slice_row: Slice) -> list[Candidate]:
    if plan_of(slice_row).n_turns >= N_TURNS:
        return []
    with run.transaction():
        return unverified_of(run, slice_row)


def unverified_picks(run: CompileRun, slice_row: Slice, pooling: Pooling) -> Sequence[Candidate]:
    """The unverified drafts among the slice's picks; the first time with the next ones, as many as are expected to be
    refused."""
    rows, plan = pooling.rows(slice_row), plan_of(slice_row)
    if plan.n_turns >= N_TURNS or not any(map(is_unverified, rows)):
        return ()
    k = int(slice_row.k_requested)
    picked = [row for row in pooling.pick(slice_row, rows, k) if is_unverified(row)]
    if plan.n_turns or not picked:
        return picked
    predicted = {one.draft_id: one.predicted for one in plan.pooled}
    n_spare = math.ceil(math.fsum(1 - predicted.get(row.draft_id, 1.0) for row in picked))
    more = pooling.pick(slice_row, rows, min(len(rows), k + n_spare))
    ids = {row.id for row in picked}
    return [*picked, *(row for row in more if is_unverified(row) and row.id not in ids)]


def _is_worth_a_question(run: CompileRun, slices: Sequence[Slice], asked: Mapping[int, Sequence[Candidate]]) -> bool:
    """Say whether asking about these costs less than having as many written."""
    rows = [row for each in asked.values() for row in each]
    if not rows:
        return True
    filled = [row for row in slices_of(run) if not row.is_captured]
    tokens = request_tokens(described_slices(run.spec, filled)).as_counted(
        [row.text for row in rows], [row.n_tokens for row in rows]
    )
    is_delegate = any(plan_of(row).strategy is Strategy.DELEGATE for row in slices)
    price = run.prices.judge if is_delegate and run.prices.judge else run.prices.of(run.spec.teacher.model)
    quote = quote_pool(tokens, [row.n_tokens for row in rows], price, n_slices=1, acceptance=QUOTED_ACCEPTANCE)
    fresh = [plan.fresh_microusd for row in slices if (plan := plan_of(row)).fresh_microusd is not None]
    return is_worth_asking_again(
        len(rows),
        fresh_microusd=sum(fresh) / len(fresh) if fresh else 0.0,
        verify_microusd=sum(quote.per_draft_microusd) / len(rows),
        overhead_microusd=quote.overhead_microusd,
    )


def _close_pools(run: CompileRun, slices: Sequence[Slice]) -> None:
    """Ask no more: what is picked in the end is fresh, or verified already."""
    with run.transaction():
        for slice_row in slices:
            slice_row.offer_plan = replace(plan_of(slice_row), n_turns=N_TURNS)
            slice_row.save(update_fields=["drafts"])


def _is_open(slice_row: Slice) -> bool:
    return slice_row.offer_plan is not None and slice_row.offer_plan.state is OfferState.POOLED


def _top_up(run: CompileRun, slice_row: Slice, pooling: Pooling) -> None:
    """Have the teacher write what refusals have left missing of N, where that is more than a tenth; where no more is
    asked, what is missing of K."""
    plan = plan_of(slice_row)
    if not plan.n_turns or slice_row.round != first_round(slice_row):
        return
    _write_missing(run, slice_row, pooling)  # of what was decided before, if a process died since
    valid = Candidate.objects.filter(tenant_id=run.tenant_id, slice=slice_row, state=CandidateState.VALID)
    with run.transaction():
        n_unverified = len(unverified_of(run, slice_row))
        if plan.n_turns >= N_TURNS and plan.pooled:  # no more is asked, and drafts are left that counted
            n_missing = int(slice_row.k_requested) - (valid.count() - n_unverified)
        else:
            n_judged = valid.filter(certificate__in=CERTIFIES.values()).count()
            n_missing = plan.n_counted - math.floor(n_judged + math.fsum(one.predicted for one in plan.pooled))
            n_missing = n_missing if n_missing > (1 - LEAST_POOL) * slice_row.n_candidates else 0
        if n_missing > 0:
            slice_row.offer_plan = replace(plan, n_counted=max(0, plan.n_counted - n_missing))
            slice_row.save(update_fields=["drafts"])
    _write_missing(run, slice_row, pooling)


def _write_missing(run: CompileRun, slice_row: Slice, pooling: Pooling) -> None:
    try:
        with teacher_session(run) as session:
            fill_round(run, slice_row, session, pooling.heldout, StepName.SELECTION)
    except TeacherFailed as failed:
        if failed.retryable:
            raise
    embed_slice(run, slice_row, pooling.embedder, StepName.SELECTION)


def _end(run: CompileRun, step: StepName, slices: Sequence[Slice]) -> None:
    """Note that no pick of these slices waits for the teacher. Drafts that nobody was asked about stay in the pool that
    selection splits, where none of them is a pick; after the last turn they leave it. Before anything is written, those
    that were accepted are what need not be."""
    with run.transaction():
        for slice_row in slices:
            plan = plan_of(slice_row)
            if plan.n_turns >= N_TURNS:
                leave_out(unverified_of(run, slice_row), NOT_ASKED)
            slice_row.n_from_drafts = (
                Candidate.objects.filter(
                    tenant_id=run.tenant_id, slice=slice_row, state=CandidateState.VALID, origin=Origin.DRAFT
                )
                .exclude(certificate="")
                .count()
            )
            if step is StepName.SYNTHESIS:
                n_missing = int(slice_row.n_candidates) - plan.n_free
                n_judged = int(slice_row.n_from_drafts) - plan.n_free
                plan = replace(plan, n_counted=min(n_judged, n_missing))
            slice_row.offer_plan = replace(plan, state=OfferState.VERIFIED)
            slice_row.save(update_fields=["drafts", "n_from_drafts"])
