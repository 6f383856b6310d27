"""The rounds of a fixed plan: captures up to their K, then further votes where a label is unsure."""

from decimal import Decimal

import numpy as np

from backend.compiles.models import Slice
from backend.domain.labeling.linear_head import Flags
from backend.domain.labeling.purchases import StopFor
from backend.domain.labeling.votes_again import rows_asked_again
from backend.domain.planning.label_plans import k_of_captures, picks_in_rounds
from backend.domain.spec.parsing import first_votes
from workers.candidates.headroom import spare_after_labeling
from workers.labeling.call_prices import next_calls
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
        n, n_asked = -(-n_left // n_rounds_left), first_votes(run.spec)
        return rows_to_buy(run, weighed, is_open, n, is_first=of_rows == 0, n_asked=n_asked)
    if is_batch and of_votes:
        return StopFor.ROUNDS
    so_far = votes_so_far(run, weighed)
    calls = next_calls(run, weighed, is_changing=False, pair_usd=Decimal(0))
    again = ask_again(run, weighed, calls.again)
    n = rows_asked_again(n_unsure=len(again), n_vote_rounds=of_votes, repeat=weighed.noise.repeat, **so_far)
    again = again[:n]
    return affordable(run, again, spare_after_labeling(run), calls) or (StopFor.BUDGET if again else StopFor.LIMIT)


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
