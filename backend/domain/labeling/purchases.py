"""The next thing that a compile buys for its labels: more rows, more votes on rows it is unsure of, more candidates, or
nothing.

Rows come first, in rounds that grow with what is labelled, while what the learning curve expects of them is worth more
than they cost; then votes; then candidates for the slices that lose, where no row of theirs is left. Everything is
decided from the state alone, so that a process that starts again decides the same.
"""

import math
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from backend.domain.labeling.learning_curves import Curve
from backend.domain.labeling.votes_again import PILOT_CALLS, answers_change, rows_asked_again

POINT_USD = Decimal("1.00")  # what a point of accuracy is worth where the spec does not say
START_SHARE = 0.1  # of the pool, in the first round
START_LEAST, START_PER_LABEL = 20, 2  # rows of the first round, at least
START_MOST = 500  # rows of the first round, at most, unless labels need more: a curve comes before large sums
GROWTH = 0.75  # of what is labelled, in each later round: 1,000 rows take 5 rounds
REST = 0.25  # of a round, below which rows that would be left over are bought with it
LEAST_ROUND = 20  # rows, below which a round is not made smaller to be worth its price
LEAST_BOUGHT = 10  # rows that the money must be enough for, after the first round
MOST_ROUNDS = 12  # of rows
ROUNDS_OF_A_CURVE = 2  # of rows, before the curve is listened to
FLAT_POINTS = 0.1  # of accuracy: a curve whose upper bound of the next round is below it is flat
GATE_MARGIN = 0.02  # of accuracy above the gate's, at the lower bound
MENDED = 0.5  # of the labels expected to be wrong among those asked about, by one more call about each


class PurchaseKind(StrEnum):
    ROWS = "rows"
    VOTES = "votes"
    CANDIDATES = "candidates"


class StopFor(StrEnum):
    GATE_MARGIN = "gate_margin"  # the gate is passed with a margin
    FLAT = "flat"  # more rows would bring next to nothing
    WORTH = "worth"  # more rows cost more than they are worth
    BUDGET = "budget"
    POOL = "pool"  # every row is labelled
    LIMIT = "limit"  # as many rows as the spec names
    ROUNDS = "rounds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Purchase:
    """`n` new rows with a call each, or a further call on each of the `n` rows that `unsure_rows` names first, or `n`
    candidates: the rounds of the first slices of `writable`."""

    kind: PurchaseKind
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanState:
    """A plan between two rounds. `n_open` rows can be bought, `n_labelled` are; `row_limit` is how many the spec
    names. `n_calls` counts the calls about rows, `n_calls_again` those that asked again; `n_further` the votes beside
    each row's first, and `n_changed` those of them on rows whose votes differ. `n_unsure` is how many rows
    `unsure_rows` names now, and `doubt` how many of their labels are expected to be wrong; `repeat` the correlation of
    repeated answers.

    `money_usd` is left for labels and for training on them; `call_usd` is what a row's first call is expected to cost,
    `worst_usd` what it may cost; `again_usd` and `worst_again_usd` are those of a call that asks again, `pair_usd` what
    training on a row costs. `accuracy_low` is a lower bound of the student's accuracy on honest rows, `gate` the
    accuracy that the gate asks for.

    `writable` are the candidates of one round for each slice that loses, most first; `kept` is the share of candidates
    that become rows, `write_usd` what one of these is expected to cost, `worst_write_usd` what a candidate may cost.
    `is_losing_spent`: no row of the slices that lose can be bought."""

    n_labels: int
    n_open: int
    n_labelled: int
    n_rounds: int
    n_vote_rounds: int
    n_calls: int
    n_calls_again: int
    n_further: int
    n_unsure: int
    n_changed: int
    repeat: float
    money_usd: Decimal
    call_usd: Decimal
    worst_usd: Decimal
    again_usd: Decimal
    worst_again_usd: Decimal
    pair_usd: Decimal
    doubt: float = 0.0
    curve: Curve | None = None
    point_usd: Decimal = POINT_USD
    row_limit: int | None = None
    most_rounds: int = MOST_ROUNDS
    accuracy_low: float | None = None
    gate: float | None = None
    writable: tuple[int, ...] = ()
    is_losing_spent: bool = False
    kept: float = 1.0
    write_usd: Decimal = Decimal(0)
    worst_write_usd: Decimal = Decimal(0)

    @property
    def is_past_gate(self) -> bool:
        if self.accuracy_low is None or self.gate is None:
            return False
        return self.accuracy_low >= self.gate + GATE_MARGIN


def next_purchase(state: PlanState) -> Purchase | StopFor:
    """Return what to buy next; where rows have ended and no vote is wanted, why rows did, or where candidates could be
    written, why they are not."""
    rows = _rows(state)
    is_piloted = state.n_calls_again > 0 or state.n_rounds < ROUNDS_OF_A_CURVE
    if not (isinstance(rows, Purchase) and is_piloted):
        n_again = max(_n_again(state), 0 if isinstance(rows, Purchase) else _n_again_at_last(state))
        n_again = min(n_again, _affordable(state.money_usd, state.worst_again_usd))
        if n_again > 0:
            return Purchase(kind=PurchaseKind.VOTES, n=n_again)
    if isinstance(rows, Purchase):
        candidates = _candidates(state) if state.is_losing_spent else rows
        return candidates if isinstance(candidates, Purchase) else rows
    return _candidates(state) if rows is StopFor.POOL else rows


