from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.labeling.learning_curves import Curve
from backend.domain.labeling.purchases import (
    MOST_ROUNDS,
    PlanState,
    Purchase,
    PurchaseKind,
    StopFor,
    next_purchase,
    round_size,
)
from backend.domain.labeling.votes_again import changed_votes, unsure_rows

ROWS, VOTES = PurchaseKind.ROWS, PurchaseKind.VOTES


def curve_of(b: float, c: float = 0.5, *, high: float | None = None) -> Curve:
    """An error of b n^-c; `high` is the factor of the draws."""
    draws = np.tile([0.0, b if high is None else high, c], (200, 1))
    return Curve(fit=np.array([0.0, b, c]), draws=draws)


def state_of(**others: Any) -> PlanState:
    """The third round of a pool of 1,000, with money, a steep curve and no row to ask again."""
    state = PlanState(
        n_labels=20,
        n_open=825,
        n_labelled=175,
        n_rounds=2,
        n_vote_rounds=0,
        n_calls=175,
        n_calls_again=0,
        n_further=0,
        n_unsure=0,
        n_changed=0,
        repeat=0.0,
        money_usd=Decimal(5),
        call_usd=Decimal("0.000026"),
        worst_usd=Decimal("0.0001"),
        again_usd=Decimal("0.000026"),
        worst_again_usd=Decimal("0.0001"),
        pair_usd=Decimal("0.000005"),
        curve=curve_of(4.0),
    )
    return replace(state, **others)


def rows(n: int) -> Purchase:
    return Purchase(kind=ROWS, n=n)


def votes(n: int) -> Purchase:
    return Purchase(kind=VOTES, n=n)


def candidates(n: int) -> Purchase:
    return Purchase(kind=PurchaseKind.CANDIDATES, n=n)


def play(state: PlanState, curve: Curve | None) -> tuple[list[int], StopFor]:
    """Buy until it stops, every call at its expected price."""
    sizes: list[int] = []
    while isinstance(what := next_purchase(state), Purchase):
        assert what.kind is ROWS
        assert len(sizes) < 100
        sizes.append(what.n)
        state = replace(
            state,
            curve=curve,
            n_open=state.n_open - what.n,
            n_labelled=state.n_labelled + what.n,
            n_calls=state.n_calls + what.n,
            n_rounds=state.n_rounds + 1,
            money_usd=state.money_usd - what.n * (state.call_usd + state.pair_usd),
        )
    return sizes, what


FRESH = {"n_labelled": 0, "n_calls": 0, "n_rounds": 0, "curve": None}


def test_a_thousand_rows_take_five_growing_rounds() -> None:
    sizes, stop = play(state_of(n_open=1_000, **FRESH), curve_of(4.0))
    assert sizes == [100, 75, 132, 231, 462]
    assert stop is StopFor.POOL


@pytest.mark.parametrize(
    ("n_labels", "n_open", "first"), [(2, 40, 20), (2, 15, 15), (30, 100, 60), (60, 1_000, 120), (5, 100_000, 500)]
)
def test_the_first_round_is_a_tenth_and_has_two_rows_a_label(n_labels: int, n_open: int, first: int) -> None:
    assert next_purchase(state_of(n_labels=n_labels, n_open=n_open, **FRESH)) == rows(first)


@given(st.integers(1, 200), st.integers(1, 200_000))
def test_rounds_end_in_twelve_or_with_the_pool(n_labels: int, n_pool: int) -> None:
    sizes, stop = play(
        state_of(n_labels=n_labels, n_open=n_pool, **FRESH, money_usd=Decimal(1_000)), curve_of(4.0, 0.2)
    )
    assert stop is (StopFor.POOL if sum(sizes) == n_pool else StopFor.ROUNDS)
    assert len(sizes) <= MOST_ROUNDS
    assert all(size >= min(20, n_pool) for size in sizes)
    assert sizes[0] == round_size(n_labels=n_labels, n_open=n_pool, n_labelled=0)


def test_a_round_is_bought_while_it_is_worth_more_than_it_costs() -> None:
    gain = Decimal(repr(curve_of(4.0).gain(175, 132)[1]))
    price = 132 * Decimal("0.000031")
    assert next_purchase(state_of(point_usd=price / gain * Decimal("1.01"))) == rows(132)
    assert next_purchase(state_of(point_usd=price / gain * Decimal("0.99"))) == rows(66)
    assert next_purchase(state_of(point_usd=price / gain / 3)) is StopFor.WORTH


