"""The purchases of labelling after its first picks: rows in rounds, further votes on rows whose label is unsure, and
further candidates.

`plan_fixed` and `plan_auto` decide. Each round is opened with the note of its reason in one transaction (`rounds`), and
ends before the next is decided, so that a process that dies is followed by one that decides the same."""

from typing import Any

from backend.compiles.models import Slice
from backend.domain.errors import PaymentRequired
from backend.domain.labeling.learning_curves import point_facts
from backend.domain.labeling.purchases import StopFor
from backend.domain.planning.label_plans import picks_in_rounds
from backend.domain.spec.defaults import buys_in_rounds
from backend.domain.spec.parsing import votes_as_needed
from workers.labeling.asking import label_picks
from workers.labeling.pilot import open_pilot
from workers.labeling.plan_auto import decide_auto
from workers.labeling.plan_fixed import decide_fixed
from workers.labeling.pool import Places, place, read_pool
from workers.labeling.posteriors import PPM, Weighed, noise_facts, store, weigh
from workers.labeling.rounds import Bought, Purchases, close_round, is_stopped, open_round, purchases_of, stop
from workers.labeling.warnings import warn_of_labels
from workers.labeling.writing import Writing, is_writing, open_writing, write
from workers.step.batch_planning import StepBatches
from workers.step.durable import CompileRun


def label_all(run: CompileRun, batches: StepBatches) -> bool:
    """Label every pick, and what is bought besides. False where the rest waits for a teacher's batch. Raises
    PaymentRequired where the budget ends before the first picks have their labels."""
    open_pilot(run)
    places: Places | None = None
    while True:
        with run.transaction():
            purchases = purchases_of(run)
        if is_writing(purchases):
            write(run)
            places = None
            continue
        try:
            if not label_picks(run, batches):
                return False
            is_paid = True
        except PaymentRequired:
            if not purchases:
                raise
            close_round(run)
            is_paid = False
        if is_stopped(purchases) or not _has_more(run):
            return True
        places = places or place(run)
        if not _go_on(run, places, purchases, is_paid=is_paid):
            return True


def end_unpaid(run: CompileRun) -> bool:
    """End the round for whose batch the budget has not the money, and buy nothing more; False where it is none, but the
    first picks."""
    with run.transaction():
        purchases = purchases_of(run)
    if not purchases:
        return False
    close_round(run)
    _go_on(run, place(run), purchases, is_paid=False)
    return True


def _has_more(run: CompileRun) -> bool:
    """Say whether something may follow the first picks: rows of the plan, or votes as needed."""
    if votes_as_needed(run.spec) or buys_in_rounds(run.spec):
        return True
    with run.transaction():
        slices = Slice.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id, is_captured=True)
        return picks_in_rounds(run.spec) and slices.exists()


def _go_on(run: CompileRun, places: Places, purchases: Purchases, *, is_paid: bool) -> bool:
    """Weigh the labels and open the next round; False where there is none."""
    pool = read_pool(run, places)
    if not pool.votes.any():  # what became of the picks is for the step to say
        return False
    weighed = weigh(pool)
    with run.transaction():
        store(run, weighed)
        warn_of_labels(run, weighed)
    decided, facts = _decide(run, weighed, purchases) if is_paid else (StopFor.BUDGET, _facts(weighed))
    if isinstance(decided, StopFor):
        with run.transaction():
            stop(run, decided, facts)
        return False
    if isinstance(decided, Writing):
        open_writing(run, decided, facts)
    else:
        open_round(run, decided, facts)
    return True


def _decide(
    run: CompileRun, weighed: Weighed, purchases: Purchases
) -> tuple[list[Bought] | Writing | StopFor, dict[str, Any]]:
    """The next round or why there is none, and what it was decided by. A round that the budget cannot pay at its worst
    is smaller; of a fixed plan's rows as many are tried as it names."""
    if not buys_in_rounds(run.spec):
        return decide_fixed(run, weighed, purchases), _facts(weighed)
    decided, points = decide_auto(run, weighed, purchases)
    return decided, _facts(weighed) | {"curve": point_facts(points)}


def _facts(weighed: Weighed) -> dict[str, Any]:
    return {
        "n_rows": weighed.n_asked,
        "n_votes": weighed.n_votes,
        "accuracy_ppm": round(weighed.accuracy * PPM),
        "noise": noise_facts(weighed),
    }
