"""What labelling buys after its first picks: rows in rounds, and further votes on rows whose label is unsure.

`plan: fixed` labels captures in rounds up to their K, and asks again where a label is unsure. Each round is opened with
the note of its reason in one transaction (`rounds`), and ends before the next is decided, so that a process that dies
is followed by one that decides the same."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from backend.compiles.models import Slice
from backend.compiles.states import CandidateState
from backend.domain.errors import PaymentRequired
from backend.domain.labeling.linear_head import Flags
from backend.domain.labeling.rounds import Why
from backend.domain.spec.defaults import k_of_captures, picks_in_rounds
from backend.domain.spec.parsing import LabelOutput, first_votes, most_votes, votes_as_needed
from workers.candidates.headroom import spare_after_labeling
from workers.labeling.asking import label_call, label_picks
from workers.labeling.next_rows import rows_to_buy
from workers.labeling.pool import Places, place, read_pool
from workers.labeling.posteriors import PPM, Weighed, noise_facts, store, weigh
from workers.labeling.rounds import Bought, close_round, is_stopped, open_round, purchases_of, stop
from workers.labeling.warnings import warn_of_labels
from workers.step.batch_planning import StepBatches
from workers.step.durable import CompileRun
from workers.step.teacher_calls import worst_cost

ROUNDS_TO_K = 4  # after the start, up to a K that is fixed; in batch mode one, since each may take a day
VOTE_ROUNDS = 4  # of further votes; in batch mode one
ASK_BELOW = 0.9  # of a row's likeliest label, below which it is asked again: not measured
MOST_REPEAT = 0.7  # correlation above which a teacher that is asked again says the same again

Purchases = Sequence[Mapping[str, Any]]


def label_all(run: CompileRun, batches: StepBatches) -> bool:
    """Label every pick, and what is bought besides. False where the rest waits for a teacher's batch. Raises
    PaymentRequired where the budget ends before the first picks have their labels."""
    places: Places | None = None
    while True:
        with run.transaction():
            purchases = purchases_of(run)
        try:
            if not label_picks(run, batches):
                return False
            is_paid = True
        except PaymentRequired:
            if not purchases:
                raise
            close_round(run)
            is_paid = False
        if is_stopped(purchases) or not isinstance(run.spec.output, LabelOutput):
            return True
        places = places or place(run)
        if not _go_on(run, places, purchases, is_paid=is_paid):
            return True


def _go_on(run: CompileRun, places: Places, purchases: Purchases, *, is_paid: bool) -> bool:
    """Weigh the labels and open the next round; False where there is none."""
    pool = read_pool(run, places)
    if not pool.votes.any():  # what became of the picks is for the step to say
        return False
    weighed = weigh(pool)
    with run.transaction():
        store(run, weighed)
        warn_of_labels(run, weighed)
    facts = _facts(weighed)
    decided = _decide(run, weighed, purchases) if is_paid else "budget"
    if isinstance(decided, str):
        with run.transaction():
            stop(run, decided, facts)
        return False
    open_round(run, decided, facts)
    return True


def _facts(weighed: Weighed) -> dict[str, Any]:
    return {
        "n_rows": int((weighed.pool.votes.sum(axis=1) > 0).sum()),
        "n_votes": int(weighed.pool.votes.sum()),
        "accuracy_ppm": round(weighed.accuracy * PPM),
        "noise": noise_facts(weighed),
    }


def _decide(run: CompileRun, weighed: Weighed, purchases: Purchases) -> list[Bought] | str:
    """The next round of a fixed plan, or why there is none."""
    n_votes = sum("asked_again" in one["why"] for one in purchases)
    n_rows = len(purchases) - n_votes
    is_batch = run.spec.teacher.mode == "batch"
    most_rows, most_votes_ = (1, 1) if is_batch else (ROUNDS_TO_K, VOTE_ROUNDS)
    is_open, left = _captures_left(run, weighed)
    if left > 0 and is_open.any() and n_rows < most_rows:
        rows = rows_to_buy(run, weighed, is_open, -(-left // (most_rows - n_rows)), is_first=n_rows == 0)
        return [Bought(row=row, why=why, n_wanted=0) for row, why in rows]
    if n_votes >= most_votes_:
        return "rounds"
    unsure = _unsure(run, weighed)
    return _affordable(run, unsure) or ("budget" if unsure else "sure")


def _captures_left(run: CompileRun, weighed: Weighed) -> tuple[Flags, int]:
    """`(n + g,)` the captures that a round may buy, and how many of their K are not bought yet."""
    pool = weighed.pool
    nothing = np.zeros(len(pool.votes), dtype=np.bool_)
    with run.transaction():
        part = Slice.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id, is_captured=True).first()
    if part is None or not picks_in_rounds(run.spec):
        return nothing, 0
    is_captured = nothing.copy()
    is_captured[: pool.n] = [row.slice_id == part.id for row in pool.rows]  # type: ignore[attr-defined]  # Django's
    n_bought = int((is_captured & ~pool.is_open).sum())
    return is_captured & pool.is_open, k_of_captures(run.spec, part.n_candidates) - n_bought


def _unsure(run: CompileRun, weighed: Weighed) -> list[Bought]:
    """The rows to ask again, the least sure first."""
    if not votes_as_needed(run.spec) or weighed.noise.repeat > MOST_REPEAT:
        return []
    sure = np.zeros(len(weighed.pool.votes))
    sure[weighed.known] = weighed.believed.max(axis=1)
    rows = [
        (sure[i], row.text_key, row)
        for i, row in enumerate(weighed.pool.rows)
        if row.state in (CandidateState.LABELED, CandidateState.UNVERIFIED) and sure[i] < ASK_BELOW
    ]
    asked = [(row, (row.n_wanted or first_votes(run.spec)) + 1) for _, _, row in sorted(rows, key=lambda one: one[:2])]
    return [Bought(row=row, why=Why.ASKED_AGAIN, n_wanted=n) for row, n in asked if n <= most_votes(run.spec)]


def _affordable(run: CompileRun, bought: Sequence[Bought]) -> list[Bought]:
    """The first of these that the budget can pay at their worst, beside what is to come after labelling."""
    left, price, kept = spare_after_labeling(run), run.prices.of(run.spec.teacher.model), []
    for one in bought:
        n = 1 if one.why == Why.ASKED_AGAIN else first_votes(run.spec)
        left -= worst_cost(price, label_call(run, one.row, n).request)
        if left < 0:
            break
        kept.append(one)
    return kept