def test_a_teacher_that_costs_a_thousand_times_more_is_asked_less() -> None:
    dear = {"call_usd": Decimal("0.026"), "worst_usd": Decimal("0.05"), "money_usd": Decimal(100)}
    cheap, _ = play(state_of(n_open=1_000, **FRESH), curve_of(1.0))
    few, stop = play(state_of(n_open=1_000, **FRESH, **dear), curve_of(1.0))
    assert sum(few) < sum(cheap)
    assert stop is StopFor.WORTH


def test_flat_is_what_even_the_upper_bound_calls_flat_after_two_rounds() -> None:
    flat = curve_of(0.001)
    assert next_purchase(state_of(curve=flat)) is StopFor.FLAT
    assert next_purchase(state_of(curve=flat, n_rounds=1)) == rows(132)
    assert next_purchase(state_of(curve=curve_of(0.001, high=4.0), point_usd=Decimal(100))) == rows(132)


def test_the_pool_the_limit_and_the_rounds_end_it() -> None:
    assert next_purchase(state_of(n_open=0)) is StopFor.POOL
    assert next_purchase(state_of(row_limit=175)) is StopFor.LIMIT
    assert next_purchase(state_of(row_limit=180)) == rows(5)
    assert next_purchase(state_of(n_rounds=12)) is StopFor.ROUNDS
    assert next_purchase(state_of(most_rounds=2)) is StopFor.ROUNDS


def test_a_gate_that_is_passed_with_a_margin_ends_it() -> None:
    assert next_purchase(state_of(gate=0.9, accuracy_low=0.92)) is StopFor.GATE_MARGIN
    assert next_purchase(state_of(gate=0.9, accuracy_low=0.91)) == rows(132)
    assert next_purchase(state_of(gate=0.9)) == rows(132)


SPENT = {"n_open": 0, "n_labelled": 240, "write_usd": Decimal("0.000007"), "worst_write_usd": Decimal("0.0001")}


def test_candidates_follow_where_every_row_is_labelled_and_some_slice_loses() -> None:
    assert next_purchase(state_of(**SPENT)) is StopFor.POOL
    assert next_purchase(state_of(**SPENT, writable=(24, 24))) == candidates(48)
    assert next_purchase(state_of(writable=(24, 24))) == rows(132), "what is written is labelled first"
    assert next_purchase(state_of(writable=(24,), is_losing_spent=True)) == candidates(24)
    assert next_purchase(state_of(**SPENT, writable=(24,), n_unsure=50)) == votes(20), "and votes come before"


def test_candidates_are_bought_while_they_are_worth_writing_labelling_and_training() -> None:
    state = state_of(**SPENT, writable=(24, 24), kept=0.5)
    gain = Decimal(repr(curve_of(4.0).gain(240, 24)[1]))
    price = 24 * Decimal("0.000038")
    assert next_purchase(replace(state, point_usd=price / gain * Decimal("1.01"))) == candidates(48)
    assert next_purchase(replace(state, point_usd=price / gain * Decimal("0.99"))) == candidates(24)
    assert next_purchase(replace(state, point_usd=price / gain / 3)) is StopFor.WORTH
    assert next_purchase(replace(state, curve=curve_of(0.001))) is StopFor.FLAT
    assert next_purchase(replace(state, curve=None)) is StopFor.POOL
    assert next_purchase(replace(state, kept=0.0, curve=curve_of(4.0))) is StopFor.FLAT


def test_candidates_are_paid_at_their_worst_with_their_labels_and_no_more_than_the_budget_has() -> None:
    state, worst = state_of(**SPENT, writable=(24, 24)), Decimal("0.000205")
    assert next_purchase(replace(state, money_usd=48 * worst)) == candidates(48)
    assert next_purchase(replace(state, money_usd=47 * worst)) == candidates(24)
    assert next_purchase(replace(state, money_usd=23 * worst)) is StopFor.BUDGET


