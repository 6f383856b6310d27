"""The rows whose label a compile asks about once more, and how many votes it wants for them."""

import math

import numpy as np

from backend.domain.labeling.linear_head import Floats, Ints

MOST_VOTE_ROUNDS = 4  # after the pilot
VOTE_SHARE = 0.25  # of all calls, at most, for more votes while there is a row to buy
UNSURE = 0.2  # a row whose label is less probable than 1 less this is asked again
PILOT_CALLS = 20  # about the rows that teacher and student dispute most, before more are asked for
PILOT_ROWS, PILOT_VOTES = 20, 3  # of the first rows, drawn at random, and the answers that each is asked for at once
LEAST_CHANGED = 0.1  # of the votes asked for again, that differ from the first: below it, no more are
MOST_REPEAT = 0.7  # correlation of repeated answers from which on no vote is worth asking


def unsure_rows(votes: Floats, believed: Floats, predicted: Floats, *, most: int) -> Ints:
    """The rows to ask again, least sure first: those with 1 to `most` - 1 votes whose label is less probable than
    1 - UNSURE by their posteriors `believed` (n, L); then those with one vote that the student disputes, by how much
    more probable it takes another label to be (`predicted` (n, L), out of fold). Rows that are equally unsure, to 1e-6,
    come in the order in which they are passed."""
    n_votes = votes.sum(axis=1)
    doubt = 1 - believed.max(axis=1, initial=0.0)
    leader = votes.argmax(axis=1) if votes.shape[1] else np.zeros(len(votes), dtype=np.int64)
    dispute = predicted.max(axis=1, initial=0.0) - predicted[np.arange(len(votes)), leader]
    dispute[n_votes > 1] = 0.0  # votes have spoken
    score = np.rint(np.where(doubt > UNSURE, 1 + doubt, dispute) * 1e6)
    rows = np.flatnonzero((score > 0) & (n_votes > 0) & (n_votes < most))
    return rows[np.argsort(-score[rows], kind="stable")]


def changed_votes(votes: Floats, again: Ints | None = None) -> int:
    """Count the votes again that stand where the row's votes differ; `votes` (n, L) counts, and `again` (n,) are those
    of a row that were asked for again: without it, all but its first."""
    n_votes = votes.sum(axis=1)
    differs = votes.max(axis=1, initial=0.0) < n_votes
    beyond = np.maximum(n_votes - 1, 0)
    return int((beyond if again is None else np.minimum(again, beyond))[differs].sum())


def rows_asked_again(
    *,
    n_unsure: int,
    n_calls: int,
    n_calls_again: int,
    n_further: int,
    n_changed: int,
    n_vote_rounds: int,
    repeat: float,
) -> int:
    """Return how many rows to ask again; the arguments are as in `PlanState`. First a pilot on what is disputed
    most; then, while answers change, each unsure row, until the calls again are VOTE_SHARE of all calls."""
    n_allowed = math.floor((n_calls - n_calls_again) * VOTE_SHARE / (1 - VOTE_SHARE)) - n_calls_again
    if n_calls_again < PILOT_CALLS:
        return max(min(n_unsure, PILOT_CALLS - n_calls_again, n_allowed), 0)
    if not answers_change(n_further, n_changed, repeat) or n_vote_rounds > MOST_VOTE_ROUNDS:
        return 0
    return max(min(n_unsure, n_allowed), 0)


def answers_change(n_further: int, n_changed: int, repeat: float) -> bool:
    """Say whether the teacher's answers change often enough to be asked for again."""
    return n_changed >= LEAST_CHANGED * n_further and repeat <= MOST_REPEAT
