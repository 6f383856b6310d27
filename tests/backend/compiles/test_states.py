"""The states of candidates and teacher calls: where the tables lead, and that nothing else is written."""

from enum import StrEnum
from typing import Any

import pytest

from backend.compiles.models import Candidate, TeacherCall
from backend.compiles.states import (
    CALL_MOVES,
    CANDIDATE_MOVES,
    LABELED_STATES,
    WRITTEN_STATES,
    CallState,
    CandidateState,
    IllegalMove,
    check_move,
    state_when_written,
    states_before,
)

TABLES = [(CandidateState, CANDIDATE_MOVES), (CallState, CALL_MOVES)]
# as often as there are votes and rounds: an input is asked again, its votes are weighed anew, a round's budget ends
LEADS_BACK = {
    (CandidateState.LABELED, CandidateState.PICKED),
    (CandidateState.UNVERIFIED, CandidateState.PICKED),
    (CandidateState.UNVERIFIED, CandidateState.LABELED),
    (CandidateState.PICKED, CandidateState.DROPPED),
}


@pytest.mark.parametrize(("enum", "moves"), TABLES)
def test_a_table_names_every_state_and_none_twice_on_a_way(enum: type[StrEnum], moves: dict[Any, frozenset[Any]]):
    assert set(moves) == set(enum)

    def longest(state: Any, seen: tuple[Any, ...]) -> None:
        assert state not in seen, "a state that leads back to itself has no end"
        for after in moves[state]:
            if (state, after) not in LEADS_BACK:
                longest(after, (*seen, state))

    for state in enum:
        longest(state, ())


@pytest.mark.parametrize(("enum", "moves"), TABLES)
def test_the_states_before_one_are_those_that_lead_to_it(enum: type[StrEnum], moves: dict[Any, frozenset[Any]]):
    for to in enum:
        before = states_before(moves, to)
        for state in enum:
            if state in before:
                check_move(moves, state, to)
            else:
                with pytest.raises(IllegalMove):
                    check_move(moves, state, to)


def test_every_state_is_reached_from_what_is_written_first():
    def reached(moves: dict[Any, frozenset[Any]], states: set[Any]) -> set[Any]:
        further = states | {after for state in states for after in moves[state]}
        return states if further == states else reached(moves, further)

    assert reached(CANDIDATE_MOVES, set(WRITTEN_STATES)) == set(CandidateState)
    assert reached(CALL_MOVES, {CallState.STARTED, CallState.SUBMITTED}) == set(CallState)


def test_a_labelled_candidate_has_been_picked():
    not_asked = {CandidateState.DROPPED}
    assert CANDIDATE_MOVES[CandidateState.PICKED] <= LABELED_STATES | not_asked
    asked_again = {CandidateState.PICKED}
    assert all(CANDIDATE_MOVES[state] <= LABELED_STATES | asked_again for state in LABELED_STATES)


def test_a_reject_is_labelled_only_after_a_round_has_picked_it():
    assert CANDIDATE_MOVES[CandidateState.DROPPED] == {CandidateState.PICKED}


def test_what_the_database_has_are_the_words_of_before():
    assert [state.value for state in CandidateState] == [
        "rejected", "valid", "picked", "dropped", "labeled", "unverified", "trained", "left_out",
    ]  # fmt: skip
    assert [state.value for state in CallState] == [
        "started", "submitted", "succeeded", "applied", "failed", "canceled", "wasted",
    ]  # fmt: skip
    assert (Candidate().state, TeacherCall().state) == ("valid", "started")


def test_a_row_takes_no_state_that_the_table_does_not_lead_to():
    candidate, call = Candidate(state="valid"), TeacherCall(state="succeeded")
    candidate.move(CandidateState.PICKED)
    call.move(CallState.APPLIED)
    assert (candidate.state, call.state) == ("picked", "applied")
    with pytest.raises(IllegalMove):
        candidate.move(CandidateState.TRAINED)
    with pytest.raises(IllegalMove):
        call.move(CallState.WASTED)
    assert (candidate.state, call.state) == ("picked", "applied")


@pytest.mark.parametrize(
    ("reasons", "state"), [([], "valid"), ((), "valid"), (None, "valid"), (["length"], "rejected")]
)
def test_a_candidate_is_written_as_its_checks_say(reasons: Any, state: str):
    assert state_when_written(reasons) == state