def test_no_candidates_follow_a_gate_that_is_passed_or_the_last_round() -> None:
    state = state_of(**SPENT, writable=(24,))
    assert next_purchase(replace(state, gate=0.9, accuracy_low=0.92)) is StopFor.GATE_MARGIN
    assert next_purchase(replace(state, n_rounds=12)) is StopFor.ROUNDS


def test_a_tight_budget_is_spent_in_smaller_rounds_and_never_exceeded() -> None:
    """Each round is as large as its worst price fits."""
    state = state_of(n_open=1_000, **FRESH, money_usd=Decimal("0.02"))
    sizes, stop = play(state, curve_of(4.0))
    assert stop is StopFor.BUDGET
    assert sum(sizes) * Decimal("0.000031") <= Decimal("0.02")
    assert sum(sizes) >= 500
    assert next_purchase(replace(state, money_usd=Decimal("0.0004"))) == rows(3)
    assert next_purchase(replace(state, money_usd=Decimal("0.0001"))) is StopFor.BUDGET
    assert next_purchase(replace(state, money_usd=Decimal("-1"))) is StopFor.BUDGET


def test_free_calls_need_no_money() -> None:
    free = {
        "call_usd": Decimal(0),
        "worst_usd": Decimal(0),
        "again_usd": Decimal(0),
        "worst_again_usd": Decimal(0),
        "pair_usd": Decimal(0),
        "money_usd": Decimal(0),
    }
    assert play(state_of(n_open=1_000, **FRESH, **free), curve_of(4.0))[1] is StopFor.POOL


PILOTED = {"n_calls_again": 20, "n_further": 20, "n_changed": 10, "n_vote_rounds": 1}


def test_a_pilot_asks_again_before_many_rows_are_bought() -> None:
    assert next_purchase(state_of(n_rounds=1, n_unsure=50, curve=None)) == rows(132)
    assert next_purchase(state_of(n_unsure=50)) == votes(20)
    assert next_purchase(state_of(n_unsure=12)) == votes(12)
    assert next_purchase(state_of(n_unsure=50, n_calls=195, **PILOTED)) == rows(132)
    assert next_purchase(state_of(n_unsure=0)) == rows(132)


def test_votes_follow_rows_while_answers_change() -> None:
    done = {"n_open": 0, "n_calls": 420, "n_unsure": 50}
    assert next_purchase(state_of(**done, **PILOTED)) == votes(50)
    assert next_purchase(state_of(**done, **PILOTED | {"n_changed": 2})) == votes(50)
    assert next_purchase(state_of(**done, **PILOTED | {"n_changed": 1})) is StopFor.POOL


def test_votes_are_a_quarter_of_all_calls_at_most() -> None:
    changing = {"n_open": 0, "n_unsure": 300, "n_vote_rounds": 1}
    assert next_purchase(state_of(**changing, n_calls=320, n_calls_again=20, n_further=20, n_changed=10)) == votes(80)
    assert next_purchase(state_of(**changing, n_calls=380, n_calls_again=80, n_further=80, n_changed=40)) == votes(20)
    assert (
        next_purchase(state_of(**changing, n_calls=400, n_calls_again=100, n_further=100, n_changed=50)) is StopFor.POOL
    )
    assert next_purchase(state_of(n_open=0, n_unsure=40, n_calls=40)) == votes(13)  # of the pilot too


def test_votes_go_beyond_a_quarter_where_no_row_is_left_and_they_are_worth_it() -> None:
    """40 wrong labels, of which half are mended: what 20 rows bring to 980, by the curve 0.129 points."""
    spent = {"n_open": 0, "n_labelled": 1_000, "n_unsure": 200, "n_calls": 1_400, "n_changed": 90}
    spent |= {"n_calls_again": 400, "n_further": 400}
    assert next_purchase(state_of(**spent)) is StopFor.POOL
    assert next_purchase(state_of(**spent, doubt=40.0)) == votes(200)
    assert next_purchase(state_of(**spent, doubt=40.0, again_usd=Decimal("0.00064"))) == votes(200)
    assert next_purchase(state_of(**spent, doubt=40.0, again_usd=Decimal("0.00065"))) is StopFor.POOL
    assert next_purchase(state_of(**spent, doubt=40.0, curve=None)) is StopFor.POOL
    assert next_purchase(state_of(**(spent | {"n_changed": 39}), doubt=40.0)) is StopFor.POOL, "answers repeat"
    assert next_purchase(state_of(**spent, doubt=40.0, money_usd=Decimal("0.001"))) == votes(10)
    assert next_purchase(state_of(**(spent | {"n_open": 500}), doubt=40.0, n_rounds=2)).kind is ROWS


