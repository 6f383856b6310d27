"""The rounds of `plan: auto`: any candidate of the compile, and further ones where it may have them written, while what
they are likely to bring is worth its price."""

from decimal import Decimal
from typing import Any

from backend.compiles.models import Slice
from backend.domain.evaluation.classification import wilson_interval
from backend.domain.labeling.learning_curves import CurvePoint, curve_points, fit_curve
from backend.domain.labeling.purchases import (
    MOST_ROUNDS,
    POINT_USD,
    ROUNDS_OF_A_CURVE,
    PlanState,
    PurchaseKind,
    StopFor,
    next_purchase,
)
from backend.domain.labeling.votes_again import PILOT_ROWS, answers_change
from backend.domain.planning.label_plans import k_of_captures
from workers.candidates.headroom import LabelMoney, money_for_labels
from workers.labeling.call_prices import USD, LabelCalls, next_calls
from workers.labeling.next_rows import affordable, ask_again, rows_to_buy, votes_so_far
from workers.labeling.posteriors import MIN_HONEST, Weighed
from workers.labeling.rounds import Bought, Purchases, n_rounds_of
from workers.labeling.writing import Writing, candidates_to_buy, first_of, slices_to_write
from workers.step.durable import CompileRun

BATCH_ROUNDS = 2  # of rows in batch mode, the start among them, and one of votes: each may take a day


def decide_auto(
    run: CompileRun, weighed: Weighed, purchases: Purchases
) -> tuple[list[Bought] | Writing | StopFor, list[CurvePoint]]:
    """The next round, or why there is none, and the curve that was listened to."""
    of_rows, of_votes = n_rounds_of(purchases)
    is_batch = run.spec.teacher.mode == "batch"
    money = _money(run, weighed, purchases)
    so_far = votes_so_far(run, weighed)
    n_further, n_changed = so_far["n_further"], so_far["n_changed"]
    is_changing = n_further >= PILOT_ROWS and answers_change(n_further, n_changed, weighed.noise.repeat)
    next_ones = next_calls(run, weighed, is_changing=is_changing, pair_usd=Decimal(money.pair) / USD)
    unsure = [] if is_batch and of_votes else ask_again(run, weighed, next_ones.again)
    losing = slices_to_write(run, weighed, purchases)
    points = _points(weighed) if of_rows + 1 >= ROUNDS_OF_A_CURVE else []
    state = PlanState(
        n_labels=len(weighed.pool.labels),
        n_open=int(weighed.pool.is_open.sum()),
        n_labelled=weighed.n_asked,
        n_rounds=of_rows + 1,
        n_vote_rounds=of_votes,
        n_unsure=len(unsure),
        doubt=_n_expected_wrong(weighed, unsure),
        repeat=weighed.noise.repeat,
        curve=fit_curve(points) if points else None,
        point_usd=run.spec.plan.point_usd or POINT_USD,
        row_limit=_row_limit(run),
        most_rounds=BATCH_ROUNDS if is_batch else MOST_ROUNDS,
        **so_far,
        **_gate(run, weighed),
        **_prices(next_ones, money),
        **candidates_to_buy(run, weighed, purchases, losing),
    )
    purchase = next_purchase(state)
    if isinstance(purchase, StopFor):
        return purchase, points
    if purchase.kind == PurchaseKind.CANDIDATES:
        return first_of(losing, purchase.n), points
    if purchase.kind == PurchaseKind.VOTES:
        bought = unsure[: purchase.n]
    else:
        n, n_asked = purchase.n, next_ones.at_first
        bought = rows_to_buy(run, weighed, weighed.pool.is_open, n, is_first=of_rows == 0, n_asked=n_asked)
    return affordable(run, bought, money.left, next_ones, pair=money.pair) or StopFor.BUDGET, points


def _n_expected_wrong(weighed: Weighed, rows: list[Bought]) -> float:
    """Return how many of the rows' labels are expected to be wrong."""
    wrong = {
        weighed.pool.rows[at].id: 1 - float(believed.max())
        for at, believed in zip(weighed.known.tolist(), weighed.believed, strict=True)
        if at < weighed.pool.n
    }
    return sum(wrong[one.row.id] for one in rows)


def _points(weighed: Weighed) -> list[CurvePoint]:
    places = weighed.pool.places
    return curve_points(places.points.rows[weighed.known], weighed.believed, places.folds[weighed.known])


def _gate(run: CompileRun, weighed: Weighed) -> dict[str, Any]:
    """The accuracy that the gate asks for, and a lower bound of that on rows that look like traffic, where the plan
    ends with the gate and these rows are enough."""
    honest = weighed.is_right[weighed.is_honest]
    if run.spec.plan.stop != "gate" or len(honest) < MIN_HONEST:
        return {}
    low, _ = wilson_interval(int(honest.sum()), len(honest), run.spec.gate.confidence)
    return {"accuracy_low": low, "gate": run.spec.gate.accuracy_lower}


def _row_limit(run: CompileRun) -> int | None:
    """The K that the spec names, of all slices together."""
    if run.spec.sampling.k_select is None:
        return None
    with run.transaction():
        slices = list(Slice.objects.filter(tenant_id=run.tenant_id, compile_id=run.compile_id))
    return sum(
        k_of_captures(run.spec, part.n_candidates) if part.is_captured else int(part.k_requested) for part in slices
    )


def _money(run: CompileRun, weighed: Weighed, purchases: Purchases) -> LabelMoney:
    """The training was expected to have the pool as selection left it."""
    n_gold, limit = len(weighed.pool.places.gold), _row_limit(run)
    n_pool = weighed.pool.n - sum(one.get("n_kept", 0) for one in purchases)
    most = n_pool if limit is None else min(n_pool, limit)
    return money_for_labels(run, n_pairs=weighed.n_asked + n_gold, most_pairs=most + n_gold)


def _prices(calls: LabelCalls, money: LabelMoney) -> dict[str, Any]:
    """The money, and what the next calls are expected to cost and may cost, US dollars."""
    return {
        "money_usd": Decimal(money.left) / USD,
        "pair_usd": Decimal(money.pair) / USD,
        "call_usd": calls.expected.of(calls.at_first),
        "worst_usd": calls.worst.of(calls.at_first),
        "again_usd": calls.expected.of(calls.again),
        "worst_again_usd": calls.worst.of(calls.again),
    }
