"""The rounds of a fixed plan: captures up to their K, then further votes where a label is unsure."""

import numpy as np

from backend.compiles.models import Slice
from backend.domain.labeling.linear_head import Flags
from backend.domain.labeling.purchases import StopFor
from backend.domain.labeling.votes_again import wanted_votes
from backend.domain.planning.label_plans import k_of_captures, picks_in_rounds
from workers.candidates.headroom import spare_after_labeling
from workers.labeling.next_rows import affordable, ask_again, rows_to_buy, votes_so_far
from workers.labeling.posteriors import Weighed
from workers.labeling.rounds import Bought, Purchases, n_rounds_of
from workers.step.durable import CompileRun

ROUNDS_TO_K = 4  # of rows after the start; in batch mode one, and one of votes, since each may take a day


def decide_fixed(run: CompileRun, weighed: Weighed, purchases: Purchases) -> list[Bought] | StopFor:
    """The next round, or why there is none."""
    of_rows, of_votes = n_rounds_of(purchases)
    is_batch = run.spec.teacher.mode == "batch"
    is_open, n_left = _captures_left(run, weighed)
    n_rounds_left = (1 if is_batch else ROUNDS_TO_K) - of_rows
    if n_left > 0 and n_rounds_left > 0 and is_open.any():
        return rows_to_buy(run, weighed, is_open, -(-n_left // n_rounds_left), is_first=of_rows == 0)
    if is_batch and of_votes:
        return StopFor.ROUNDS
    again = ask_again(run, weighed)
    again = again[: _n_wanted(run, weighed, n_unsure=len(again), n_vote_rounds=of_votes)]
    return affordable(run, again, spare_after_labeling(run)) or (StopFor.BUDGET if again else StopFor.LIMIT)


def _n_wanted(run: CompileRun, weighed: Weighed, *, n_unsure: int, n_vote_rounds: int) -> int:
    so_far = votes_so_far(run, weighed)
    return wanted_votes(n_unsure=n_unsure, n_vote_rounds=n_vote_rounds, repeat=weighed.noise.repeat, **so_far)


def _captures_left(run: CompileRun, weighed: Weighed) -> tuple[Flags, int]:
    """`(n + g,)` the captures that a round may buy, and how many of their K are not bought yet."""
    pool = weighed.pool
    is_captured = np.zeros(len(pool.votes), dtype=np.bool_)
    with run.transaction():
        part = Slice.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id, is_captured=True).first()
    if part is None or not picks_in_rounds(run.spec):
        return is_captured, 0
    is_captured[: pool.n] = [row.slice_id == part.id for row in pool.rows]  # type: ignore[attr-defined]  # Django's
    n_bought = int((is_captured & ~pool.is_open).sum())
    return is_captured & pool.is_open, k_of_captures(run.spec, part.n_candidates) - n_bought