def test_no_vote_is_bought_of_a_teacher_that_repeats_itself_or_after_four_rounds() -> None:
    unsure = {"n_open": 0, "n_calls": 420, "n_unsure": 50, **PILOTED}
    assert next_purchase(state_of(**unsure, repeat=0.71)) is StopFor.POOL
    assert next_purchase(state_of(**unsure, repeat=0.7)) == votes(50)
    assert next_purchase(state_of(**unsure | {"n_vote_rounds": 4})) == votes(50)
    assert next_purchase(state_of(**unsure | {"n_vote_rounds": 5})) is StopFor.POOL


def test_rows_leave_the_money_that_votes_need() -> None:
    money = Decimal("0.0001") * 40 + Decimal("0.000105") * 30
    state = state_of(n_unsure=40, n_calls=195, money_usd=money, **PILOTED)
    assert next_purchase(state) == rows(31)  # 38 votes are a quarter of all calls
    assert next_purchase(replace(state, money_usd=Decimal("0.0001") * 38)) == votes(38)
    assert next_purchase(replace(state, money_usd=Decimal("0.0001") * 7)) == votes(7)


def test_the_least_sure_and_the_most_disputed_rows_are_asked_again() -> None:
    believed = np.array([[0.5, 0.5], [0.79, 0.21], [0.9, 0.1], [0.6, 0.4], [0.5, 0.5], [0.5, 0.5], [0.95, 0.05]])
    counts = np.array([[1, 0], [1, 1], [1, 0], [3, 1], [3, 2], [0, 0], [1, 0]], dtype=np.float64)
    predicted = np.array([[0.5, 0.5], [0.6, 0.4], [0.4, 0.6], [0.5, 0.5], [0.1, 0.9], [0.5, 0.5], [0.9, 0.1]])
    assert unsure_rows(counts, believed, predicted, most=5).tolist() == [0, 3, 1, 2]
    nothing = np.zeros((0, 2))
    assert unsure_rows(nothing, nothing, nothing, most=5).tolist() == []


def test_votes_that_changed_stand_on_rows_whose_votes_differ() -> None:
    counts = np.array([[1, 0], [2, 0], [1, 1], [2, 1], [0, 0]], dtype=np.float64)
    assert changed_votes(counts) == 1 + 2
    assert changed_votes(counts, np.array([0, 1, 0, 1, 0])) == 1, "of the last but one, two were known before"
    assert changed_votes(counts, np.array([0, 1, 2, 2, 0])) == 1 + 2, "one of them was no label"
    assert changed_votes(np.zeros((0, 3))) == 0


@given(
    st.builds(
        state_of,
        n_labels=st.integers(1, 100),
        n_open=st.integers(0, 2_000),
        n_labelled=st.integers(0, 2_000),
        n_rounds=st.integers(0, 13),
        n_vote_rounds=st.integers(0, 5),
        n_calls=st.integers(0, 4_000),
        n_calls_again=st.integers(0, 500),
        n_further=st.integers(0, 500),
        n_unsure=st.integers(0, 1_000),
        n_changed=st.integers(0, 500),
        repeat=st.floats(0, 1),
        money_usd=st.decimals(0, 1, places=6),
        row_limit=st.none() | st.integers(0, 3_000),
        curve=st.none() | st.builds(curve_of, st.floats(0, 5), st.floats(0.2, 1.5)),
    )
)
def test_what_is_bought_is_there_and_can_be_paid(state: PlanState) -> None:
    what = next_purchase(state)
    if isinstance(what, StopFor):
        return
    assert what.n >= 1
    if what.kind is ROWS:
        assert what.n <= state.n_open
        assert state.row_limit is None or state.n_labelled + what.n <= state.row_limit
        assert what.n * (state.worst_usd + state.pair_usd) <= state.money_usd
    else:
        assert what.n <= state.n_unsure
        assert what.n * state.worst_again_usd <= state.money_usd
        assert 4 * (state.n_calls_again + what.n) <= state.n_calls + what.n
