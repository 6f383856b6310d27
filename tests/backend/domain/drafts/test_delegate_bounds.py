"""When another model may judge drafts in the teacher's place, by its controls; and how often it is audited."""

import random

import pytest

from backend.domain.drafts.delegate_bounds import ENOUGH_CONTROLS, FIRST_AUDITS, audit_share, why_no_judge
from backend.domain.drafts.judge_controls import ControlCounts


def counts(negative: tuple[int, int] = (0, 0), positive: tuple[int, int] = (0, 0)) -> ControlCounts:
    """(planted, accepted) of each kind."""
    return ControlCounts(
        n_negative=negative[0],
        n_negative_accepted=negative[1],
        n_positive=positive[0],
        n_positive_accepted=positive[1],
    )


@pytest.mark.parametrize(
    ("controls", "words"),
    [
        (counts(), ""),
        (counts(negative=(2, 2)), ""),  # may be chance
        (counts(negative=(3, 3)), "refused 0 of 3"),
        (counts(negative=(25, 13)), "refused 12 of 25"),
        (counts(negative=(99, 9)), ""),
        (counts(negative=(ENOUGH_CONTROLS, 9)), "refused 91 of 100"),
        (counts(negative=(ENOUGH_CONTROLS, 8)), ""),
        (counts(positive=(6, 0)), ""),
        (counts(positive=(7, 0)), "accepted 0 of 7"),
        (counts(positive=(99, 55)), ""),
        (counts(positive=(ENOUGH_CONTROLS, 55)), "accepted 55 of 100"),
        (counts(positive=(ENOUGH_CONTROLS, 75)), ""),
        (counts(negative=(200, 4), positive=(100, 90)), ""),
    ],
)
def test_a_judge_is_none_beyond_doubt_or_after_enough_controls_that_do_not_show_one(controls, words) -> None:
    reason = why_no_judge(controls)
    assert words in reason
    assert bool(reason) is bool(words)


@pytest.mark.parametrize(("specificity", "most_refused"), [(0.98, 0.1), (0.6, 1.0)])
def test_good_judges_stay_and_bad_ones_do_not(specificity: float, most_refused: float) -> None:
    """Looked at after every 25 of 200 controls."""
    rng, n_refused, n_runs = random.Random(3), 0, 20
    for _ in range(n_runs):
        answers = [rng.random() > specificity for _ in range(200)]
        n_refused += any(why_no_judge(counts(negative=(n, sum(answers[:n])))) for n in range(25, 201, 25))
    assert n_refused <= most_refused * n_runs
    assert most_refused < 1 or n_refused == n_runs


def test_evidence_comes_before_the_specs_share() -> None:
    shares = [audit_share(n, 0.1) for n in range(FIRST_AUDITS + 5)]
    assert shares == [1.0] * FIRST_AUDITS + [0.1] * 5
    assert audit_share(0, 0.0) == 1.0
