"""The states of a candidate, of a teacher call and of a teacher batch, and the moves allowed between them: one table
each."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from backend.domain.errors import OurError

State = TypeVar("State", bound=StrEnum)
REWARD_CALLS = "reward:"  # how the journal's keys of the calls begin that ask for rewards
DELEGATE_CALLS = "delegate:"  # and of those that ask the spec's own judge about drafts
LABEL_CALLS = "labeling:"  # and of those that ask for labels or answers
CANDIDATE_CALLS = "synthesis:"  # and of those that ask for candidates, in whatever step


class IllegalMove(OurError):
    """A row was to take a state that its own state does not lead to: a fault of ours, and nothing is written."""


class CandidateState(StrEnum):
    REJECTED = "rejected"  # failed a check when it was written, or a draft that is no candidate; never looked at again
    VALID = "valid"  # passed its checks; selection has not been there yet
    PICKED = "picked"  # kept by selection; waits for its votes
    DROPPED = "dropped"  # not among the K of its slice, or written later; a draft, until a round of labelling buys it
    LABELED = "labeled"  # the teacher's votes agree on its label or answer
    UNVERIFIED = "unverified"  # they do not; it trains nothing
    TRAINED = "trained"  # labelled, and a pair that trains
    LEFT_OUT = "left_out"  # labelled, but not among the pairs that train


class CallState(StrEnum):
    STARTED = "started"  # its money is reserved; under an older fence: its process died with the call in flight
    SUBMITTED = "submitted"  # in a teacher batch, its money reserved; no process holds it
    SUCCEEDED = "succeeded"  # answered and paid, not yet used
    APPLIED = "applied"  # what the step makes of the answer is saved with it
    FAILED = "failed"
    CANCELED = "canceled"
    WASTED = "wasted"  # lost with its process and written off


class BatchState(StrEnum):
    PLANNED = "planned"  # its calls and its file are here, the vendor has nothing yet
    UPLOADED = "uploaded"  # the vendor has the file; a job may have been made of it
    SUBMITTED = "submitted"  # the vendor's job is known by its id
    ENDED = "ended"  # its answers are journaled, and what was not answered is free again


class TeacherCheckState(StrEnum):
    QUEUED = "queued"  # no worker has taken it yet
    ASKED = "asked"
    PASSED = "passed"
    FAILED = "failed"


CANDIDATE_MOVES: dict[CandidateState, frozenset[CandidateState]] = {
    CandidateState.REJECTED: frozenset(),
    # rejected: a draft that the teacher refused, or was not asked about
    CandidateState.VALID: frozenset({CandidateState.PICKED, CandidateState.DROPPED, CandidateState.REJECTED}),
    # dropped again: the budget of its round has ended before it was asked about
    CandidateState.PICKED: frozenset({CandidateState.LABELED, CandidateState.UNVERIFIED, CandidateState.DROPPED}),
    CandidateState.DROPPED: frozenset({CandidateState.PICKED}),
    # picked again: asked for more votes; the votes on other inputs change what is made of its own
    CandidateState.LABELED: frozenset(
        {CandidateState.TRAINED, CandidateState.LEFT_OUT, CandidateState.UNVERIFIED, CandidateState.PICKED}
    ),
    CandidateState.UNVERIFIED: frozenset({CandidateState.LABELED, CandidateState.PICKED}),
    CandidateState.TRAINED: frozenset(),
    CandidateState.LEFT_OUT: frozenset(),
}

CALL_MOVES: dict[CallState, frozenset[CallState]] = {
    CallState.STARTED: frozenset({CallState.SUCCEEDED, CallState.FAILED, CallState.CANCELED, CallState.WASTED}),
    CallState.SUBMITTED: frozenset({CallState.SUCCEEDED, CallState.FAILED, CallState.CANCELED, CallState.WASTED}),
    CallState.SUCCEEDED: frozenset({CallState.APPLIED}),
    CallState.APPLIED: frozenset(),
    CallState.FAILED: frozenset(),
    CallState.CANCELED: frozenset(),
    CallState.WASTED: frozenset(),
}

BATCH_MOVES: dict[BatchState, frozenset[BatchState]] = {
    BatchState.PLANNED: frozenset({BatchState.UPLOADED, BatchState.ENDED}),
    BatchState.UPLOADED: frozenset({BatchState.SUBMITTED, BatchState.ENDED}),
    BatchState.SUBMITTED: frozenset({BatchState.ENDED}),
    BatchState.ENDED: frozenset(),
}

# a candidate that has its votes, whatever came of them
LABELED_STATES = frozenset(
    {CandidateState.LABELED, CandidateState.UNVERIFIED, CandidateState.TRAINED, CandidateState.LEFT_OUT}
)
# a candidate of a new compile: what its checks say
WRITTEN_STATES = frozenset({CandidateState.REJECTED, CandidateState.VALID})
# a call whose answer is here and paid
ANSWERED_STATES = frozenset({CallState.SUCCEEDED, CallState.APPLIED})


def state_when_written(reasons: object) -> CandidateState:
    """The state of a new candidate; `reasons` say why it fails its checks, where it does."""
    return CandidateState.REJECTED if reasons else CandidateState.VALID


def check_move(moves: Mapping[State, frozenset[State]], now: State, to: State) -> None:
    """Raise IllegalMove unless the table leads from `now` to `to`."""
    if to not in moves[now]:
        raise IllegalMove(f"What is {now} cannot become {to}.", code="internal_error")


def states_before(moves: Mapping[State, frozenset[State]], to: State) -> list[State]:
    """The states that the table leads from to `to`: what a query may change."""
    return [state for state in moves if to in moves[state]]
