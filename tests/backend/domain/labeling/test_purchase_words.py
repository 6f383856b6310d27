"""Every purchase and every end of labelling has words, also those of a release that is newer."""

import pytest

from backend.domain.labeling.purchase_words import all_entries, round_lines, stop_words
from backend.domain.labeling.purchases import StopFor
from backend.domain.labeling.rounds import Why


@pytest.mark.parametrize("stopped_for", list(StopFor))
def test_every_end_says_why_and_what_to_do(stopped_for: StopFor) -> None:
    words = stop_words(stopped_for)
    assert words.reason.endswith(".")
    assert words.advice.endswith(".")


@pytest.mark.parametrize("why", list(Why))
def test_every_reason_of_a_row_has_words(why: Why) -> None:
    line = round_lines([{"round": 1, "n": 1200, "why": {why.value: 1200}}])[1]
    assert line.bought.startswith("1,200 inputs ")
    assert "_" not in line.bought
    assert line.is_again == (why == Why.ASKED_AGAIN)


def test_what_a_newer_release_says_is_shown_as_it_is() -> None:
    assert (stop_words("teacher_gone").reason, stop_words("teacher_gone").advice) == ("teacher gone.", "")
    line = round_lines([{"round": 1, "n": 3, "why": {"by_hand": 1, "random": 2}}])[1]
    assert line.bought == "3 inputs (2 at random, 1 by hand)"


def test_a_round_under_way_has_no_outcome_yet() -> None:
    entry = {"round": 1, "n": 1, "why": {"random": 1}, "n_rows": 20, "n_votes": 20, "accuracy_ppm": 500_000}
    start, first = round_lines([entry])
    assert (start.n_rows, start.accuracy) == (20, "50.0 %")
    assert (first.bought, first.n_votes, first.n_rows, first.accuracy) == ("1 input (1 at random)", None, None, "")


def test_a_round_that_the_budget_ended_says_what_was_not_bought() -> None:
    entry = {"round": 1, "n": 40, "why": {"uncertain": 32, "random": 8}, "n_rows": 20, "n_votes": 20, "n_unpaid": 15}
    facts = {"purchases": [entry], "stopped_for": "budget", "at_end": {"n_rows": 45, "n_votes": 45}}
    line = round_lines(all_entries(facts))[1]
    assert line.bought.endswith("; the budget had no money for 15 of them")
    assert (line.n_rows, line.n_votes) == (45, 25)


def test_a_round_of_candidates_says_for_which_slices_and_what_came_of_it() -> None:
    known = {"n_rows": 40, "n_votes": 44, "accuracy_ppm": 800_000}
    entry = {"round": 1, "kind": "candidates", "n": 20, "why": {}, "slices": {"late": 10, "angry": 10}, **known}
    done = entry | {"n_kept": 17, "cost_microusd": 143}
    after = {"round": 2, "n": 17, "why": {"losing": 17}, **known}
    start, candidates, rows = round_lines([done, after])
    assert (start.n_votes, start.n_rows) == (44, 40)
    assert candidates.bought == "20 candidates for late, angry; 17 kept, $0.000143"
    assert (candidates.is_written, candidates.n_votes, candidates.accuracy) == (True, None, "")
    assert rows.bought == "17 inputs (17 of slices that lose)"
    assert round_lines([entry])[1].bought == "20 candidates for late, angry"


def test_labels_without_a_decision_have_no_lines() -> None:
    assert all_entries({"n_labeled": 12, "label_samples": 5}) == []
    assert round_lines([]) == []


def test_first_picks_that_nothing_followed_are_a_line() -> None:
    entries = all_entries({"purchases": [], "stopped_for": "pool", "at_end": {"n_rows": 48, "n_votes": 48}})
    assert [(line.bought, line.n_rows) for line in round_lines(entries)] == [("first picks", 48)]
