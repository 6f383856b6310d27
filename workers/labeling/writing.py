"""The candidates that a plan buys while labels come: written for the slices that lose, checked and embedded as those of
synthesis, kept as drafts, and open to the rounds of labelling that follow.

They have no reward and no cache is asked for them: selection is over, and what a round labels is chosen by the labels.
A round of them is opened with its note in one transaction, and ends in one with what came of it; a process that takes
over finds the answers in the journal.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.db.models import Sum

from backend.blobs import get_jsonl
from backend.compiles.models import Candidate, Slice, TeacherCall
from backend.compiles.reactions import bought_rounds, note, split_into, times
from backend.compiles.states import ANSWERED_STATES, CANDIDATE_CALLS, CandidateState
from backend.domain.answers.candidates import Origin
from backend.domain.errors import PaymentRequired
from backend.domain.labeling.losses import losing_slices
from backend.domain.lifecycle import StepName
from backend.domain.planning.label_plans import writes_more
from backend.domain.planning.step_outputs import SlicingOut
from backend.domain.spec.parsing import reward_of
from workers.candidates.generation import add_round, embed_slice, heldout_keys, later_round_size
from workers.candidates.headroom import worst_round
from workers.candidates.ranking import ranking_of, score_slice
from workers.drafts.keeping import keep_drafts
from workers.labeling.posteriors import Weighed
from workers.labeling.rounds import CANDIDATES, Purchases, n_written, note_candidates, purchases_of, replace_last
from workers.step.durable import CompileRun
from workers.step.embedders import embedder_of

MOST_WRITTEN = 3  # rounds of candidates
MOST_OF_A_SLICE = 2  # of these, of N/2 each: as many again as it had
USD = Decimal(1_000_000)
LEAST_KEPT = 0.1  # of a slice's last round, below which the teacher has nothing new to write for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """A round of candidates: N/2 for each of these slices."""

    slices: Sequence[Slice]

    @property
    def n(self) -> int:
        return sum(map(later_round_size, self.slices))


def slices_to_write(run: CompileRun, weighed: Weighed, purchases: Purchases) -> list[Slice]:
    """The slices that lose most of those that candidates can be written for, most first; none where the plan writes no
    more."""
    if not writes_more(run.spec) or n_written(purchases) >= MOST_WRITTEN:
        return []
    with run.transaction():
        slices = list(Slice.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id).order_by("position"))
    slices = [part for part in slices if _can_be_written(part, purchases)]
    known = [_rows_of(weighed, part) for part in slices]
    shares = [part.share_ppm / 1_000_000 for part in slices]
    at = losing_slices(shares, [len(one) for one in known], [one.count(False) for one in known])
    return [slices[one] for one in at]


def candidates_to_buy(
    run: CompileRun, weighed: Weighed, purchases: Purchases, losing: Sequence[Slice]
) -> dict[str, Any]:
    """The rounds that can be bought for these slices, and what they cost, US dollars: a row what those written so far
    have cost, or were estimated to; a candidate at most what its slice's round may. What was just written is labelled
    before more is."""
    if not losing:
        return {}
    sizes = [later_round_size(part) for part in losing]
    n_rows, n_generated, cost = _written_so_far(run)
    ids = {part.id for part in losing}
    is_open = any(row.state == CandidateState.DROPPED and row.slice_id in ids for row in weighed.pool.rows)  # type: ignore[attr-defined]  # Django's
    worst = max(worst_round(run, part, size) / size for part, size in zip(losing, sizes, strict=True))
    return {
        "writable": tuple(sizes),
        "is_losing_spent": not (is_open or _is_last(purchases)),
        "kept": min(1.0, n_rows / max(1, n_generated)),
        "write_usd": Decimal(cost) / max(1, n_rows) / USD,
        "worst_write_usd": Decimal(math.ceil(worst)) / USD,
    }


def first_of(losing: Sequence[Slice], n: int) -> Writing:
    """The first slices whose rounds are `n` candidates."""
    at = 0
    while n > 0:
        n -= later_round_size(losing[at])
        at += 1
    return Writing(slices=losing[:at])


def open_writing(run: CompileRun, writing: Writing, facts: Mapping[str, Any]) -> None:
    """Open a round of these slices and note the purchase."""
    with run.transaction():
        for part in writing.slices:
            part.round += 1
            part.is_synthesized = False
            note(part, "more_candidates")
            part.save()
        sizes = {part.name: later_round_size(part) for part in writing.slices}
        note_candidates(run, {"n": writing.n, "slices": sizes, **facts})


def is_writing(purchases: Purchases) -> bool:
    """Say whether a round of candidates is open."""
    return _is_last(purchases) and "n_kept" not in purchases[-1]


def write(run: CompileRun) -> None:
    """Have the candidates of the open round written, and end it. Safe to run again at any point."""
    with run.transaction():
        names = list(purchases_of(run)[-1]["slices"])
        mine = Slice.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id, name__in=names)
        slices = list(mine.order_by("position"))
    for part in slices:
        if not part.is_synthesized:
            _fill(run, part)
        _open_rows(run, part)
    with run.transaction():
        kept = {part.name: _of_round(run, part).exclude(state=CandidateState.REJECTED).count() for part in slices}
        cost = sum(_cost(run, part) for part in slices)
        replace_last(run, {"n_kept": sum(kept.values()), "kept": kept, "cost_microusd": cost})


def _is_last(purchases: Purchases) -> bool:
    return bool(purchases) and purchases[-1].get("kind") == CANDIDATES


def _fill(run: CompileRun, part: Slice) -> None:
    """Ask for the round; one for which the budget has not the money ends with what there is."""
    embedder = embedder_of(run)
    try:
        add_round(run, part, embedder, heldout_keys(run), StepName.LABELING)
    except PaymentRequired:
        embed_slice(run, part, embedder, StepName.LABELING)
        with run.transaction():
            part.is_synthesized = True
            part.save()


def _open_rows(run: CompileRun, part: Slice) -> None:
    """Score what was written, and let rounds of labelling buy it."""
    embedder = embedder_of(run)
    if reward_of(run.spec) is None:
        gold = get_jsonl(run.tenant_id, run.output(SlicingOut).gold_train)
        score_slice(run, part, ranking_of(run, embedder, gold, None))
    n_before = next(e["n_generated"] for e in reversed(part.reactions) if e["reaction"] == "more_candidates")
    with run.transaction():
        rows = list(_of_round(run, part).filter(state=CandidateState.VALID).order_by("text_key"))
        for row in rows:
            row.move(CandidateState.DROPPED)
        Candidate.objects.bulk_update(rows, ["state"], batch_size=500)
        if rows and run.spec.draft_cache.enabled:
            keep_drafts(run, part, rows, n_generated=part.n_generated - n_before)


def _of_round(run: CompileRun, part: Slice):  # type: ignore[no-untyped-def]  # a query set of Django's
    return Candidate.objects.filter(tenant_id=run.tenant_id, slice=part, round=part.round)


def _cost(run: CompileRun, part: Slice) -> int:
    calls = TeacherCall.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id, state__in=ANSWERED_STATES)
    calls = calls.filter(key__startswith=f"{CANDIDATE_CALLS}{part.position}:{part.round}:")
    return int(calls.aggregate(total=Sum("cost_microusd"))["total"] or 0)


def _written_so_far(run: CompileRun) -> tuple[int, int, int]:
    """Rows that the teacher's candidates have become, candidates, and micro-USD. All of them from the draft cache: as
    if each had become a row at the price of the estimate."""
    with run.transaction() as fenced:
        slices = Slice.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id, is_captured=False)
        n_generated = sum(slices.values_list("n_generated", flat=True))
        rows = Candidate.objects.filter(tenant_id=run.tenant_id, slice__in=slices, origin=Origin.FRESH)
        n_rows = rows.exclude(state=CandidateState.REJECTED).count()
        calls = TeacherCall.objects.filter(
            tenant_id=run.tenant_id, compile_id=run.compile_id, state__in=ANSWERED_STATES
        )
        paid = calls.filter(key__startswith=CANDIDATE_CALLS).aggregate(total=Sum("cost_microusd"))["total"]
        if n_rows and paid is not None:
            return n_rows, n_generated, int(paid)
        n = sum(slices.values_list("n_candidates", flat=True))
        steps = fenced.compile.estimate["steps"]
        return n, n, sum(int(one["expected_microusd"]) for one in steps if one["step"] == StepName.SYNTHESIS)


def _can_be_written(part: Slice, purchases: Purchases) -> bool:
    if part.is_captured or split_into(part) or times(part, "refused") or times(part, "collapsed"):
        return False
    rounds = [one for one in purchases if part.name in one.get("kept", ())]
    is_written_out = bool(rounds) and rounds[-1]["kept"][part.name] < LEAST_KEPT * rounds[-1]["slices"][part.name]
    return len(bought_rounds(part)) < MOST_OF_A_SLICE and not is_written_out


def _rows_of(weighed: Weighed, part: Slice) -> list[bool]:
    """The labelled rows of the slice, gold of its label among them: whether the student that has not seen one is
    right."""
    pool = weighed.pool
    is_mine = [row.slice_id == part.id for row in pool.rows]  # type: ignore[attr-defined]  # Django's
    is_mine += [pool.labels[label] == part.label for label in pool.places.gold.tolist()]
    right = weighed.is_right.tolist()
    return [one for at, one in zip(weighed.known.tolist(), right, strict=True) if is_mine[at]]