def round_size(*, n_labels: int, n_open: int, n_labelled: int) -> int:
    """Return how many rows a round has when nothing is in its way.

    >>> round_size(n_labels=20, n_open=1000, n_labelled=0), round_size(n_labels=20, n_open=900, n_labelled=100)
    (100, 75)
    """
    n_pool = n_open + n_labelled
    least = max(START_LEAST, START_PER_LABEL * n_labels)
    if n_labelled == 0:
        return min(max(least, min(math.ceil(START_SHARE * n_pool), START_MOST)), n_open)
    size = max(math.ceil(GROWTH * n_labelled), LEAST_ROUND)
    return n_open if n_open < (1 + REST) * size else size


def _rows(state: PlanState) -> Purchase | StopFor:
    limit = math.inf if state.row_limit is None else state.row_limit
    n_left = int(min(state.n_open, limit - state.n_labelled))
    if state.n_open <= 0:
        return StopFor.POOL
    if n_left <= 0:
        return StopFor.LIMIT
    if state.n_rounds >= state.most_rounds:
        return StopFor.ROUNDS
    if state.is_past_gate:
        return StopFor.GATE_MARGIN
    money = state.money_usd - _n_again(state) * state.worst_again_usd
    n_affordable = _affordable(money, state.worst_usd + state.pair_usd)
    if n_affordable < (min(LEAST_BOUGHT, n_left) if state.n_labelled else 1):
        return StopFor.BUDGET
    size = round_size(n_labels=state.n_labels, n_open=state.n_open, n_labelled=state.n_labelled)
    n = min(size, n_left, n_affordable)
    if state.curve is None or state.n_rounds < ROUNDS_OF_A_CURVE:
        return Purchase(kind=PurchaseKind.ROWS, n=n)
    if state.curve.gain(state.n_labelled, size)[2] < FLAT_POINTS:
        return StopFor.FLAT
    return _worth_buying(state, state.curve, n)


def _worth_buying(state: PlanState, curve: Curve, n: int) -> Purchase | StopFor:
    """A round of n rows; a smaller one where only that is worth its price, since the first rows bring most."""
    while True:
        expected = Decimal(repr(curve.gain(state.n_labelled, n)[1]))
        if expected * state.point_usd > n * (state.call_usd + state.pair_usd):
            return Purchase(kind=PurchaseKind.ROWS, n=n)
        if n // 2 < LEAST_ROUND:
            return StopFor.WORTH
        n //= 2


def _candidates(state: PlanState) -> Purchase | StopFor:
    """A round of candidates for each slice that loses, or for the first of them, where only those can be paid with
    their labels, or are worth it."""
    if not state.writable or state.curve is None or state.n_rounds < ROUNDS_OF_A_CURVE:
        return StopFor.POOL
    if state.n_rounds >= state.most_rounds:
        return StopFor.ROUNDS
    if state.is_past_gate:
        return StopFor.GATE_MARGIN
    n_affordable = _affordable(state.money_usd, state.worst_write_usd + state.worst_usd + state.pair_usd)
    sizes = [size for at, size in enumerate(state.writable) if sum(state.writable[: at + 1]) <= n_affordable]
    if not sizes:
        return StopFor.BUDGET
    if state.curve.gain(state.n_labelled, round(state.kept * sum(sizes)))[2] < FLAT_POINTS:
        return StopFor.FLAT
    while sizes:
        n_rows = round(state.kept * sum(sizes))
        expected = Decimal(repr(state.curve.gain(state.n_labelled, n_rows)[1]))
        if expected * state.point_usd > n_rows * (state.write_usd + state.call_usd + state.pair_usd):
            return Purchase(kind=PurchaseKind.CANDIDATES, n=sum(sizes))
        sizes.pop()
    return StopFor.WORTH


def _n_again(state: PlanState) -> int:
    return rows_asked_again(
        n_unsure=state.n_unsure,
        n_calls=state.n_calls,
        n_calls_again=state.n_calls_again,
        n_further=state.n_further,
        n_changed=state.n_changed,
        n_vote_rounds=state.n_vote_rounds,
        repeat=state.repeat,
    )


def _n_again_at_last(state: PlanState) -> int:
    """Return how many rows to ask again where none is left that is worth buying: each unsure one, while the labels
    that this mends are worth its price. A wrong label is taken for a row that is not there, by the curve."""
    is_piloted = state.n_calls_again >= PILOT_CALLS
    if state.curve is None or state.is_past_gate or not is_piloted:
        return 0
    if not answers_change(state.n_further, state.n_changed, state.repeat):
        return 0
    n_mended = min(round(MENDED * state.doubt), state.n_labelled)
    points = Decimal(repr(state.curve.gain(state.n_labelled - n_mended, n_mended)[1]))
    return state.n_unsure if points * state.point_usd > state.n_unsure * state.again_usd else 0


def _affordable(money: Decimal, price: Decimal) -> int:
    """Return how many of a thing the money buys; what is free is always affordable."""
    if money < 0:
        return 0
    return int(money // price) if price > 0 else 2**62
