"""The journal's arithmetic: whatever is booked, its lines balance, and none is of nothing."""

from collections import Counter
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain.money import ledger
from backend.domain.money.ledger import GrantKind, Line, Meter, Paid, Unbalanced

amounts = st.integers(1, 10**12)
meters = st.dictionaries(st.sampled_from(Meter), amounts, max_size=5)
ids = st.uuids()
paids = st.lists(st.builds(Paid, grant_id=ids, kind=st.sampled_from(GrantKind), amount_microusd=amounts), max_size=4)
entries = st.one_of(
    st.builds(ledger.grant_lines, st.sampled_from(GrantKind), ids, amounts),
    st.builds(ledger.hold_lines, amounts),
    st.builds(ledger.release_lines, amounts),
    st.builds(ledger.charge_lines, meters, wasted=meters, paid=paids, from_hold=amounts),
    st.builds(ledger.expire_lines, st.sampled_from(GrantKind), ids, amounts),
    st.builds(ledger.invoice_lines, st.integers(-(10**9), 10**12), st.integers(-(10**5), 10**8)),
    st.builds(ledger.payment_lines, amounts),
)


@given(entries)
def test_every_entry_balances_and_has_no_line_of_nothing_and_no_place_twice(lines):
    assert sum(line.amount_microusd for line in lines) == 0
    assert all(line.amount_microusd for line in lines)
    assert max(Counter((line.account, line.grant_id) for line in lines).values(), default=1) == 1


@given(entries)
def test_an_entry_and_its_reversal_are_nothing(lines):
    assert ledger.entry(*lines, *ledger.reverse_lines(lines)) == ()


@given(meters, paids)
def test_a_credit_takes_back_what_was_charged_whoever_paid(charged, paid):
    lines = ledger.charge_lines(charged, paid=paid)
    back = ledger.our_fault_lines(lines)
    assert ledger.sum_usage(lines) == sum(charged.values()) == -ledger.sum_usage(back)
    assert ledger.sum_usage(ledger.entry(*lines, *back)) == 0


def test_lines_that_do_not_balance_are_refused():
    with pytest.raises(Unbalanced, match="sum to 1"):
        ledger.entry(Line(account="held", amount_microusd=1))


@given(st.integers(-(10**12), 10**12))
def test_cents_are_never_more_than_half_a_cent_off(microusd):
    cents = ledger.to_cents(microusd)
    assert abs(cents * 10_000 - microusd) <= 5_000
    assert cents == round(Decimal(microusd) / 10_000)  # half to even as well


def test_a_charge_of_a_hold_that_a_grant_pays_in_part():
    grant = UUID(int=1)
    lines = ledger.charge_lines(
        {Meter.TEACHER: 70, Meter.GPU_COMPILE: 30},
        wasted={Meter.TEACHER: 5},
        paid=[Paid(grant_id=grant, kind=GrantKind.PROMO, amount_microusd=60)],
        from_hold=100,
    )
    assert {line.account: line.amount_microusd for line in lines} == {
        "held": -100,
        "available": 100,
        "credit:promo": 60,
        "accrued": 40,
        "revenue:teacher": -70,
        "revenue:gpu_compile": -30,
        "waste": 5,
        "cogs:teacher": -5,
    }
